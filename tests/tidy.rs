//! Rules of this repository that the compiler does not check: layers, purity, sizes, words, names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

mod circles;

/// Top-level modules, lowest layer first. A module may use only modules of lower layers: not its
/// siblings, and nothing above. Between crates this is up to Cargo.
const LAYERS: [&[&str]; 9] = [
    &["json", "text", "types"],
    &["pacing", "recovery", "secrets", "sse", "transcript"],
    &["connect_error", "response_body"],
    &["model", "tools", "mcp", "hooks", "journal"],
    &["config", "history"],
    &["agent"],
    &["messages"],
    &["batch", "checkout", "doctor", "host", "report", "telemetry"],
    &["cli"],
];

/// Members of the workspace that are one layer as a whole.
const CRATES: [&str; 2] = ["process", "rehearsal"];

/// Modules that must stay free of clocks, chance, and the outside world.
const PURE: [&str; 8] =
    ["json", "pacing", "recovery", "secrets", "sse", "text", "transcript", "types"];
const IMPURE_NAMES: [&str; 4] = ["Instant", "SystemTime", "async", "await"];
const IMPURE_PATHS: [&str; 6] =
    ["std::fs", "std::env", "std::net", "std::process", "std::thread", "std::io"];

const SOURCE_LINES_MAX: usize = 600;
const TEST_LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 80;

/// Markers of unfinished work, in comments.
const PROMISES: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
/// Markers of unfinished work, as macros.
const GAPS: [&str; 2] = ["todo!", "unimplemented!"];

/// Pronouns that hide the subject of a sentence: it is a component, the user, the model or the server.
const PRONOUNS: [&str; 4] = [
    concat!("who", "ever"),
    concat!("no", "body"),
    concat!("some", "body"),
    concat!("any", "body"),
];
/// Folders and files whose whole text is checked for them.
const PROSE: [&str; 8] =
    ["src", "tests", "man", "ci", ".ci", ".github", "README.md", "CHANGELOG.md"];

/// The share of top-level type names, in percent, that may stand in two files or more.
const HOMONYMS_MAX: usize = 5;

// --- a small lexer of Rust ------------------------------------------------------------

/// One line: its code with the insides of strings left out, and its comment.
#[derive(Debug, Default, Clone, PartialEq)]
struct Line {
    code: String,
    comment: String,
}

/// The state of the lexer.
#[derive(Clone, Copy, PartialEq)]
enum Within {
    Code,
    LineComment,
    BlockComment,
    Text,
    RawText { hashes: usize },
}

fn lines_of(text: &str) -> Vec<Line> {
    let chars: Vec<char> = text.chars().collect();
    let (mut lines, mut within, mut at) = (vec![Line::default()], Within::Code, 0);
    while at < chars.len() {
        let (one, two) = (chars[at], chars.get(at + 1).copied().unwrap_or(' '));
        let mut step = 1;
        let line = lines.last_mut().expect("there is always a line");
        match within {
            _ if one == '\n' => {
                lines.push(Line::default());
                if within == Within::LineComment {
                    within = Within::Code;
                }
            }
            Within::Code if one == '/' && two == '/' => within = Within::LineComment,
            Within::Code if one == '/' && two == '*' => within = Within::BlockComment,
            Within::Code => {
                let hashes = raw_hashes(&chars, at);
                line.code.push(one);
                if let Some(hashes) = hashes {
                    (within, step) = (Within::RawText { hashes }, hashes + 2);
                } else if one == '"' {
                    within = Within::Text;
                } else if one == '\'' {
                    step = char_length(&chars, at);
                }
            }
            Within::LineComment => line.comment.push(one),
            Within::BlockComment => {
                line.comment.push(one);
                if one == '*' && two == '/' {
                    (within, step) = (Within::Code, 2);
                }
            }
            Within::Text if one == '\\' && two != '\n' => step = 2,
            Within::Text if one == '"' => {
                line.code.push(one);
                within = Within::Code;
            }
            Within::RawText { hashes } if one == '"' && ends_raw(&chars, at, hashes) => {
                (within, step) = (Within::Code, hashes + 1);
            }
            Within::Text | Within::RawText { .. } => {}
        }
        at += step;
    }
    lines
}

