//! Golden files: reviewed texts that change only with `UPDATE=1`.

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the repository, which a member of the workspace is below.
pub(crate) fn root() -> PathBuf {
    let member = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = member.ancestors().find(|folder| folder.join("tests/main.rs").is_file());
    root.expect("tests are compiled in the repository").to_owned()
}

/// Compares with the committed file, or rewrites it when `UPDATE=1` is set.
pub(crate) fn compare(path: &str, found: &str) {
    let path = root().join(path);
    if std::env::var_os("UPDATE").is_some() {
        fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a new folder");
        fs::write(&path, found).expect("a new file");
    }
    let wanted = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        wanted == found,
        "{} differs; run with UPDATE=1 and review the change.\n--- found\n{found}\n--- wanted\n{wanted}",
        path.display()
    );
}
