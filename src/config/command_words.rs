//! Finds the parts of a command that may name files. Pure.

/// Characters that end a word of a command line.
const BETWEEN_WORDS: &str = ";|&<>(){}=,: \t\r\n";

/// Characters that quote others.
const QUOTES: [char; 3] = ['"', '\'', '\\'];

/// Ways to write the working folder in a command line, longer ones before those that they contain.
const WORKING_FOLDER: [&str; 8] = [
    "${CLAUDE_PROJECT_DIR:-$(pwd)}",
    "${CLAUDE_PROJECT_DIR:-${PWD}}",
    "${CLAUDE_PROJECT_DIR:-$PWD}",
    "${CLAUDE_PROJECT_DIR:-.}",
    "${CLAUDE_PROJECT_DIR}",
    "${PWD}",
    "$(pwd)",
    "`pwd`",
];

/// Ways to write the root of the repository in a command line.
const ROOT: [&str; 2] = ["$(git rev-parse --show-toplevel)", "`git rev-parse --show-toplevel`"];

/// Placeholder for a value that is not known.
const UNKNOWN: char = '\0';

/// The maximum number of words of one command, so that its parts are few enough to look up each.
const WORDS_MAX: usize = 200;

/// Returns the parts of a command that may name files: all that start and end at the boundaries of
/// words, since quotes join words. `root` is the path of the repository's root relative to the
/// working folder. `None`: the command may name files by wildcards, or by values that are not known
/// before it runs.
pub(super) fn file_names(command: &str, root: &str) -> Option<Vec<String>> {
    let resolved = resolve(command, root)?;
    let unquoted = resolved.replace(QUOTES, "");
    let words = words(&unquoted);
    let is_plain = words.iter().all(|&(start, end)| is_plain_word(&unquoted[start..end]));
    if words.len() > WORDS_MAX || !is_plain || joins_results(&unquoted) {
        return None;
    }
    let parts = words
        .iter()
        .enumerate()
        .flat_map(|(first, &(start, _))| words[first..].iter().map(move |&(_, end)| (start, end)));
    let mut names: Vec<String> = parts.map(|(start, end)| unquoted[start..end].into()).collect();
    // A name may contain quotes itself.
    names.extend(QUOTES.iter().flat_map(|quote| resolved.split(*quote)).map(ToOwned::to_owned));
    names.retain(|name| !name.is_empty() && !name.contains(UNKNOWN));
    Some(names)
}

/// Replaces the known folders by their paths, and the values of other variables and of commands by
/// [`UNKNOWN`]. `None`: the command computes such a value in a way that is not parsed.
fn resolve(command: &str, root: &str) -> Option<String> {
    let text = ROOT.iter().fold(command.to_owned(), |text, way| text.replace(way, root));
    let text = WORKING_FOLDER.iter().fold(text, |text, way| text.replace(way, "."));
    let mut resolved = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once('$') {
        resolved.push_str(before);
        let (value, unread) = value(after)?;
        resolved.push(value);
        rest = unread;
    }
    resolved.push_str(rest);
    (!resolved.contains('`')).then_some(resolved)
}

/// Returns the value that replaces a variable, and the text after the variable. `text` begins after
/// the `$`.
fn value(text: &str) -> Option<(char, &str)> {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    if let Some(braced) = text.strip_prefix('{') {
        let (name, rest) = braced.split_once('}')?;
        return (!name.is_empty() && name.chars().all(is_name)).then_some((UNKNOWN, rest));
    }
    // The number of a parameter has one digit.
    if let Some(rest) =
        text.strip_prefix(|one: char| "@*#?!$-".contains(one) || one.is_ascii_digit())
    {
        return Some((UNKNOWN, rest));
    }
    let (name, rest) = text.split_at(text.find(|one| !is_name(one)).unwrap_or(text.len()));
    match name {
        "CLAUDE_PROJECT_DIR" | "PWD" => Some(('.', rest)),
        "" if text.starts_with('(') => Some((UNKNOWN, rest)),
        // A quoted text with escapes, such as `$'\143heck.sh'`, unlike a `$` at the end of a quoted
        // text, as in `'\.ts$'`.
        "" if text.starts_with(QUOTES) && begins_word(text.trim_start_matches(QUOTES)) => None,
        "" => Some(('$', rest)),
        _ => Some((UNKNOWN, rest)),
    }
}

fn is_between(letter: char) -> bool {
    BETWEEN_WORDS.contains(letter)
}

/// Returns true if a text begins with a word.
fn begins_word(text: &str) -> bool {
    text.starts_with(|letter| !is_between(letter))
}

/// Returns the start and the end of each word of a text.
fn words(text: &str) -> Vec<(usize, usize)> {
    let mut words = Vec::new();
    let mut start = 0;
    for part in text.split_inclusive(is_between) {
        let word = part.strip_suffix(is_between).unwrap_or(part);
        if !word.is_empty() {
            words.push((start, start + word.len()));
        }
        start += part.len();
    }
    words
}