/// The number of hashes of a raw string that starts here, if one does.
fn raw_hashes(chars: &[char], at: usize) -> Option<usize> {
    let starts_word = at == 0 || !is_of_name(chars[at - 1]) || chars[at - 1] == 'b';
    if chars[at] != 'r' || !starts_word {
        return None;
    }
    let hashes = chars[at + 1..].iter().take_while(|&&one| one == '#').count();
    (chars.get(at + 1 + hashes) == Some(&'"')).then_some(hashes)
}

fn ends_raw(chars: &[char], at: usize, hashes: usize) -> bool {
    chars[at + 1..].iter().take(hashes).filter(|&&one| one == '#').count() == hashes
}

/// Length of the character literal that starts here; 1 for a lifetime.
fn char_length(chars: &[char], at: usize) -> usize {
    let closes = |offset: usize| chars.get(at + offset) == Some(&'\'');
    if chars.get(at + 1) == Some(&'\\') {
        (3..12).find(|&offset| closes(offset)).map_or(1, |offset| offset + 1)
    } else if closes(2) {
        3
    } else {
        1
    }
}

fn is_of_name(one: char) -> bool {
    one.is_alphanumeric() || one == '_'
}

/// Names and signs, each with the number of its line. `::` is one sign.
fn tokens_of(lines: &[Line]) -> Vec<(usize, &str)> {
    let mut tokens = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let mut rest = line.code.as_str();
        while let Some(first) = rest.chars().next() {
            let length = if is_of_name(first) {
                rest.find(|one| !is_of_name(one)).unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            let (token, after) = rest.split_at(length);
            if !token.trim().is_empty() {
                tokens.push((number, token));
            }
            rest = after;
        }
    }
    tokens
}

/// Every path in the code, with braces multiplied out: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn paths_of<'a>(tokens: &[(usize, &'a str)]) -> Vec<(usize, Vec<&'a str>)> {
    let (mut paths, mut at) = (Vec::new(), 0);
    while at < tokens.len() {
        at = read_path(tokens, at, &[], &mut paths).max(at + 1);
    }
    paths
}

