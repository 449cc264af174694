//! Version and commit of this binary.

use super::args::ProgramName;

/// `N.N.N`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit it was built from, with `-dirty` if the sources differed; `unknown` without git.
pub const COMMIT: &str = env!("OUTLAST_COMMIT");

/// The version of the result object and of the messages of `stream-json`. Grows when a field
/// changes its meaning or is removed, but not when a field is added.
pub const SCHEMA_VERSION: u32 = 1;

/// The version of the reference tool whose messages outlast follows. Hosts compare it.
pub const REFERENCE_VERSION: &str = "2.1.332";

/// The line that `--version` prints. Programs that start `claude` compare the number at its
/// beginning with the version of the interface that they need.
pub(super) fn line(name: ProgramName) -> String {
    match name {
        ProgramName::Outlast => {
            format!("{VERSION} (outlast) commit {COMMIT}, schema {SCHEMA_VERSION}\n")
        }
        ProgramName::Claude => format!("{REFERENCE_VERSION} (outlast {VERSION})\n"),
    }
}
