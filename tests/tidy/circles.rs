//! Circles between the files of a module: a file may use only files that do not use it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::{Line, from_root, lines_of, paths_of, rust_files, tokens_of};

/// Each file with the files that it uses, named as `tools/edit`.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// Directories that are crates of their own: `crate` means them.
const CRATE_FOLDERS: [&str; 3] = ["core", "process", "rehearsal"];

/// The module of a file. `None`: it is the face of a folder or of a crate, or it is a test.
fn module_of(path: &Path) -> Option<Vec<&str>> {
    let names: Vec<&str> = path.iter().filter_map(|name| name.to_str()).collect();
    let (file, folders) = names.split_last()?;
    let name = file.strip_suffix(".rs")?;
    let is_module = !matches!(name, "mod" | "lib" | "main" | "build" | "tests");
    is_module.then(|| folders.iter().copied().chain([name]).collect())
}

/// The modules that the code of `here` names, outside of its tests.
fn modules_in(lines: &[Line], here: &[&str], files: &BTreeSet<String>) -> BTreeSet<String> {
    let end = lines.iter().position(|line| line.code.trim() == "mod tests {");
    let tokens = tokens_of(&lines[..end.unwrap_or(lines.len())]);
    let mut found = BTreeSet::new();
    for (_, path) in paths_of(&tokens) {
        let Some(mut used) = from_root(&path, here) else { continue };
        if path[0] == "crate" && CRATE_FOLDERS.contains(&here[0]) {
            used.insert(0, here[0]);
        }
        let prefixes = (1..=used.len()).rev().map(|length| used[..length].join("/"));
        found.extend(prefixes.into_iter().find(|prefix| files.contains(prefix)));
    }
    found.remove(&here.join("/"));
    found
}

/// Every use of one file by another.
fn uses_in(root: &Path) -> Uses {
    let mut paths = Vec::new();
    rust_files(root, &mut paths);
    let below = |path: &Path| path.strip_prefix(root).expect("found below it").to_owned();
    let names: Vec<_> = paths.iter().map(|path| below(path)).collect();
    let modules: Vec<_> = names.iter().map(|path| module_of(path)).collect();
    let files = modules.iter().flatten().map(|module| module.join("/")).collect();
    let of_file = |(path, module): (_, &Option<Vec<&str>>)| {
        let module = module.as_ref()?;
        let text = fs::read_to_string(path).expect("the source is readable");
        Some((module.join("/"), modules_in(&lines_of(&text), module, &files)))
    };
    paths.iter().zip(&modules).filter_map(of_file).collect()
}

/// True if `from` uses `to`, also by way of others.
fn reaches(uses: &Uses, from: &str, to: &str) -> bool {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(file) = open.pop() {
        if file == to {
            return true;
        }
        let next = uses.get(file).into_iter().flatten().map(String::as_str);
        open.extend(next.filter(|file| seen.insert(*file)));
    }
    false
}

/// The uses that are part of a circle.
fn circles_in(uses: &Uses) -> Vec<(&str, &str)> {
    let all = uses.iter().flat_map(|(file, used)| used.iter().map(move |used| (file, used)));
    let circular = all.filter(|(file, used)| reaches(uses, used, file));
    circular.map(|(file, used)| (file.as_str(), used.as_str())).collect()
}

#[test]
fn files_do_not_use_each_other_in_circles() {
    let uses = uses_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(uses.len() > 300, "only {} files were read", uses.len());
    let circles = circles_in(&uses);
    assert!(circles.is_empty(), "files use each other in circles: {circles:#?}");
}

#[test]
fn a_circle_is_found_whatever_its_length() {
    let files = ["a/x", "a/y", "a/b/z", "core/c"].map(str::to_owned).into();
    let uses = |here: &[&str], code: &str| modules_in(&lines_of(code), here, &files);
    let code = "use super::y::{Y, made};\nfn f() -> super::b::z::Z {}\nuse super::X;\nmod tests {\n    use super::super::y::Y;";
    assert_eq!(uses(&["a", "x"], code).into_iter().collect::<Vec<_>>(), ["a/b/z", "a/y"]);
    assert_eq!(uses(&["a", "b", "z"], "use super::super::{x::X, K};").len(), 1);
    assert_eq!(uses(&["core", "d"], "use crate::c::C;").len(), 1);
    let graph = |edges: &[(&str, &str)]| {
        let mut uses = Uses::new();
        for (from, to) in edges {
            uses.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        uses
    };
    let circle = graph(&[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]);
    assert_eq!(circles_in(&circle), [("a", "b"), ("b", "c"), ("c", "a")]);
    assert_eq!(circles_in(&graph(&[("a", "b"), ("a", "c"), ("b", "c")])), []);
}
