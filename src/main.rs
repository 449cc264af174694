//! Parses, runs, exits.

use std::process::ExitCode;

fn main() -> ExitCode {
    outlast::cli::main()
}
