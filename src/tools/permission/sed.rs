//! Knows the scripts of `sed` that do nothing but change the text: others run commands or write
//! files of their own.

use super::script::Word;

/// The files that a plain `sed` reads and, with `-i`, changes.
pub(super) fn files(rest: &[Word]) -> Option<Vec<&str>> {
    let mut scripts = 0_u32;
    let mut files = Vec::new();
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        let text = word.plain.as_str();
        if word.globs && (scripts == 0 || text.starts_with(['*', '?', '['])) && word.raw == text {
            // A pattern may come to be any flag, or any script.
            return None;
        }
        match text {
            "-e" | "-ne" | "-ie" => {
                is_plain(&words.next()?.plain).then_some(())?;
                scripts += 1;
            }
            "-n" | "-i" | "-E" | "-r" | "-s" | "-z" | "-ni" | "-Ei" | "-En" | "-nE" => {}
            _ if text.starts_with('-') => return None,
            _ if scripts == 0 => {
                is_plain(text).then_some(())?;
                scripts += 1;
            }
            _ => files.push(text),
        }
    }
    (scripts > 0).then_some(files)
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