/// Returns true if a word is neither a pattern of file names nor a path in the home folder, and has
/// no part that is not known.
fn is_plain_word(word: &str) -> bool {
    let is_pattern = word.contains(['*', '?', '[']) && !["[", "[["].contains(&word);
    let has_unknown = word.contains(UNKNOWN) && word.chars().nth(1).is_some();
    !is_pattern && !has_unknown && !word.starts_with('~')
}

/// Returns true if the output of a command, or one of the alternatives in braces, is only a part of
/// a word.
fn joins_results(unquoted: &str) -> bool {
    let places = |sign: char| unquoted.match_indices(sign).map(|(at, _)| at);
    let is_followed = |sign: char| places(sign).any(|at| begins_word(&unquoted[at + 1..]));
    let opens_within = places('{').any(|at| unquoted[..at].ends_with(|one| !is_between(one)));
    // Other languages than that of the shell also have text after the arguments of a function.
    let has_output = unquoted.contains("\0(");
    opens_within || is_followed('}') || (has_output && is_followed(')'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_found_however_a_command_quotes_them() {
        for (command, name) in [
            ("./check.sh", "./check.sh"),
            ("\"$CLAUDE_PROJECT_DIR\"/check.sh --quick", "./check.sh"),
            ("\"${CLAUDE_PROJECT_DIR}/check.sh\"", "./check.sh"),
            ("${CLAUDE_PROJECT_DIR:-.}/check.sh", "./check.sh"),
            ("${CLAUDE_PROJECT_DIR:-${PWD}}/check.sh", "./check.sh"),
            ("${CLAUDE_PROJECT_DIR:-$PWD}/check.sh", "./check.sh"),
            ("${CLAUDE_PROJECT_DIR:-$(pwd)}/check.sh", "./check.sh"),
            ("$PWD/check.sh", "./check.sh"),
            ("${PWD}/check.sh", "./check.sh"),
            ("`pwd`/check.sh", "./check.sh"),
            ("$(git rev-parse --show-toplevel)/check.sh", "../../check.sh"),
            ("`git rev-parse --show-toplevel`/check.sh", "../../check.sh"),
            ("./a\\ b.sh --quick", "./a b.sh"),
            ("cd x && './a b.sh'", "./a b.sh"),
            ("bash -c \"sh -c './a\\\\ b.sh; x'\"", "./a b.sh"),
            ("./ch\"eck\".sh; ./ch\\eck.sh", "./check.sh"),
            ("\"./it's.sh\"", "./it's.sh"),
            ("x '{it.sh}'", "{it.sh}"),
            ("'it, it.sh' x", "it, it.sh"),
            ("x=check.sh y", "check.sh"),
            ("for f in a.sh \"$@\"; do \"$f\" || exit $?; done", "a.sh"),
            ("PATH=$PATH:.claude check.sh", ".claude"),
            ("f=$(jq -r .tool_input.file_path) && prettier \"$f\"", "prettier"),
            ("sh -c \"$(cat list)\"", "list"),
            ("grep -q '\\.ts$' && ./check.sh", "./check.sh"),
            ("grep -q 'a$|b$' ./list; sh -c \"grep -q 'a$'\"", "./list"),
            ("jq 'map(.a).b' \"$f\" ./list", "./list"),
            ("[ -f x ] && [[ -n $y ]] && ./check.sh", "./check.sh"),
            ("echo '{\"decision\":\"block\",\"a\":{\"b\":1}}'", "block"),
            ("awk '{print $1}' ./list", "./list"),
            ("./a.sh $", "./a.sh"),
        ] {
            let names =
                file_names(command, "../..").unwrap_or_else(|| panic!("{command} is plain"));
            assert!(names.iter().any(|one| one == name), "{command}: {names:?}");
        }
    }

    #[test]
    fn commands_that_compute_names_of_files_are_refused() {
        for command in [
            "./hooks/*.sh",
            "sh check.??",
            "sh [a-c].sh",
            "sh -c './hooks/*.sh'",
            "~/app/check.sh",
            "cd ~ && ./check.sh",
            "PATH=~/app/.claude check.sh",
            "$DIR/check.sh",
            "\"$DIR\"/check.sh",
            "\"$DIR\"check",
            "./check$X",
            "$1.sh",
            "$1x",
            "${DIR}/check.sh",
            "${CLAUDE_PROJECT_DIR:-/srv}/check.sh",
            "${CLAUDE_PROJECT_DIR%/*}/check.sh",
            "${SCRIPT:-./check.sh}",
            "${X",
            "${}",
            "$PWD_OF_OTHERS/check.sh",
            "$(dirname \"$0\")/check.sh",
            "\"$(dirname x)\"/check.sh",
            "./$(echo check).sh",
            "./$(echo check.sh)",
            "x `dirname x`",
            "$'\\143heck.sh'",
            "$'\\x63heck'",
            "x $\"check\"",
            "./{a,b}",
            "{a,b}.sh",
            "sh {1..3}.sh",
        ] {
            assert_eq!(file_names(command, "."), None, "{command}");
        }
        assert!(file_names(&"x ".repeat(WORDS_MAX), ".").is_some());
        assert_eq!(file_names(&"x ".repeat(WORDS_MAX + 1), "."), None);
    }
}
