//! Shows a text in the user's pager.

use std::convert::Infallible;
use std::io::{self, IsTerminal, Seek, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// The default pager.
const DEFAULT: &str = "less";

/// Options of the default pager: a text that fits is printed, colours are shown, and the text stays
/// on the screen afterwards.
const LESS: &str = "FRX";

/// Replaces this process by the pager, which reads the text as its standard input. No process of
/// outlast remains that a key for the pager, such as Ctrl-C, could end.
///
/// # Errors
/// There is no pager, or no user to use it. The caller then prints the text.
pub(super) fn replace_by_pager(
    text: &str,
    named: Option<String>,
    has_less_options: bool,
) -> io::Result<Infallible> {
    // A pager waits for keys. Without a user, it would wait for ever.
    if !io::stdin().is_terminal() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let command = named.unwrap_or_else(|| DEFAULT.to_owned());
    let program = command.split_whitespace().next().unwrap_or_default();
    if program.is_empty() || program == "cat" || which::which(program).is_err() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let mut file = tempfile::tempfile()?;
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    let mut pager = Command::new("/bin/sh");
    pager.args(["-c", &command]).stdin(Stdio::from(file));
    if !has_less_options {
        pager.env("LESS", LESS);
    }
    Err(pager.exec())
}
