//! Sequences that control a terminal, from the model, the service and tools.

use std::process::Stdio;

use outlast::rehearsal::{RehearsalServer, Scenario};
use serde_json::json;

use crate::support::terminal::open_terminal;
use crate::support::{FinishedProcess, RunBuilder, serve};

/// Sequences, each behind a word that has to be shown.
const SEQUENCES: &[(&str, &str)] = &[
    ("title", "\x1b]0;owned\x07"),
    ("link", "\x1b]8;;http://127.0.0.1:9\x1b\\"),
    ("clipboard", "\x1b]52;c;b3duZWQ=\x07"),
    ("clear", "\x1b[2J\x1b[H"),
    ("colour", "\x1b[8;31m"),
    ("reset", "\x1bc"),
    ("device", "\x1bP+q544e\x1b\\"),
    ("report", "\x1b[6n\x1b[c"),
    ("alternate", "\x1b[?1049h"),
    ("eight-bit", "\u{9b}2J\u{9d}0;owned\u{9c}"),
    ("backspace", "good\x08\x08\x08\x08evil"),
    ("return", "good\revil"),
    ("shift", "\x0e\x0f"),
    ("delete", "\x7f"),
    ("nul", "\0"),
    ("direction", "\u{202e}live\u{202c}\u{2066}x\u{2069}"),
    ("marks", "\u{200e}\u{200f}\u{61c}x"),
    ("lines", "a\u{2028}b\u{2029}c"),
    ("invisible", "a\u{200b}\u{2060}\u{feff}\u{180e}b\u{206a}\u{fff9}\u{e0041}"),
];

fn text() -> String {
    let lines = SEQUENCES.iter().map(|(word, sequence)| format!("<{word}>{sequence}\n"));
    lines.collect::<Vec<_>>().concat()
}

/// Runs with standard output and error on terminals of their own. What these show is returned.
async fn on_terminals(server: &RehearsalServer, args: &[&str]) -> [String; 2] {
    let mut screens = Vec::new();
    let mut terminal = || {
        let (terminal, screen) = open_terminal(50, 500);
        screens.push(screen);
        Stdio::from(terminal)
    };
    let run = RunBuilder::against(server).env("TERM", "xterm").stdout(terminal());
    run.stderr(terminal()).args(args).run().await;
    let mut screens = screens.into_iter().map(|screen| screen.join().expect("it ends"));
    [screens.next().expect("standard output"), screens.next().expect("standard error")]
}

/// Whether a terminal would do more with this than show it and go to the next line.
fn controls(shown: &str) -> Vec<char> {
    // The terminal itself writes line ends as two characters.
    let shown = shown.replace("\r\n", "\n");
    let harmful = |letter: &char| {
        letter.is_control() && !matches!(letter, '\n' | '\t')
            || "\u{61c}\u{180e}\u{200b}\u{200e}\u{200f}\u{feff}\u{fff9}\u{e0041}".contains(*letter)
            || matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
    };
    shown.chars().filter(harmful).collect()
}

#[tokio::test]
async fn nothing_from_the_model_controls_a_terminal() {
    for (format, partial) in [("text", false), ("json", false), ("stream-json", true)] {
        let scenario = Scenario::new()
            .tool("Bash", json!({ "command": format!("printf '%s' '{}'", "\x1b]0;owned\x07") }))
            .tool("Grep\x1b]0;owned\x07", json!({ "pattern": "\x1b[2J" }))
            .reply(&text());
        let server = serve(scenario);
        let mut args = vec!["--output-format", format, "--verbose", "--log-detail", "do it"];
        if partial {
            args.push("--include-partial-messages");
        }
        let [shown, log] = on_terminals(&server, &args).await;
        assert!(controls(&shown).is_empty(), "{format}: {shown:?}");
        for (word, _) in SEQUENCES {
            assert!(shown.contains(&format!("<{word}>")), "{format} {word}: {shown:?}");
        }
        // There, the progress bar draws with sequences of its own.
        for theirs in ["\x1b]", "\x07", "\x1bc", "\x1bP", "\u{9b}", "\u{9d}", "\u{202e}"] {
            assert!(!log.contains(theirs), "{format} {theirs:?}: {log:?}");
        }
    }
}

#[tokio::test]
async fn nothing_from_the_service_controls_a_terminal() {
    let refusal = format!("refused {}", text());
    let scenario = Scenario::new().status(400).error("invalid_request_error", &refusal, None);
    let server = serve(scenario);
    let [shown, log] = on_terminals(&server, &["do it"]).await;
    assert!(controls(&shown).is_empty(), "{shown:?}");
    for theirs in ["\x1b]", "\x07", "\x1bc", "\x1bP", "\x1b[8", "\u{9b}", "\u{9d}", "\u{202e}"] {
        assert!(!log.contains(theirs), "{theirs:?}: {log:?}");
    }
    assert!(log.contains("refused"), "{log:?}");
}

/// A program that reads the output gets it as it is.
#[tokio::test]
async fn a_pipe_gets_every_character() {
    let server = serve(Scenario::new().reply(&text()));
    let ended: FinishedProcess =
        RunBuilder::against(&server).args(["--output-format", "text", "do it"]).run().await;
    assert_eq!(ended.stdout.trim_end(), text().trim_end());
}