/// Reads the path that starts at `at` and returns where it ends.
fn read_path<'a>(
    tokens: &[(usize, &'a str)],
    mut at: usize,
    before: &[&'a str],
    paths: &mut Vec<(usize, Vec<&'a str>)>,
) -> usize {
    let token = |at: usize| tokens.get(at).map_or("", |(_, token)| *token);
    let (start, mut path) = (at, before.to_vec());
    while token(at).starts_with(is_of_name) {
        path.push(token(at));
        at += 1;
        if token(at) != "::" {
            paths.push((tokens[start].0, path));
            return at;
        }
        at += 1;
    }
    if token(at) == "{" && path.len() > before.len() {
        at += 1;
        while at < tokens.len() && token(at) != "}" {
            at = read_path(tokens, at, &path, paths).max(at + 1);
        }
        return at + 1;
    }
    if path.len() > before.len() {
        paths.push((tokens[start].0, path));
    }
    at
}

/// The path from the crate's root that `path` means in the module `here`.
fn from_root<'a>(path: &[&'a str], here: &[&'a str]) -> Option<Vec<&'a str>> {
    let rest = path.iter().skip_while(|name| matches!(**name, "super" | "self"));
    match *path.first()? {
        "crate" => Some(path[1..].to_vec()),
        "super" => {
            let up = path.iter().take_while(|name| **name == "super").count();
            let base = here.iter().take(here.len().saturating_sub(up));
            Some(base.chain(rest).copied().collect())
        }
        _ => None,
    }
}

// --- the rules ------------------------------------------------------------------------------------

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// `model/headers.rs` is `["model", "headers"]`, and `model/mod.rs` is `["model"]`. The modules of
/// the crate in `core` are named as if they were here.
fn module_of(path: &Path) -> Vec<&str> {
    let names = path.iter().filter_map(|name| name.to_str());
    names
        .map(|name| name.trim_end_matches(".rs"))
        .filter(|&name| !matches!(name, "core" | "mod"))
        .collect()
}

/// The paths in the code of a file, with the numbers of their lines.
type Paths<'a> = [(usize, Vec<&'a str>)];

fn check_layers(path: &Path, paths: &Paths<'_>, faults: &mut Vec<(usize, String)>) {
    let here = module_of(path);
    let Some(&module) = here.first() else { return };
    if matches!(module, "build" | "lib" | "main") || CRATES.contains(&module) {
        return;
    }
    let Some(layer) = layer_of(module) else {
        faults.push((0, format!("`{module}` is in no layer")));
        return;
    };
    for (number, used) in paths {
        let Some(used) = from_root(used, &here) else { continue };
        let Some(used) = used.first().filter(|used| **used != module) else { continue };
        if layer_of(used).is_some_and(|below| below >= layer) {
            faults.push((*number, format!("`{module}` may not use `{used}`: it is not below it")));
        }
    }
}

fn check_purity(path: &Path, paths: &Paths<'_>, faults: &mut Vec<(usize, String)>) {
    let module = module_of(path).first().copied().unwrap_or_default();
    if !PURE.contains(&module) {
        return;
    }
    for (number, used) in paths {
        let whole = used.join("::");
        let impure = IMPURE_PATHS.iter().any(|impure| whole.starts_with(impure));
        if impure || used.iter().any(|name| IMPURE_NAMES.contains(name)) {
            faults.push((*number, format!("`{whole}` is impure, in the pure module `{module}`")));
        }
    }
}

fn check_functions(lines: &[Line], faults: &mut Vec<(usize, String)>) {
    let indent = |line: &Line| line.code.len() - line.code.trim_start().len();
    let opens = |line: &Line| {
        let words: Vec<&str> = line.code.split_whitespace().collect();
        words.contains(&"fn") && !line.code.trim_end().ends_with(['}', ';'])
    };
    for (start, line) in lines.iter().enumerate().filter(|(_, line)| opens(line)) {
        let closes = |other: &&Line| {
            let bare = other.code.trim();
            indent(other) == indent(line) && (bare == "}" || bare.ends_with(';'))
        };
        let length = lines[start..].iter().skip(1).position(|other| closes(&other));
        let length = length.map_or(0, |length| length + 2);
        if length > FUNCTION_LINES_MAX {
            let what = format!("a function of {length} lines; at most {FUNCTION_LINES_MAX}");
            faults.push((start, what));
        }
    }
}

fn check_words(text: &str, lines: &[Line], faults: &mut Vec<(usize, String)>) {
    if !text.starts_with("//! ") {
        faults.push((0, "the file does not start by saying what it is (`//!`)".to_owned()));
    }
    for (number, line) in lines.iter().enumerate() {
        let squeezed: String = line.code.split_whitespace().collect();
        if squeezed.contains("#[allow(") || squeezed.contains("#![allow(") {
            faults.push((number, "`allow`: write `expect`, with a reason".to_owned()));
        }
        let gaps = GAPS.iter().filter(|gap| squeezed.contains(**gap));
        let mut words = line.comment.split(|one| !is_of_name(one));
        let promises = words.by_ref().filter(|word| PROMISES.contains(word));
        for word in gaps.copied().chain(promises) {
            faults.push((number, format!("`{word}`: do it, or record it elsewhere")));
        }
    }
}

/// The violations in a file below `src`.
fn faults_in_source(path: &Path, text: &str) -> Vec<(usize, String)> {
    let (lines, mut faults) = (lines_of(text), Vec::new());
    check_length(text, SOURCE_LINES_MAX, &mut faults);
    check_words(text, &lines, &mut faults);
    let paths = paths_of(&tokens_of(&lines));
    check_layers(path, &paths, &mut faults);
    check_purity(path, &paths, &mut faults);
    check_functions(&lines, &mut faults);
    faults.sort();
    faults.dedup();
    faults
}

/// The violations in a file below `tests`.
fn faults_in_test(text: &str) -> Vec<(usize, String)> {
    let mut faults = Vec::new();
    check_length(text, TEST_LINES_MAX, &mut faults);
    check_words(text, &lines_of(text), &mut faults);
    faults
}

fn check_length(text: &str, most: usize, faults: &mut Vec<(usize, String)>) {
    let length = text.lines().count();
    if length > most {
        faults.push((0, format!("{length} lines; at most {most}")));
    }
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the source is readable") {
        let path = entry.expect("the source is readable").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn the_source_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut seen, mut faults) = (0, Vec::new());
    for folder in ["src", "tests"] {
        let mut paths = Vec::new();
        rust_files(&root.join(folder), &mut paths);
        seen += paths.len();
        for path in paths {
            let text = fs::read_to_string(&path).expect("the source is readable");
            let below = path.strip_prefix(root.join(folder)).expect("found below it");
            let found = match folder {
                "src" => faults_in_source(below, &text),
                _ => faults_in_test(&text),
            };
            for (line, what) in found {
                faults.push(format!("{folder}/{}:{}: {what}", below.display(), line + 1));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    assert!(seen > 30, "only {seen} files were looked at");
}

/// The line, counted from 1, and the word of each pronoun of `PRONOUNS` in `text`.
fn pronouns_in(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let words = line.split(|one: char| !one.is_alphabetic());
        let is_pronoun = |word: &&str| PRONOUNS.iter().any(|one| one.eq_ignore_ascii_case(word));
        let pronouns = words.filter(is_pronoun);
        found.extend(pronouns.map(|word| (number + 1, word.to_lowercase())));
    }
    found
}

fn all_files(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("the folder is readable") {
            all_files(&entry.expect("the folder is readable").path(), found);
        }
    } else if path.exists() {
        found.push(path.to_owned());
    }
}

#[test]
fn source_tests_help_and_documentation_name_their_subjects() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    for place in PROSE {
        all_files(&root.join(place), &mut paths);
    }
    let mut faults = Vec::new();
    for path in &paths {
        let text =
            String::from_utf8_lossy(&fs::read(path).expect("the file is readable")).into_owned();
        let below = path.strip_prefix(root).expect("found below it").display();
        faults.extend(
            pronouns_in(&text).into_iter().map(|(line, word)| format!("{below}:{line}: `{word}`")),
        );
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    assert!(paths.len() > 300, "only {} files were read", paths.len());
}

/// The names of the types that a file defines at its top level.
fn types_of(lines: &[Line]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for line in lines.iter().filter(|line| !line.code.starts_with(char::is_whitespace)) {
        let code = line.code.replace('(', " (").replace('<', " <");
        let mut words = code.split_whitespace();
        let defines = |word: &&str| matches!(*word, "struct" | "enum" | "trait" | "type" | "union");
        if code.starts_with("impl") || words.find(defines).is_none() {
            continue;
        }
        let name = words.next().unwrap_or_default().trim_end_matches([';', ':']);
        names.extend(name.starts_with(char::is_uppercase).then(|| name.to_owned()));
    }
    names
}

#[test]
fn a_type_name_stands_in_one_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    rust_files(&root, &mut paths);
    let mut homes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in paths {
        let text = fs::read_to_string(&path).expect("the source is readable");
        let below = path.strip_prefix(&root).expect("found below it").display().to_string();
        for name in types_of(&lines_of(&text)) {
            homes.entry(name).or_default().push(below.clone());
        }
    }
    let shared: Vec<_> = homes.iter().filter(|(_, files)| files.len() > 1).collect();
    let (most, count) = (homes.len() * HOMONYMS_MAX / 100, shared.len());
    assert!(count <= most, "{count} of {} names, at most {most}: {shared:#?}", homes.len());
    assert!(homes.len() > 300, "only {} types were found", homes.len());
}

