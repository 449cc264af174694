//! The commands that the manual shows. A block of `sh` is run line by line as it stands; one of
//! `sh parsed` needs a place that a test does not have, and is only read by the argument parser.

use std::fs;
use std::path::Path;
use std::process::Command;

use outlast::cli::args;
use outlast::rehearsal::{AfterLast, Scenario};
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use serde_json::json;

use super::pages::{documents, read, sources};
use crate::support::programs::{installed, write_program};
use crate::support::python::search_path;
use crate::support::{FinishedProcess, RunBuilder, serve};

/// A man page indents by 7 columns of 80.
const CODE_WIDTH_MAX: usize = 73;

/// The contents of the code blocks with this info string.
pub(super) fn blocks(markdown: &str, info: &str) -> Vec<String> {
    let (mut blocks, mut is_inside) = (Vec::new(), false);
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        if let Event::Start(Tag::CodeBlock(kind)) = &event {
            is_inside = matches!(kind, CodeBlockKind::Fenced(found) if found.as_ref() == info);
            if is_inside {
                blocks.push(String::new());
            }
        } else if let Event::End(TagEnd::CodeBlock) = event {
            is_inside = false;
        } else if let (Event::Text(text), true, Some(block)) = (event, is_inside, blocks.last_mut())
        {
            block.push_str(&text);
        }
    }
    blocks
}

/// The command lines in the blocks that start outlast. A line that ends in a backslash goes on.
fn command_lines(markdown: &str, info: &str) -> Vec<String> {
    let scripts = blocks(markdown, info).into_iter().filter(|block| !block.starts_with("#!"));
    let joined = scripts.collect::<String>().replace("\\\n", " ");
    let lines = joined.lines().filter(|line| !line.starts_with('#'));
    lines.filter(|line| line.contains("outlast ")).map(str::to_owned).collect()
}

/// The words of outlast in a command line, as a shell splits them.
fn words(line: &str) -> Vec<String> {
    let script = format!("outlast() {{ printf '%s\\0' \"$@\"; }}\n{line}");
    let output =
        Command::new(installed("sh")).args(["-c", &script]).env_clear().output().expect("a shell");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.split_terminator('\0').map(str::to_owned).collect()
}

/// Runs a line in a folder with what the examples need: a model that answers, and programs that
/// succeed.
async fn run(line: &str) -> FinishedProcess {
    let content = if line.contains("--json-schema") {
        Scenario::new().tool("StructuredOutput", json!({ "files": [] }))
    } else {
        Scenario::new().reply("Done.")
    };
    let server = serve(content.after(AfterLast::RepeatLast));
    let trial = RunBuilder::bare(&server.base_url());
    let work = trial.work();
    let bin = work.join("bin");
    fs::create_dir(&bin).expect("the folder is ours");
    let program = Path::new(env!("CARGO_BIN_EXE_outlast"));
    std::os::unix::fs::symlink(program, bin.join("outlast")).expect("a link");
    for other in ["git", "cargo"] {
        write_program(&bin.join(other), "#!/bin/sh\necho fine\n");
    }
    let scenario = blocks(&read("man/outlast-scenario.5.md"), "toml").remove(0);
    let schema = json!({ "type": "object", "required": ["files"] }).to_string();
    let files = [
        ("task.md", "Say hello."),
        ("answer.schema.json", &schema),
        ("our-outage.toml", &scenario),
    ];
    for (name, text) in files {
        fs::write(work.join(name), text).expect("the folder is ours");
    }
    let path = search_path().display();
    let trial = trial.env("PATH", &format!("{}:{path}", bin.display()));
    trial.env("GATE_KEY", "another-key-0123456789").in_shell(line).run().await
}

async fn each_runs(path: &str) -> usize {
    let lines = command_lines(&read(path), "sh");
    for line in &lines {
        let ended = run(line).await;
        if line.contains("--continue") || line.contains("--resume ") {
            // In a fresh folder there is no session.
            assert_eq!(ended.code, Some(2), "{path}: {line}\n{ended:?}");
            assert!(ended.stderr.contains("session"), "{path}: {line}\n{ended:?}");
        } else if line.contains("outlast doctor") {
            // A machine may have problems of its own.
            assert!(matches!(ended.code, Some(0 | 1)), "{path}: {line}\n{ended:?}");
        } else {
            assert_eq!(ended.code, Some(0), "{path}: {line}\n{ended:?}");
        }
    }
    lines.len()
}

#[tokio::test]
async fn every_example_of_the_readme_runs() {
    let count = each_runs("README.md").await;
    assert!(count >= 6, "only {count} examples");
}

#[tokio::test]
async fn every_example_of_the_command_page_runs() {
    let count = each_runs("man/outlast.1.md").await;
    assert!(count >= 6, "only {count} examples");
}

#[tokio::test]
async fn every_example_of_the_other_pages_runs() {
    for path in sources().filter(|path| path != "man/outlast.1.md") {
        each_runs(&path).await;
    }
}

#[tokio::test]
async fn every_scenario_of_the_manual_is_rehearsed_as_it_stands() {
    let examples = blocks(&read("man/outlast-scenario.5.md"), "toml");
    assert!(examples.len() >= 4, "only {} examples", examples.len());
    for text in examples {
        let trial = RunBuilder::bare("http://127.0.0.1:9").args(["rehearse", "own.toml"]);
        fs::write(trial.work().join("own.toml"), &text).expect("the folder is ours");
        let ended = trial.run().await;
        assert_eq!(ended.code, Some(0), "{text}\n{ended:?}");
        assert!(ended.stderr.ends_with(": exit 0, as expected\n"), "{text}\n{ended:?}");
    }
}

#[test]
fn the_argument_parser_takes_every_command_line() {
    let mut count = 0;
    for (path, text) in documents() {
        for line in ["sh", "sh parsed"].iter().flat_map(|info| command_lines(&text, info)) {
            let words = words(&line);
            assert!(!words.is_empty(), "{path}: {line}");
            let parsed = args::parse(&words);
            assert!(parsed.is_ok(), "{path}: {line}\n{parsed:?}");
            count += 1;
        }
    }
    assert!(count > 20, "only {count} command lines");
}

#[test]
fn no_line_of_code_is_wider_than_a_terminal() {
    for (path, text) in documents() {
        for info in ["sh", "sh parsed", "json", "toml", "text", "yaml"] {
            for line in blocks(&text, info).iter().flat_map(|block| block.lines()) {
                assert!(line.len() <= CODE_WIDTH_MAX, "{path}: {line}");
            }
        }
    }
}
