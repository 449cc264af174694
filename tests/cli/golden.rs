//! Golden files of texts that say which commit outlast is built from.

use outlast::cli::version;

use crate::support::golden;

/// Compares with the committed file, or rewrites it when `UPDATE=1` is set.
pub(crate) fn compare(path: &str, found: &str) {
    let commit = |between: &str, name: &str| format!("\"outlast_commit\"{between}\"{name}\"");
    let found = [":", ": "].iter().fold(found.to_owned(), |text, between| {
        text.replace(&commit(between, version::COMMIT), &commit(between, "COMMIT"))
    });
    golden::compare(path, &found);
}
