//! `outlast help`: the pages of the manual that the binary contains.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use outlast::cli::args::{self, CliRequest, CommandWords, ProgramName};

use super::binary_fixture::BinaryFixture;
use crate::support::terminal::open_terminal;

fn help(topic: &[&str]) -> Result<String, String> {
    let words = ["help"].iter().chain(topic).map(Into::into).collect();
    match args::parse_process(&CommandWords::new(words), ProgramName::Outlast) {
        Ok(CliRequest::Print(text) | CliRequest::Manual(text)) => Ok(text),
        Ok(CliRequest::Help(text)) => Ok(text.to_string()),
        Ok(other) => panic!("help prints, and does not {other:?}"),
        Err(error) => Err(error.to_string()),
    }
}

/// Output of the binary if standard output is not a terminal.
fn printed(words: &[&str]) -> String {
    let ended = BinaryFixture::new().run(words);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{words:?}");
    ended.stdout
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files_below(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("it can be read") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            files_below(&path, ending, found);
        } else if path.extension().is_some_and(|end| end == ending) {
            found.push(path);
        }
    }
}

#[test]
fn commands_below_others_have_help_of_their_own() {
    for (words, part) in [
        (&["sessions", "show"][..], "outlast sessions show"),
        (&["config", "init"], "--project"),
        (&["mcp", "login"], "--device"),
        (&["auth", "status"], "Print which credential"),
        (&["exit", "codes"], "`75`"),
        (&["max", "turns"], "--max-turns"),
    ] {
        let text = help(words).expect("help");
        assert!(text.contains(part), "{words:?}: {text}");
    }
    assert!(help(&["sessions", "nonesuch"]).is_err());
    for words in
        [["plugin", "list", "--help"], ["auth", "status", "-h"], ["update", "now", "--help"]]
    {
        let text = match args::parse(&words.map(str::to_owned)) {
            Ok(CliRequest::Help(text)) => text.to_string(),
            other => panic!("{words:?}: {other:?}"),
        };
        assert!(text.contains("Usage:") && !text.contains("The words of"), "{text}");
    }
}

#[test]
fn every_page_of_the_manual_is_listed_and_printed_without_targets_of_links() {
    let mut pages = Vec::new();
    files_below(&root().join("man"), "md", &mut pages);
    assert!(pages.len() > 10, "{pages:?}");
    let list = help(&[]).expect("a list");
    for page in pages {
        let source = fs::read_to_string(&page).expect("it can be read");
        let title = source.lines().next().expect("it has a title");
        let (name, about) = title[2..].split_once(": ").expect("the title says what it is about");
        assert!(list.contains(about), "{about} is not in {list}");
        let bare = name.split('(').next().expect("a name");
        for topic in [name, bare, bare.trim_start_matches("outlast-")] {
            let text = help(&[topic]).expect("a page");
            assert!(text.starts_with(title), "{topic}: {text}");
        }
        let text = printed(&["help", name]);
        assert!(!text.contains("](outlast"), "{name} has targets of links");
        assert!(!text.contains("<!--") && !text.contains("\n\n\n"), "{name} has comments");
        let sample = source.lines().rev().find(|line| line.len() > 40 && !line.contains("]("));
        assert!(text.contains(sample.expect("a line of text")), "{name} is not whole");
    }
}

#[test]
fn every_page_that_a_message_names_can_be_printed() {
    let mut files = Vec::new();
    files_below(&root().join("src"), "rs", &mut files);
    let mut named = 0;
    for file in files {
        let source = fs::read_to_string(&file).expect("it can be read");
        let ends = source.match_indices('(').filter(|(at, _)| {
            let section = &source.as_bytes()[at + 1..];
            matches!(section, [b'1'..=b'8', b')', ..])
        });
        for (at, _) in ends {
            let letters = |one: char| one.is_ascii_lowercase() || one == '-';
            let start = source[..at].trim_end_matches(letters).len();
            let page = &source[start..at];
            if page == "outlast" || page.starts_with("outlast-") {
                named += 1;
                assert!(help(&[page]).is_ok(), "{}: there is no page {page}", file.display());
            }
        }
    }
    assert!(named > 10, "{named} pages are named");
}