// --- tests of the rules -------------------------------------------------------

fn faults(path: &str, code: &str) -> Vec<String> {
    let found = faults_in_source(Path::new(path), &format!("//! A file.\n{code}"));
    found.into_iter().map(|(line, what)| format!("{line}: {what}")).collect()
}

#[test]
fn an_import_from_the_same_or_a_higher_layer_is_rejected() {
    let caught = [
        ("model/wire.rs", "use crate::tools::Toolbox;"),
        ("model/wire.rs", "use crate::{recovery::Fault, journal::Entry};"),
        ("model/wire.rs", "use crate::{\n    recovery::Fault,\n    agent::{run, Setup},\n};"),
        ("model/wire.rs", "fn f() -> super::super::agent::Setup { loop {} }"),
        ("core/recovery/plan.rs", "use crate::transcript::Block;"),
        ("agent/mod.rs", "use super::cli::Args;"),
        ("novelty/mod.rs", "fn f() {}"),
    ];
    for (path, code) in caught {
        assert_eq!(faults(path, code).len(), 1, "{path}: {code}");
    }
    let fine = [
        ("model/wire.rs", "use crate::recovery::Fault;\nuse super::headers::wish;"),
        ("model/mod.rs", "use crate::{recovery::{Fault, Money}, transcript::Block, model::sse};"),
        ("agent/work.rs", "use crate::tools::Toolbox; // as crate::cli would have it"),
        ("agent/work.rs", "const WORDS: &str = \"crate::cli::main\";"),
        ("main.rs", "fn main() { outlast::cli::main() }"),
    ];
    for (path, code) in fine {
        assert_eq!(faults(path, code), [""; 0], "{path}: {code}");
    }
}

