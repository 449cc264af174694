//! Trials of results: a run that is killed, ended by a signal or failed at any of its requests, and
//! then resumed by the command that it printed, has the result of a run that nothing disturbed; and
//! a finished one is printed again without a request.

use std::fmt;
use std::sync::Arc;

use nix::sys::signal::Signal;
use outlast::rehearsal::{FaultPosition, RehearsalServer, Scenario, ScriptedFaultKind};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::support::rotation::rotating_part;
use crate::support::{FinishedProcess, RunBuilder, serve};

const SESSION: &str = "5e551011-0000-4000-8000-0000000000a1";
/// Number of trials at the same time.
const AT_ONCE: usize = 3;

/// The replies of the model, one for each request, and the arguments of the run.
#[derive(Clone, Copy)]
struct Story {
    name: &'static str,
    steps: &'static [fn(Scenario) -> Scenario],
    args: &'static [&'static str],
    /// The result of a run that nothing disturbs.
    result: &'static str,
}

impl fmt::Debug for Story {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name)
    }
}

fn cut(scenario: Scenario, text: &str) -> Scenario {
    scenario.reply(text).stop_reason("max_tokens")
}

fn touch(scenario: Scenario) -> Scenario {
    scenario.tool("Bash", json!({ "command": "touch fixed" })).and_text("Let me see.")
}

fn refused(scenario: Scenario) -> Scenario {
    let input = json!({ "file_path": "/etc/outlast-test", "content": "x" });
    scenario.tool("Write", input).and_text("Let me write.")
}

fn failing(scenario: Scenario) -> Scenario {
    scenario.tool("Read", json!({ "file_path": "is-not-there" })).and_text("Let me read.")
}

const STOP_HOOK: &str = r#"{"hooks":{"Stop":[{"hooks":[{"type":"command","command":
    "test -e fixed || { echo not yet >&2; exit 2; }"}]}]}}"#;

const STORIES: [Story; 8] = [
    Story {
        name: "tools",
        steps: &[touch, refused, failing, refused, |all| all.reply("Done.")],
        args: &[],
        result: "Done.",
    },
    Story {
        name: "continued",
        // The first is asked for once more, with more room.
        steps: &[
            |all| cut(all, "Lost. "),
            |all| cut(all, "One, "),
            |all| all.empty().and_thinking("Hm.").stop_reason("max_tokens"),
            |all| cut(all, "two, "),
            |all| all.reply("three."),
        ],
        args: &[],
        result: "One, two, three.",
    },
    Story {
        name: "paused",
        steps: &[
            touch,
            |all| all.reply("The search says:").stop_reason("pause_turn"),
            |all| all.reply("I look further.").stop_reason("pause_turn"),
            |all| all.reply("42."),
        ],
        args: &[],
        result: "The search says:\nI look further.\n42.",
    },
    Story {
        name: "effort",
        steps: &[
            |all| cut(all, "Lost. "),
            |all| cut(all, "The answer "),
            |all| all.reply("is 42."),
            touch,
            |all| all.reply("Nothing is missing."),
            |all| all.reply("Nothing is missing."),
            |all| all.reply("Nothing is missing."),
        ],
        args: &["--token-budget", "5k"],
        result: "The answer is 42.\n\nNothing is missing.",
    },
    Story {
        name: "schema",
        steps: &[
            |all| all.reply("There are two."),
            |all| all.tool("StructuredOutput", json!({ "count": 2 })),
        ],
        args: &["--json-schema", r#"{"type":"object","required":["count"]}"#],
        result: r#"{"count":2}"#,
    },
    Story {
        name: "requirement",
        steps: &[|all| all.reply("Done."), touch, |all| all.reply("Now it is.")],
        args: &["--require", "test -e fixed"],
        result: "Now it is.",
    },
    Story {
        name: "stop hook",
        steps: &[|all| all.reply("Done."), touch, |all| all.reply("Now it is.")],
        args: &["--settings", STOP_HOOK],
        result: "Now it is.",
    },
    Story {
        name: "incomplete",
        steps: &[
            |all| all.reply("Half").stop_reason("odd"),
            |all| all.reply("Half an").stop_reason("odd"),
            |all| all.reply("A whole answer."),
        ],
        args: &[],
        result: "A whole answer.",
    },
];

/// The end of the first process.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Kill,
    Signal,
    Failure,
}

impl Story {
    /// The scenario in which the request of this number, counted from 0, is not answered as long as
    /// the first process lives.
    fn cut_at(self, at: usize, cut: Cut) -> Scenario {
        let mut scenario = Scenario::new();
        // The server lets an assistant have the last word only after a pause.
        let stop_reason = if self.name == "paused" { "pause_turn" } else { "end_turn" };
        for (index, step) in self.steps.iter().enumerate() {
            if index == at {
                scenario = match cut {
                    Cut::Kill | Cut::Signal => scenario
                        .reply("This reply is lost.")
                        .stop_reason(stop_reason)
                        .fault(ScriptedFaultKind::Stall, FaultPosition::Request),
                    Cut::Failure => scenario.status(402),
                };
            }
            scenario = step(scenario);
        }
        scenario
    }