#[test]
fn a_section_is_found_by_its_heading_and_by_other_names() {
    for topic in ["exit-codes", "Exit status", "exit"] {
        let text = help(&[topic]).expect("a section");
        assert!(text.starts_with("## Exit status\n"), "{text}");
        assert!(text.contains("| `75` |") && !text.contains("## Signals"), "{text}");
        assert!(text.ends_with("(from outlast(1): outlast help outlast)\n"), "{text}");
    }
    let limits = help(&["limits"]).expect("a section of options");
    assert!(limits.contains("--max-turns") && !limits.contains("--require"), "{limits}");
    for (topic, part) in [
        ("environment", "`NO_COLOR`"),
        ("env", "`NO_COLOR`"),
        ("options", "--require"),
        ("credentials", "ANTHROPIC_API_KEY"),
        ("permissions", "acceptEdits"),
        ("signals", "SIGTERM"),
        ("examples", "--require"),
        ("settings", "`maxTurns`"),
    ] {
        assert!(help(&[topic]).expect("a topic").contains(part), "{topic}");
    }
}

#[test]
fn help_knows_commands_too_and_suggests_topics_for_others() {
    assert!(help(&["doctor"]).expect("its flags").contains("--offline"));
    let error = help(&["hook"]).expect_err("no such page");
    assert!(error.contains("\"hook\"; did you mean hooks?"), "{error}");
    let error = help(&["enviroment"]).expect_err("no such section");
    assert!(error.contains("did you mean environment?"), "{error}");
    let error = help(&["doctro"]).expect_err("no such command");
    assert!(error.contains("did you mean doctor?"), "{error}");
    let error = help(&["max-turn"]).expect_err("no such flag");
    assert!(error.contains("did you mean max-turns"), "{error}");
    for hidden in ["instal", "setup-toke", "updat"] {
        let error = help(&[hidden]).expect_err("no such topic");
        assert!(error.ends_with("; outlast help lists the topics"), "{error}");
        assert!(!error.contains("did you mean"), "{error}");
    }
    for name in ["max-turns", "--max-turns", "maxTurns"] {
        assert!(help(&[name]).expect("a flag").starts_with("--max-turns <"), "{name}");
    }
    assert!(help(&["timeouts"]).expect("a section").starts_with("### Timers"));
    let list = help(&[]).expect("the topics");
    let commands = list.split("Commands, with their options:\n").nth(1).expect("a list");
    assert!(!commands.contains("install") && commands.contains("batch"), "{commands}");
    let error = help(&["zzzzzz"]).expect_err("nothing like it");
    assert!(error.ends_with("\"zzzzzz\"; outlast help lists the topics"), "{error}");
    assert!(help(&["hooks", "mcp"]).is_err(), "one topic");
    let ended = BinaryFixture::new().run(&["help", "hook"]);
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.lines().count()), (2, "", 1));
}

#[test]
fn the_summary_fits_a_screen_and_leads_to_the_rest() {
    let summary = printed(&["-h"]);
    assert_eq!(printed(&["run", "-h"]), summary);
    assert!(summary.lines().count() <= 40, "{} lines\n{summary}", summary.lines().count());
    assert!(summary.lines().all(|line| line.chars().count() <= 80), "{summary}");
    for part in ["--max-turns <N>", "--require", "  rehearse  ", "exit-codes", "settings"] {
        assert!(summary.contains(part), "{part}: {summary}");
    }
    let examples = summary.lines().filter(|line| line.starts_with("  outlast "));
    assert_eq!(examples.count(), 5, "{summary}");
    let all = printed(&["--help"]);
    let options = all.lines().filter(|line| line.trim_start().starts_with('-')).count();
    assert!(options > 70, "{options} options");
    let command = args::command();
    let shown = command.get_arguments().filter(|argument| {
        // What few people need is in the manual alone.
        !argument.is_hide_set() && !argument.is_hide_short_help_set()
    });
    for argument in shown {
        if let Some(long) = argument.get_long() {
            assert!(all.contains(&format!("--{long}")), "--{long}");
        }
    }
    assert!(all.contains("[default: 15s]"), "{all}");
}

/// The words after `outlast` as a shell splits them.
fn words(line: &str) -> Vec<String> {
    let script = format!("outlast() {{ printf '%s\\0' \"$@\"; }}\n{line}");
    let output = Command::new("bash").args(["-c", &script]).output().expect("a shell");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.split_terminator('\0').map(str::to_owned).collect()
}

