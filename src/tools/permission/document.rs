//! Removes here-documents from a script, where they can be recognised safely.

use super::splitter::NotUnderstood;

/// Returns the script without its here-document, if the document is plain data.
///
/// # Errors
/// The here-document is not simple enough to be sure where it ends or what it does. Accepted is one
/// here-document, after plain words, with a plain delimiter, and without substitutions unless the
/// delimiter is quoted.
pub(super) fn without_document(script: &str) -> Result<String, NotUnderstood> {
    let unsure = NotUnderstood("it contains an unusual here-document");
    let lone = script.replace("<<<", "\u{1}\u{1}\u{1}");
    let Some(at) = lone.find("<<") else { return Ok(script.to_owned()) };
    let (before, rest) = (&script[..at], &script[at + 2..]);
    let (head, body) = rest.split_once('\n').ok_or(unsure)?;
    let named = head.trim_start_matches(' ');
    let quote = named.chars().next().filter(|first| matches!(first, '\'' | '"'));
    let named = &named[quote.map_or(0, char::len_utf8)..];
    let end = named.find(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    let (name, after) = named.split_at(end.unwrap_or(named.len()));
    let after = quote.map_or(Some(after), |quote| after.strip_prefix(quote)).ok_or(unsure)?;
    let lines = body.split_inclusive('\n').scan(0, |at, line| {
        let start = *at;
        *at += line.len();
        Some((start, line))
    });
    let mut ends = lines.filter(|(_, line)| line.strip_suffix('\n').unwrap_or(line) == name);
    let (end, last) = ends.next().ok_or(unsure)?;
    let (said, left) = (&body[..end], &body[end + last.len()..]);
    let odd = |text: &str| text.contains(['#', '\'', '"', '\\', '`', '(']);
    let fine = !name.is_empty()
        && (after.is_empty() || after.starts_with([' ', ';', '|', '>']))
        && !odd(before)
        && !odd(after)
        && !left.contains("<<")
        && !after.contains("<<")
        && (quote.is_some() || is_plain_data(said));
    if fine { Ok(format!("{before} {after}\n{left}")) } else { Err(unsure) }
}

/// Whether the shell expands nothing in a text but plain variables.
fn is_plain_data(text: &str) -> bool {
    let mut dollars = text.split('$');
    let first = dollars.next().unwrap_or_default();
    !text.contains(['`', '\\'])
        && !first.contains('`')
        && dollars.all(|after| {
            let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            match after.strip_prefix('{') {
                Some(braced) => braced.trim_start_matches(is_name).starts_with('}'),
                None => !after.starts_with(['(', '[']),
            }
        })
}
