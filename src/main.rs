//! Entry point: runs the command line and returns its exit code.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use outlast::process;

fn main() -> ExitCode {
    if let Some(code) = process::run_supervisor_if_requested() {
        return code;
    }
    process::share_heap();
    process::reset_inherited_signals();
    process::break_closed_stdout();
    process::keep_owner_rights();
    process::inherit_orphans();
    outlast::cli::main()
}
