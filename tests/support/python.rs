//! The Python that tests start.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// The interpreter itself: what PATH has may be a script of a version manager, which costs more
/// than all that a test asks of Python. Where no package of the site is needed, tests start it with
/// `-S`, for the same reason.
pub(crate) fn python() -> &'static str {
    interpreter().expect("python3 is installed")
}

/// PATH, for all that tests start: with the folder of the interpreter first, if it has another
/// `python3` before it.
pub(crate) fn search_path() -> &'static OsStr {
    static SEARCH_PATH: OnceLock<OsString> = OnceLock::new();
    SEARCH_PATH.get_or_init(|| {
        let path = env::var_os("PATH").unwrap_or_default();
        let first = env::split_paths(&path).find(|folder| folder.join("python3").is_file());
        match interpreter().and_then(|program| Path::new(program).parent()) {
            Some(own) if first.as_deref() != Some(own) => {
                let folders = [own.to_path_buf()].into_iter().chain(env::split_paths(&path));
                env::join_paths(folders).unwrap_or(path)
            }
            Some(_) | None => path,
        }
    })
}

fn interpreter() -> Option<&'static str> {
    static INTERPRETER: OnceLock<Option<String>> = OnceLock::new();
    let find = || {
        let ask = ["-c", "import sys; print(sys.executable, end='')"];
        let told = Command::new("python3").args(ask).output().ok()?;
        let program = String::from_utf8(told.stdout).ok()?;
        // Commands find it there by its usual name.
        let is_usual = Path::new(&program).with_file_name("python3").is_file();
        is_usual.then_some(program)
    };
    INTERPRETER.get_or_init(find).as_deref()
}
