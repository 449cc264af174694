//! Parses, runs, exits.

use std::process::ExitCode;

use outlast::process;

fn main() -> ExitCode {
    if let Some(code) = process::keep_if_told_to() {
        return code;
    }
    process::begin_afresh();
    process::inherit_orphans();
    outlast::cli::main()
}