#[test]
fn a_clock_in_a_pure_module_is_caught_however_it_is_named() {
    let caught = [
        "use std::time::{Duration, Instant};",
        "use std::{collections::BTreeMap, fs};",
        "fn f() { std::env::var(\"X\"); }",
        "async fn f() {}",
    ];
    for code in caught {
        assert_eq!(faults("core/recovery/plan.rs", code).len(), 1, "{code}");
        assert_eq!(faults("agent/work.rs", code), [""; 0], "{code}");
    }
    let fine = "/// An Instant of tokio.\nfn instant(thread: &str) -> &str { \"async std::fs\" }";
    assert_eq!(faults("recovery/plan.rs", fine), [""; 0]);
}

#[test]
fn promises_and_silence_are_caught() {
    for promise in PROMISES {
        assert_eq!(faults("cli/mod.rs", &format!("// {promise}: later")).len(), 1);
        assert_eq!(faults("cli/mod.rs", &format!("const A: &str = \"{promise}\";")), [""; 0]);
    }
    for gap in GAPS {
        assert_eq!(faults("cli/mod.rs", &format!("fn f() {{ {gap}() }}")).len(), 1);
    }
    assert_eq!(faults("cli/mod.rs", "#[allow(dead_code)]\nfn f() {}").len(), 1);
    assert_eq!(faults_in_test("fn f() {}").len(), 1, "no word about what it is");
}

#[test]
fn long_files_and_functions_are_caught() {
    let body = |lines: usize| "    f();\n".repeat(lines);
    let long = format!("fn g(\n    a: u8,\n) {{\n{}}}\n", body(77));
    assert_eq!(faults("cli/mod.rs", &long).len(), 1, "a signature of three lines counts");
    let fits = format!("fn g() {{\n{}}}\n", body(78));
    assert_eq!(faults("cli/mod.rs", &fits), [""; 0]);
    let method =
        format!("impl G {{\n    fn g() {{\n{}    }}\n}}\n", body(79).replace("    ", "        "));
    assert_eq!(faults("cli/mod.rs", &method).len(), 1);
    assert_eq!(faults("cli/mod.rs", &"// A line.\n".repeat(600)).len(), 1);
}

#[test]
fn strings_and_characters_do_not_lead_the_reader_astray() {
    let code = |text: &str| lines_of(text)[0].code.clone();
    assert_eq!(code("a(\"//\") // b"), "a(\"\") ");
    assert_eq!(code("a('\"', b) // c"), "a('  b) ".replace("  ", ", "));
    assert_eq!(code("a('\\'', '\\u{1F600}') // c"), "a(', ') ");
    assert_eq!(code("fn a<'b>(c: &'b str) {} // d"), "fn a<'b>(c: &'b str) {} ");
    assert_eq!(code("r#\"a \" // b\"# c // d"), "r c ");
    assert_eq!(code("\"a\\\"b\" c // d"), "\"\" c ");
}

#[test]
fn a_hidden_subject_is_found_in_any_case_but_not_inside_of_a_word() {
    let word = PRONOUNS[1];
    let text = format!(
        "fine\n/// {}{} waits\nfn {word}_waits() {{}}\n{word}x",
        word[..1].to_uppercase(),
        &word[1..]
    );
    assert_eq!(pronouns_in(&text), [(2, word.to_owned()), (3, word.to_owned())]);
}

#[test]
fn types_are_found_whatever_stands_around_their_names() {
    let code = "pub(crate) struct One;\nenum Two<'a> {\n    Three,\n}\npub struct Four(u8);\ntype Five = u8;\npub trait Six: Copy {\n    type Seven;\n}\nimpl Eight for Nine {}\n// struct Ten;";
    let found: Vec<String> = types_of(&lines_of(code)).into_iter().collect();
    assert_eq!(found, ["Five", "Four", "One", "Six", "Two"]);
}
