//! Recognises `sed` scripts that only edit text: others run commands or write further files.

use super::splitter::ShellWord;

/// The files that a plain `sed` reads and, with `-i`, changes.
pub(super) fn sed_files(rest: &[ShellWord]) -> Option<Vec<&str>> {
    let (mut scripts, mut others) = (Vec::new(), Vec::new());
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        let text = word.plain.as_str();
        match text {
            "-e" | "-ne" => scripts.push(words.next().filter(|script| !script.globs)?),
            "-n" | "-i" | "-E" | "-r" | "-s" | "-z" | "-ni" | "-Ei" | "-En" | "-nE" => {}
            // A pattern may expand to any flag.
            _ if text.starts_with('-') || word.globs && text.starts_with(['*', '?', '[']) => {
                return None;
            }
            _ => others.push(word),
        }
    }
    if scripts.is_empty() {
        // The first word is the script, unless a flag supplies one.
        let first = (!others.is_empty()).then(|| others.remove(0));
        scripts.push(first.filter(|script| !script.globs)?);
    }
    let files = || others.iter().map(|word| word.plain.as_str()).collect();
    scripts.iter().all(|script| is_plain(&script.plain)).then(files)
}

/// Whether a script may run a command: `e` after an address, or as a flag of `s`.
pub(super) fn may_run_command(script: &str) -> bool {
    if script.starts_with('-') {
        return script.starts_with("-e") || script.starts_with("--expr");
    }
    let is_address = |letter: char| !letter.is_ascii_alphabetic() || letter == 'I';
    script.split([';', '\n', '{', '}']).any(|command| {
        let after_text = command.trim_start().strip_prefix('/');
        let address = after_text.and_then(|rest| rest.split_once('/')).map(|(_, rest)| rest);
        let command = address.unwrap_or(command).trim_start_matches(is_address);
        let flags = command.strip_prefix('s').and_then(|change| {
            let mark = change.chars().next()?;
            change.rsplit(mark).next()
        });
        command.starts_with('e') || flags.is_some_and(|flags| flags.contains('e'))
    })
}

/// `5,9p`, `/x/d` or `s/a/b/g`.
fn is_plain(script: &str) -> bool {
    let lines = |letter: char| letter.is_ascii_digit() || matches!(letter, ',' | '$');
    let command = script.trim_start_matches(lines);
    if matches!(command, "p" | "d" | "q") {
        return true;
    }
    if let Some(sought) = command.strip_prefix('/') {
        let end = sought.split_once('/');
        return end.is_some_and(|(sought, then)| {
            !sought.contains(['\\', '\n', '[']) && matches!(then, "p" | "d")
        });
    }
    let Some(change) = command.strip_prefix('s') else { return false };
    let Some(mark) = change.chars().next().filter(char::is_ascii_punctuation) else { return false };
    if matches!(mark, '\\' | '[' | ']') || change.contains('\n') {
        return false;
    }
    let parts: Vec<&str> = change.split(mark).collect();
    let escaped = change.contains(&format!("\\{mark}")) || change.contains('[');
    match parts.as_slice() {
        ["", _, _, flags] => {
            !escaped && flags.chars().all(|flag| "gpiI".contains(flag) || flag.is_ascii_digit())
        }
        _ => false,
    }
}
