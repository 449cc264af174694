//! Interpretations of a glob pattern: a list, a folder, or literal brackets. Pure.

use std::borrow::Cow;

/// Splits a pattern into its literal folder and the rest: `/etc/**/*.conf` searches `/etc`.
pub(super) fn split_folder(pattern: &str) -> (&str, &str) {
    if pattern.starts_with('!') || alternatives(pattern).len() > 1 {
        return ("", pattern);
    }
    let special = pattern.find(['*', '?', '[', '{', '\\']).unwrap_or(pattern.len());
    match pattern[..special].rfind('/') {
        Some(0) => ("/", &pattern[1..]),
        Some(end) => (&pattern[..end], &pattern[end + 1..]),
        None => ("", pattern),
    }
}

/// Returns the pattern itself, which could be one name, and the parts of a list such as
/// `*.ts,*.tsx`. Commas in braces do not separate parts; nor do blanks, unless each part has a
/// wildcard.
pub(super) fn alternatives(pattern: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let mut is_outside = |letter: char| {
        match letter {
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0
    };
    let parts: Vec<&str> = pattern
        .split(|letter: char| {
            let is_outside = is_outside(letter);
            is_outside && letter == ','
        })
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect();
    let words: Vec<&str> = pattern.split_whitespace().collect();
    let is_list = |parts: &[&str]| parts.len() > 1;
    if is_list(&parts) {
        return [pattern].into_iter().chain(parts).collect();
    }
    if is_list(&words) && words.iter().all(|word| word.contains('*')) {
        return [pattern].into_iter().chain(words).collect();
    }
    vec![pattern]
}

/// Returns the pattern itself, and variants with brackets and braces, or backslashes, as literal
/// characters: a folder may be called `[slug]`.
pub(super) fn readings(pattern: &str) -> Vec<Cow<'_, str>> {
    let mut readings = vec![Cow::Borrowed(pattern)];
    // With a backslash, the pattern itself marks the literal ones.
    if pattern.contains('\\') {
        readings.push(Cow::Owned(escaped(pattern, &['\\'])));
        return readings;
    }
    let (has_brackets, has_braces) = (pattern.contains(['[', ']']), pattern.contains(['{', '}']));
    if has_brackets {
        readings.push(Cow::Owned(escaped(pattern, &['[', ']'])));
    }
    if has_braces {
        readings.push(Cow::Owned(escaped(pattern, &['{', '}'])));
    }
    if has_brackets && has_braces {
        readings.push(Cow::Owned(escaped(pattern, &['[', ']', '{', '}'])));
    }
    readings
}

/// Adds forms of one pattern. An error counts only if no form is valid.
pub(super) fn add_valid<E>(
    forms: impl Iterator<Item = String>,
    mut add: impl FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    let (valid, errors): (Vec<_>, Vec<_>) = forms.map(|form| add(&form)).partition(Result::is_ok);
    if valid.is_empty() { errors.into_iter().collect() } else { Ok(()) }
}

/// The pattern with a backslash before each of these letters.
pub(super) fn escaped(pattern: &str, letters: &[char]) -> String {
    pattern.chars().fold(String::new(), |mut escaped, letter| {
        escaped.extend(letters.contains(&letter).then_some('\\'));
        escaped.push(letter);
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_begins_in_its_literal_folder() {
        for (pattern, folder, rest) in [
            ("/etc/**/*.conf", "/etc", "**/*.conf"),
            ("/*.x", "/", "*.x"),
            ("~/a/*", "~/a", "*"),
            ("src/*.rs", "src", "*.rs"),
            ("../dir/*", "../dir", "*"),
            ("./a/b.rs", "./a", "b.rs"),
            ("app/[slug]/page.tsx", "app", "[slug]/page.tsx"),
            ("a\\*/b", "", "a\\*/b"),
            ("**/a/b", "", "**/a/b"),
            ("*.rs", "", "*.rs"),
            ("!a/b", "", "!a/b"),
            ("a/*.ts,b/*.ts", "", "a/*.ts,b/*.ts"),
            ("src/", "src", ""),
        ] {
            assert_eq!(split_folder(pattern), (folder, rest), "{pattern}");
        }
    }

    #[test]
    fn a_list_of_patterns_is_taken_apart() {
        let table: [(&str, &[&str]); 7] = [
            ("*.ts,*.tsx", &["*.ts", "*.tsx"]),
            ("*.ts, !*.d.ts", &["*.ts", "!*.d.ts"]),
            ("*.ts *.tsx", &["*.ts", "*.tsx"]),
            ("my file*.txt", &[]),
            ("*.{ts,tsx}", &[]),
            ("[a,b].ts", &[]),
            ("{a,b},c", &["{a,b}", "c"]),
        ];
        for (pattern, parts) in table {
            assert_eq!(alternatives(pattern)[0], pattern);
            assert_eq!(&alternatives(pattern)[1..], parts, "{pattern}");
        }
    }

    #[test]
    fn brackets_and_braces_may_be_plain_letters() {
        assert_eq!(readings("a*"), ["a*"]);
        assert_eq!(readings("[a]/*"), ["[a]/*", "\\[a\\]/*"]);
        assert_eq!(readings("\\[a]"), ["\\[a]", "\\\\[a]"]);
        assert_eq!(readings("{a}[b]"), ["{a}[b]", "{a}\\[b\\]", "\\{a\\}[b]", "\\{a\\}\\[b\\]"]);
    }
}