#[test]
fn every_example_of_the_help_is_a_good_command_line() {
    let mut count = 0;
    for example in args::help::all_examples() {
        // Nothing is written to the files that examples name.
        let line = example.split(" > ").next().unwrap_or_default();
        let parsed = args::parse(&words(line));
        assert!(line.starts_with("outlast ") && parsed.is_ok(), "{example}: {parsed:?}");
        count += 1;
    }
    assert!(count > 15, "only {count} examples");
    for command in ["rehearse", "doctor", "config", "sessions", "completions", "help"] {
        assert!(printed(&[command, "--help"]).contains("Examples:\n  outlast "), "{command}");
    }
}

/// Output on a terminal of this many rows and 60 columns.
fn on_terminal(words: &[&str], rows: u16, variables: &[(&str, &str)]) -> String {
    let (terminal, screen) = open_terminal(rows, 60);
    let stdin = terminal.try_clone().expect("a second handle");
    let mut command = Command::new(env!("CARGO_BIN_EXE_outlast"));
    command.args(words).env_clear().env("PATH", std::env::var("PATH").expect("text"));
    command.env("TERM", "xterm").envs(variables.iter().copied());
    command.stdin(stdin).stdout(terminal).stderr(Stdio::null());
    assert!(command.status().expect("outlast starts").success(), "{words:?}");
    // Its copies of the terminal must not keep the screen open.
    drop(command);
    screen.join().expect("it ends").replace("\r\n", "\n")
}

#[test]
fn a_terminal_shows_a_page_laid_out_and_a_long_one_in_the_pager() {
    let pager = [("PAGER", "sed s/^/PAGED:/")];
    let short = on_terminal(&["help", "exit-codes"], 200, &pager);
    assert!(short.starts_with("\u{1b}[1mExit\u{1b}[0m \u{1b}[1mstatus\u{1b}[0m\n"), "{short}");
    assert!(short.contains("\n    \u{1b}[1m75\u{1b}[0m   Temporary: "), "{short}");
    assert!(!short.contains("PAGED:") && !short.contains('|'), "{short}");
    let plain = on_terminal(&["help", "exit-codes"], 200, &[("NO_COLOR", "1")]);
    assert!(plain.starts_with("Exit status\n    `0`    The task"), "{plain}");
    assert!(plain.lines().all(|line| line.chars().count() <= 60), "{plain}");

    let long = on_terminal(&["help", "exit-codes"], 10, &pager);
    assert!(long.lines().all(|line| line.starts_with("PAGED:")), "{long}");
    assert_eq!(long.replace("PAGED:", ""), short);
    let outranked = [("PAGER", "sed s/^/PAGED:/"), ("MANPAGER", "sed s/^/MAN:/")];
    assert!(on_terminal(&["help", "exit-codes"], 10, &outranked).starts_with("MAN:"));
    for no_pager in ["cat", "", "no-such-pager-77"] {
        assert_eq!(on_terminal(&["help", "exit-codes"], 10, &[("PAGER", no_pager)]), short);
    }
    // A job has a terminal at times, and never a user.
    let in_ci = [("PAGER", "sed s/^/PAGED:/"), ("CI", "true")];
    assert_eq!(on_terminal(&["help", "exit-codes"], 10, &in_ci), short);
}

#[test]
fn the_summary_has_bold_headings_on_a_terminal() {
    let summary = on_terminal(&["-h"], 50, &[]);
    assert!(summary.contains("\u{1b}[1mCommands:\u{1b}[0m\n"), "{summary}");
    let plain = on_terminal(&["-h"], 50, &[("NO_COLOR", "1")]);
    assert_eq!(plain, printed(&["-h"]));
}

#[test]
fn a_bare_command_line_on_a_terminal_prints_the_summary() {
    let (terminal, _screen) = open_terminal(50, 80);
    let mut command = Command::new(env!("CARGO_BIN_EXE_outlast"));
    command.env_clear().stdin(terminal);
    let output = command.output().expect("outlast starts");
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!((output.status.code(), text.as_str()), (Some(2), printed(&["-h"]).as_str()));
    assert!(output.stdout.is_empty());
}