    fn run(self, server: &RehearsalServer) -> RunBuilder {
        let args = ["--resume-or-start", SESSION, "--output-format", "json", "Do it."];
        RunBuilder::against(server).args(args).args(self.args)
    }

    /// The answer that stands if the request of this number fails: only the token budget asks for it.
    fn kept_answer(self, at: usize) -> Option<&'static str> {
        match (self.name, at) {
            ("effort", 3 | 4) => Some("The answer is 42."),
            ("effort", 5 | 6) => Some("The answer is 42.\n\nNothing is missing."),
            (_, _) => None,
        }
    }

    /// Runs the story, disturbed once, to its end, and prints it again.
    async fn carry_through(self, at: usize, cut: Cut) {
        let context = format!("{self:?}, request {at}, {cut:?}");
        let server = serve(self.cut_at(at, cut));
        let running = self.run(&server).start();
        if !matches!(cut, Cut::Failure) {
            server.wait_for_request(at + 1).await;
            let signal = if matches!(cut, Cut::Kill) { Signal::SIGKILL } else { Signal::SIGTERM };
            running.signal(signal);
        }
        let ended = running.end().await;
        if let Some(kept) = self.kept_answer(at).filter(|_| matches!(cut, Cut::Failure)) {
            assert_eq!(ended.code, Some(0), "{context}: {ended:?}");
            assert_eq!(ended.result()["result"], kept, "{context}");
            return;
        }
        assert_ne!(ended.code, Some(0), "{context}: {ended:?}");
        let words = if ended.code.is_some() {
            ended.resume_words()
        } else {
            let mut words = vec!["--resume".to_owned(), SESSION.to_owned()];
            // Settings are no part of what a session keeps; a printed command repeats them.
            if self.args.contains(&"--settings") {
                words.extend(self.args.iter().map(|arg| (*arg).to_owned()));
            }
            words
        };
        let again = ended.again(&server.base_url()).args(&words);
        let ended = again.args(["--output-format", "json"]).run().await;
        let first = self.judge(&ended, &context);
        let asked = server.requests().len();
        assert_eq!(asked, self.steps.len() + 1, "{context}");
        let again = ended.again(&server.base_url()).args(["--resume", SESSION]);
        let ended = again.args(["--output-format", "json"]).run().await;
        assert_eq!(self.judge(&ended, &context), first, "{context}");
        assert_eq!(server.requests().len(), asked, "{context}: printed again without a request");
        assert_eq!(server.violations(), [""; 0], "{context}");
        if at + 1 == self.steps.len() {
            let server = serve(self.steps.iter().fold(Scenario::new(), |all, step| step(all)));
            let undisturbed = self.run(&server).run().await;
            assert_eq!(self.judge(&undisturbed, &context), first, "{context}");
        }
    }

    /// Checks the result, and returns the part of it that does not depend on interruptions.
    fn judge(self, ended: &FinishedProcess, context: &str) -> Value {
        let result = ended.result();
        assert_eq!(ended.code, Some(0), "{context}: {ended:?}");
        assert_eq!(result["result"], self.result, "{context}");
        let names = [
            "subtype",
            "is_error",
            "exit_code",
            "result",
            "structured_output",
            "terminal_reason",
            "stop_reason",
            "num_turns",
            "tools",
        ];
        let denials = result["permission_denials"].as_array().expect("a list");
        let denials = denials.iter().map(|denial| json!([denial["tool_name"], denial["reason"]]));
        names.iter().map(|name| result[*name].clone()).chain(denials).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disturbed_run_has_the_result_of_an_undisturbed_one() {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut trials = JoinSet::new();
    let all = STORIES.iter().flat_map(|story| {
        let cuts = [Cut::Kill, Cut::Signal, Cut::Failure];
        (0..story.steps.len()).flat_map(move |at| cuts.map(|cut| (*story, at, cut)))
    });
    for (story, at, cut) in rotating_part(all, 5) {
        let places = Arc::clone(&places);
        trials.spawn(async move {
            let _place = places.acquire().await;
            story.carry_through(at, cut).await;
        });
    }
    while let Some(trial) = trials.join_next().await {
        trial.expect("the trial holds");
    }
}

/// A finished session has nothing to do, unless something is demanded that nothing has checked.
#[tokio::test]
async fn a_finished_session_is_printed_again_whatever_the_options() {
    let server = serve(Scenario::new().reply("Done."));
    let args = ["--session-id", SESSION, "--output-format", "json", "Do it."];
    let mut ended = RunBuilder::against(&server).args(args).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let options: [&[&str]; 4] = [
        &["--max-turns", "1", "--max-budget-usd", "0.01"],
        &["--settings", STOP_HOOK],
        &["--token-budget", "10k"],
        &["--fork-session"],
    ];
    for options in options {
        let again = ended.again(&server.base_url()).args(["--resume", SESSION]).args(options);
        ended = again.args(["--output-format", "json"]).run().await;
        let result = ended.result();
        assert_eq!((ended.code, &result["result"]), (Some(0), &json!("Done.")), "{ended:?}");
        assert_eq!(result["requirement"], Value::Null, "nothing was checked");
        assert_eq!(server.requests().len(), 1, "{options:?}");
    }
}

/// A finished session is checked again for a requirement that its last process did not have.
#[tokio::test]
async fn a_finished_session_is_checked_again_for_another_demand() {
    let delivery = json!({ "b": 1 });
    let server = serve(Scenario::new().reply("Done.").tool("StructuredOutput", delivery.clone()));
    let args = ["--session-id", SESSION, "--require", "true", "Do it."];
    let mut ended = RunBuilder::against(&server).args(args).run().await;
    assert_eq!((ended.code, &ended.result()["requirement"]["passed"]), (Some(0), &json!(true)));
    let other: &[&str] = &["--require", "test -e fixed", "--settings", r#"{"requireRetries": 0}"#];
    let schema: &[&str] = &["--json-schema", r#"{"type":"object","required":["b"]}"#];
    // Without options, the demand of the last process holds, which was not met.
    let rows: [(&[&str], i32, bool, usize); 5] = [
        (other, 9, false, 1),
        (&[], 9, false, 1),
        (&[], 0, true, 1),
        (schema, 0, true, 2),
        (&[], 0, true, 2),
    ];
    for (row, (options, code, passed, requests)) in rows.into_iter().enumerate() {
        if passed {
            std::fs::write(ended.work().join("fixed"), "").expect("written");
        }
        let again = ended.again(&server.base_url()).args(["--resume", SESSION]).args(options);
        ended = again.run().await;
        let result = ended.result();
        assert_eq!(ended.code, Some(code), "{row}: {ended:?}");
        let requirement = &result["requirement"];
        assert_eq!(requirement["passed"], passed, "{row}: {result}");
        assert_eq!(requirement["command"], "test -e fixed", "{row}: {result}");
        assert_eq!(server.requests().len(), requests, "{row}: {result}");
        if requests == 2 {
            assert_eq!(result["structured_output"], delivery, "{row}");
        }
    }
}

/// The model has said that it is done, and the turn limit was reached before that was accepted.
#[tokio::test]
async fn an_answer_that_was_not_accepted_in_time_is_checked_with_more_turns() {
    for check in [&["--require", "test -e fixed"], &["--settings", STOP_HOOK]] {
        let server = serve(Scenario::new().reply("Done.").reply("Done again.").reply("Now it is."));
        let args = ["--session-id", SESSION, "--output-format", "json", "--max-turns", "1", "Go."];
        let ended = RunBuilder::against(&server).args(check).args(args).run().await;
        assert_eq!((ended.code, &ended.result()["result"]), (Some(3), &Value::Null), "{ended:?}");
        let resumed = ["--resume", SESSION, "--output-format", "json", "--max-turns"];
        // Without more turns the same is said again; it is no mistake of the command line.
        let again = ended.again(&server.base_url()).args(check).args(resumed).args(["1"]);
        let ended = again.run().await;
        assert_eq!(ended.code, Some(3), "{ended:?}");
        let again = ended.again(&server.base_url()).args(check).args(resumed).args(["2"]);
        let ended = again.run().await;
        // A hook that objects in the same words to the same work has the last word.
        assert!(matches!(ended.code, Some(3 | 9)), "{ended:?}");
        assert_eq!(server.requests().len(), 2);
        std::fs::write(ended.work().join("fixed"), "").expect("written");
        let again = ended.again(&server.base_url()).args(check).args(resumed).args(["9"]);
        let ended = again.run().await;
        let result = ended.result();
        assert_eq!((ended.code, &result["result"]), (Some(0), &json!("Done again.")), "{ended:?}");
        assert_eq!(server.requests().len(), 2, "it only had to be accepted");
    }
}

/// A model that declined has ended the session; a prompt that a hook stopped was never recorded.
#[tokio::test]
async fn sessions_that_cannot_go_on_say_so() {
    let server = serve(Scenario::new().reply("I will not.").stop_reason("refusal"));
    let args = ["--resume-or-start", SESSION, "--output-format", "json", "Do it."];
    let ended = RunBuilder::against(&server).args(args).run().await;
    let first = ended.result();
    let ended = ended.again(&server.base_url()).args(args).run().await;
    let second = ended.result();
    assert_eq!((ended.code, &second["terminal_reason"]), (Some(1), &json!("refusal")), "{second}");
    assert_eq!(
        (&second["partial_result"], &second["resume"]),
        (&first["partial_result"], &Value::Null)
    );
    assert_eq!(server.requests().len(), 1, "it is not asked again");
    let hook =
        r#"{"hooks":{"UserPromptSubmit":[{"hooks":[{"type":"command","command":"exit 2"}]}]}}"#;
    let args = ["--settings", hook, "--output-format", "json", "Do it."];
    let ended = RunBuilder::against(&server).args(args).run().await;
    assert_eq!((ended.code, &ended.result()["resume"]), (Some(6), &Value::Null), "{ended:?}");
}
