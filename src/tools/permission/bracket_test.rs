//! Recognises bracket tests that only read or compare.

use super::splitter::{self, NotUnderstood, ShellWord, SimpleCommand};

const ODD: NotUnderstood = NotUnderstood("it has an unusual test");

/// The equivalent command of `[ -f x ]` or `[[ -f x ]]`, as words. `None` if the test only
/// compares.
///
/// # Errors
/// The test may run code: a numeric comparison evaluates substitutions in subscripts.
pub(super) fn words(text: &str) -> Result<Vec<ShellWord>, NotUnderstood> {
    let within = text.strip_prefix("[[").and_then(|rest| rest.strip_suffix("]]"));
    // Keywords are not special after the first word.
    let told = within.map_or_else(|| text.to_owned(), |within| format!("test {within}"));
    let parts = splitter::split(&told)?;
    let [SimpleCommand { words, writes, reads, .. }] = parts.as_slice() else { return Err(ODD) };
    if !writes.is_empty() || !reads.is_empty() {
        return Err(ODD);
    }
    if within.is_none() {
        return Ok(words.clone());
    }
    let plain: Vec<&str> = words[1..].iter().map(|word| word.raw.as_str()).collect();
    let plain = plain.strip_prefix(&["!"]).unwrap_or(&plain);
    match plain {
        ["-n" | "-z", _] | [_, "=" | "==" | "!=" | "=~", _] => Ok(Vec::new()),
        ["-e" | "-f" | "-d" | "-r" | "-w" | "-x" | "-s" | "-L" | "-h", _] => Ok(words.clone()),
        _ => Err(ODD),
    }
}
