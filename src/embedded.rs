//! Texts that the program contains: the manual, and the built-in scenarios. The build script
//! compresses them to a third, and most runs read none of them.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::LazyLock;

use flate2::read::DeflateDecoder;

/// The pages of the manual, as Markdown, by the names of their files: `outlast-hooks.7.md`.
pub static MANUAL: LazyLock<EmbeddedFiles> =
    LazyLock::new(|| unpack(include_bytes!(concat!(env!("OUT_DIR"), "/manual.deflate"))));

/// The built-in scenarios, by the names of their files: `outage.toml`.
pub static SCENARIOS: LazyLock<EmbeddedFiles> =
    LazyLock::new(|| unpack(include_bytes!(concat!(env!("OUT_DIR"), "/scenarios.deflate"))));

/// Texts, by the names of their files.
pub type EmbeddedFiles = BTreeMap<String, String>;

fn unpack(packed: &[u8]) -> EmbeddedFiles {
    let mut text = String::new();
    // The build script has written it from files that are UTF-8.
    DeflateDecoder::new(packed).read_to_string(&mut text).expect("it is what was packed");
    let (mut files, mut parts) = (EmbeddedFiles::new(), text.split_terminator('\0'));
    while let (Some(name), Some(text)) = (parts.next(), parts.next()) {
        files.insert(name.to_owned(), text.to_owned());
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_embedded_as_it_is() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        for (files, folder, end) in
            [(&*MANUAL, "man", "md"), (&*SCENARIOS, "src/rehearsal/scenarios", "toml")]
        {
            let found = std::fs::read_dir(root.join(folder)).expect("it is there");
            let paths = found.map(|file| file.expect("it can be listed").path());
            let paths: Vec<_> =
                paths.filter(|path| path.extension().is_some_and(|it| it == end)).collect();
            assert_eq!(files.len(), paths.len(), "{folder}");
            for path in paths {
                let name = path.file_name().and_then(|name| name.to_str()).expect("plain");
                let text = std::fs::read_to_string(&path).expect("UTF-8");
                assert_eq!(files.get(name), Some(&text), "{name}");
            }
        }
    }
}
