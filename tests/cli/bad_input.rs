//! Bad input of every kind: one line, exit code 2, one result, and nothing done.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use outlast::cli::args::{self, CliRequest, CommandWords, ProgramName};

use super::binary_fixture::{BinaryFixture, ProcessResult};

fn check(args: &[&str], ended: &ProcessResult, parts: &[&str]) {
    let line = ended.line();
    assert!(line.starts_with("outlast: "), "{line}");
    for part in parts {
        assert!(line.contains(part), "{part:?} in {line:?} for {args:?}");
    }
    assert_eq!(ended.code, 2, "{args:?}: {ended:?}");
    let result = ended.result();
    assert_eq!(result["subtype"], "error_during_execution");
    assert_eq!(result["is_error"], true);
    assert_eq!(result["exit_code"], 2);
    assert_eq!(result["num_turns"], 0);
    assert_eq!(result["errors"][0], line.trim_start_matches("outlast: "));
    assert!(result.get("terminal_reason").is_none());
    assert!(!ended.stdout.contains("sk-ant-a-key"), "no secret in {}", ended.stdout);
}

fn refuses(args: &[&str], parts: &[&str]) {
    let world = BinaryFixture::new().file("work/notes.txt", "notes");
    let before = world.inventory();
    check(args, &world.run(args), parts);
    assert_eq!(world.inventory(), before, "{args:?} left something on disk");
}

#[test]
fn mistakes_in_flags() {
    let id = "0190a1b2-0000-7000-8000-000000000001";
    let cases: &[(&[&str], &[&str])] = &[
        (&["--max-turn", "3", "hi"], &["unknown flag --max-turn", "did you mean --max-turns"]),
        (&["--xyzzy", "hi"], &["unknown flag --xyzzy", "--help"]),
        (&["-5%", "hi"], &["unknown flag", "stands after \"--\""]),
        (&["--max-turns", "0", "hi"], &["--max-turns", "\"0\"", "at least 1"]),
        (&["--maxTurns=-3", "hi"], &["--max-turns", "\"-3\"", "at least 1"]),
        (&["--max-turns", "three", "hi"], &["--max-turns", "\"three\"", "whole number"]),
        (&["--max-budget-usd", "-1", "hi"], &["--max-budget-usd", "\"-1\"", "above 0"]),
        (&["--max-budget-usd", "nan", "hi"], &["--max-budget-usd", "above 0"]),
        (&["--max-budget-usd", "lots", "hi"], &["--max-budget-usd", "0.50"]),
        (&["--max-duration", "soon", "hi"], &["--max-duration", "45m"]),
        (&["--deadline", "0s", "hi"], &["--max-duration", "longer than nothing"]),
        (&["--token-budget", "much", "hi"], &["--token-budget", "500k"]),
        (&["--max-retries", "1000", "hi"], &["--max-retries", "0 to 100"]),
        (&["--time-scale", "0", "hi"], &["--time-scale", "0.001"]),
        (&["--output-format", "yaml", "hi"], &["--output-format", "stream-json"]),
        (&["--output-format"], &["--output-format", "needs a value"]),
        (&["--permission-mode", "yolo", "hi"], &["--permission-mode", "acceptEdits"]),
        (&["--permission-prompt-tool", "stdio", "hi"], &["it needs --input-format stream-json"]),
        (&["--resume-session-at", "x", "hi"], &["--resume-session-at", "--resume or --continue"]),
        (&["--resume-drops-turn", "x", "hi"], &["--resume-session-at", "add it"]),
        (&["--include-partial-messages", "hi"], &["--output-format stream-json"]),
        (&["fix", "the", "bug"], &["one argument too many", "quotes"]),
        (
            &["session", "list"],
            &["\"session\" is not a command", "did you mean sessions?", "quotes"],
        ),
        (&["login", "now"], &["\"login\" is not a command", "outlast help credentials"]),
        (
            &["--model", "opus", "run", "fix it"],
            &[
                "one argument too many",
                "run is a command, and stands before its flags: outlast run",
            ],
        ),
        (
            &["--profile", "untrusted", "hi"],
            &["add --max-budget-usd and --max-duration, or set maxBudgetUsd and maxDuration in"],
        ),
        (
            &["--profile", "untrusted", "--max-duration", "1h", "hi"],
            &["add --max-budget-usd, or set maxBudgetUsd in"],
        ),
        (&["--output", "json", "hi"], &["did you mean --output-format json?"]),
        (&["--output", "a.json", "hi"], &["did you mean --result-file?"]),
        (&["-o", "json", "hi"], &["did you mean --output-format json?"]),
        (&["--continue", "--resume", id, "hi"], &["--continue", "--resume", "together"]),
        (&["--resume", "nonesuch", "hi"], &["--resume", "nonesuch", "neither an id", "name"]),
        (&["--budget", "3", "hi"], &["unknown flag --budget", "did you mean --max-budget-usd?"]),
        (&["--json", "hi"], &["did you mean --output-format json?"]),
        (&["-C", "/no/such/folder", "hi"], &["-C /no/such/folder", "name a folder"]),
        (&["--image", "gone.png", "hi"], &["--image gone.png", "no such file"]),
        (
            &["--output-fields", "result", "--output-format", "stream-json", "hi"],
            &["--output-fields"],
        ),
        (
            &["--output-fields", "result,num_turn", "--output-format", "json", "hi"],
            &["--output-fields: \"num_turn\"", "did you mean num_turns?", "outlast help result"],
        ),
        (
            &["--output-fields", "nonesuch", "--output-format", "json", "hi"],
            &["\"nonesuch\" is not a field of the result"],
        ),
        (&["--session-id", "12", "hi"], &["--session-id", "UUID"]),
        (&["--session-id", id, "--resume", id, "hi"], &["--session-id", "--fork-session"]),
        (&["--fork-session", "hi"], &["--fork-session", "--resume"]),
        (&["--context-window", "abc", "hi"], &["\"abc\" is not a context window", "200k"]),
        (&["--context-window", "m=9", "hi"], &["\"m=9\"", "at least 1024"]),
        (&["--max-compactions", "-1", "hi"], &["--max-compactions", "\"-1\""]),
        (&["--max-compactions", "many", "hi"], &["--max-compactions", "\"many\""]),
        (&["--fallback-model", "m@", "hi"], &["\"m@\"", "begins with http"]),
        (&["--fallback-model", "m@nonsense", "hi"], &["\"m@nonsense\"", "nor a version"]),
        (&["--fallback-model", "m@my.host", "hi"], &["\"m@my.host\"", "begins with http"]),
        (&["--dead-path-timeout", "10s", "hi"], &["--dead-path-timeout", "at least 11s"]),
        (
            &["--settings", "{\"deadPathTimeout\": \"10s\"}", "hi"],
            &["deadPathTimeout", "at least 11s"],
        ),
        (
            &["--permission-mode", "plan", "--dangerously-skip-permissions", "hi"],
            &["--permission-mode plan", "--dangerously-skip-permissions", "contradict"],
        ),
        (
            &["--dangerously-skip-permissions", "--permission-mode=dontAsk", "hi"],
            &["--permission-mode dontAsk", "--dangerously-skip-permissions", "contradict"],
        ),
        (&["--input-format", "yaml", "hi"], &["--input-format", "is none of text"]),
        (
            &["--json-schema", "{\"$schema\": \"http://x.test/s\", \"type\": \"object\"}", "hi"],
            &[":1:13: /$schema", "http://x.test/s", "leave it out"],
        ),
        (&["--setting-sources", "user,moon", "hi"], &["--setting-sources", "\"moon\""]),
        (&["--max-thinking-tokens", "5", "hi"], &["--max-thinking-tokens", "1024"]),
        (&["--no-stdin=3", "hi"], &["--no-stdin", "no value"]),
    ];
    for (args, parts) in cases {
        refuses(args, parts);
    }
}

#[test]
fn mistakes_in_flags_of_rehearsals() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["rehearse", "nonesuch"], &["nonesuch", "--list"]),
        (&["rehearse", "hopelss"], &["hopelss", "did you mean hopeless?"]),
        (&["rehearse", "--from", "0199"], &["no session 0199", "outlast sessions --all-projects"]),
        (&["rehearse", "--from", "../x"], &["there is no session ../x"]),
        (&["rehearse", "hello", "--", "--max-turns", "0"], &["--max-turns", "at least 1"]),
    ];
    for (args, parts) in cases {
        refuses(args, parts);
    }
}

/// The result of a run is no output of other commands, and its help is not theirs.
#[test]
fn mistakes_in_words_of_other_commands_lead_to_their_help() {
    for (args, line) in [
        (&["doctor", "x"][..], "one argument too many: \"x\"; see outlast doctor --help"),
        (
            &["sessions", "show", "a", "b"],
            "one argument too many: \"b\"; see outlast sessions show --help",
        ),
        (
            &["doctor", "--max-turns", "3"],
            "unknown flag --max-turns; it is a flag of outlast run, and those stand after \"--\": \
             outlast doctor ... -- --max-turns (see outlast doctor --help)",
        ),
        (
            &["batch", "tasks.jsonl", "--permission-mod", "plan"],
            "unknown flag --permission-mod; did you mean --permission-mode? It is a flag of outlast \
             run, and those stand after \"--\": outlast batch ... -- --permission-mode (see outlast \
             batch --help)",
        ),
        (
            &["batch", "tasks.jsonl", "--job", "3"],
            "unknown flag --job; did you mean --jobs? (see outlast batch --help)",
        ),
        (
            &["auth", "statsu"],
            "\"statsu\" is not a command of outlast auth; did you mean outlast auth status?",
        ),
        (&["completions"], "<SHELL> is missing; see outlast completions --help"),
        (
            &["doctor", "--offline", "-C", "sub"],
            "-C stands before the command: outlast -C DIR doctor ...",
        ),
        (&["sessions", "-C", "sub"], "-C stands before the command: outlast -C DIR sessions ..."),
        (&["sessions", "show", "-1"], "unknown flag -1; see outlast sessions show --help"),
        (&["mcp", "list", "--json"], "unknown flag --json; see outlast mcp list --help"),
        (
            &["doctor", "--output-format", "json"],
            "unknown flag --output-format; did you mean --json? (see outlast doctor --help)",
        ),
    ] {
        let ended = BinaryFixture::new().run(args);
        let expected = (2, "", format!("outlast: {line}\n"));
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr), expected, "{args:?}");
    }
}

/// A word without flags may be a mistyped command: it is never sent to a model by itself.
#[test]
fn a_single_unknown_word_is_not_taken_as_a_prompt() {
    let cases: &[(&str, &[&str])] = &[
        ("doctro", &["\"doctro\" is not a command", "did you mean doctor?", "outlast run doctro"]),
        ("Doctor", &["did you mean doctor?"]),
        ("rehears", &["did you mean rehearse?"]),
        ("confg", &["did you mean config?"]),
        ("rnu", &["did you mean run?"]),
        ("versoin", &["did you mean version?"]),
        ("hlep", &["did you mean help?"]),
        ("sesions", &["did you mean sessions?"]),
        (
            "history",
            &["run, rehearse, doctor, config, sessions, report, batch, completions", "quotes"],
        ),
        (
            "login",
            &["\"login\" is not a command", "did you mean outlast help credentials", "run login"],
        ),
        ("README.md", &["outlast run README.md"]),
    ];
    for (word, parts) in cases {
        refuses(&[word], parts);
    }
}

/// Flags around it do not make a command a prompt.
#[test]
fn a_command_among_flags_is_not_taken_as_a_prompt() {
    let parse = |words: &[&str], name| {
        let words = words.iter().map(OsString::from).collect();
        args::parse_process(&CommandWords::new(words), name).map_err(|error| error.to_string())
    };
    for (words, part) in [
        (&["doctro", "--verbose"][..], "did you mean doctor?"),
        (&["--max-turns", "3", "sesions"], "did you mean sessions?"),
        (
            &["--verbose", "doctor"],
            "\"doctor\" is a command of outlast, and stands before its flags",
        ),
        (&["-q", "sessions"], "outlast run sessions ..."),
        (&["--model", "x", "login"], "did you mean outlast help credentials"),
        (&["--continue", "reprot"], "did you mean report?"),
    ] {
        let error = parse(words, ProgramName::Outlast).expect_err("no prompt");
        assert!(error.contains(part), "{words:?}: {error}");
    }
    for words in [
        &["run", "doctor", "--verbose"][..],
        &["-p", "sessions", "--verbose"],
        &["--verbose", "--", "doctor"],
        &["--resume", "latest", "continue"],
        &["hello", "--max-turns", "3"],
        &["doctor the report", "--verbose"],
    ] {
        let request = parse(words, ProgramName::Outlast);
        assert!(matches!(request, Ok(CliRequest::Run(_))), "{words:?}: {request:?}");
    }
    let dropped_in = parse(&["doctro", "--verbose"], ProgramName::Claude);
    assert!(matches!(dropped_in, Ok(CliRequest::Run(_))), "{dropped_in:?}");
}

/// The result file of a command line with a mistake stands where that of the run would.
#[test]
fn a_mistake_beside_a_folder_is_written_there() {
    let world = BinaryFixture::new().file("work/sub/keep", "");
    let ended = world.run(&["x y", "--result-file", "r.json", "-C", "sub", "--max-turns", "none"]);
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(world.work().join("sub/r.json").exists() && !world.work().join("r.json").exists());
}

#[test]
fn mistakes_in_files_and_folders() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["--add-dir", "gone", "hi"], &["--add-dir gone", "not a folder"]),
        (&["--system-prompt-file", "gone.md", "hi"], &["--system-prompt-file gone.md", "read"]),
        (&["--append-system-prompt-file", "gone.md", "hi"], &["gone.md", "read"]),
        (&["--result-file", "gone/r.json", "hi"], &["--result-file gone/r.json", "folder"]),
        (&["--result-file", ".", "hi"], &["--result-file", "is a folder"]),
        (&["--result-file", "-", "hi"], &["--result-file -: standard output has the result"]),
        (&["--result-file", "/dev/stdout", "hi"], &["standard output has the result already"]),
        (&["--heartbeat-file=./-", "hi"], &["standard output has the result already; name a"]),
        (&["--ca-file", "gone.pem", "hi"], &["gone.pem", "correct --ca-file"]),
        (&["--heartbeat-file", "gone/h", "hi"], &["--heartbeat-file gone/h", "folder"]),
        (&["--settings", "gone.json", "hi"], &["gone.json", "cannot be read"]),
        (&["--add-dir=~/gone", "~/gone is"], &["--add-dir ~/gone: ", ": write $HOME/gone"]),
        (&["-C", "~/gone", "hi"], &["-C ~/gone: ", "as it is: write $HOME/gone"]),
    ];
    for (args, parts) in cases {
        refuses(args, parts);
    }
}

#[test]
fn a_budget_without_a_price() {
    refuses(
        &["--model", "nonesuch-1", "--max-budget-usd", "1", "hi"],
        &["nonesuch-1", "no price is known", "--price"],
    );
    refuses(&["--price", "model-a=3", "hi"], &["--price", "model-a=3", "IN/OUT"]);
    refuses(&["--price", "model-a=3/-1", "hi"], &["--price", "IN/OUT"]);
}

#[test]
fn blank_prompts_are_refused() {
    refuses(&[], &["prompt is empty"]);
    refuses(&[""], &["prompt argument is empty"]);
    refuses(&[" \n\t"], &["prompt argument is empty"]);
    refuses(&["-"], &["prompt is empty"]);
    refuses(&["--stdin"], &["prompt is empty"]);
    refuses(&["--no-stdin"], &["no prompt", "--no-stdin"]);
    refuses(&["--no-stdin", "-"], &["prompt -", "--no-stdin"]);
    refuses(&["--no-stdin", "--stdin", "hi"], &["--no-stdin", "--stdin", "together"]);
}

#[test]
fn stdin_that_is_not_text_is_refused() {
    let cases: &[(&[u8], &str)] = &[
        (b"one\n\0\0\0", "NUL at line 2, byte 5"),
        (b" \n ", "prompt is empty"),
        (b"", "prompt is empty"),
    ];
    for (input, part) in cases {
        let world = BinaryFixture::new();
        check(&["-"], &world.run_with_input(&["-"], input), &[part]);
    }
    let (world, large) = (BinaryFixture::new(), vec![b'x'; 10 * 1024 * 1024 + 1]);
    check(&["-"], &world.run_with_input(&["-"], &large), &["larger than 10 MB"]);
}

#[test]
fn arguments_that_are_not_utf_8_are_refused() {
    let world = BinaryFixture::new();
    for odd in [&b"--add-dir=fix \xff"[..], b"--tools=\xff", b"--result-file=\xff"] {
        let odd = std::ffi::OsStr::from_bytes(odd);
        let output = world.command(&["--max-turns", "3", "hi"]).arg(odd).output().unwrap();
        check(&[], &ProcessResult::of(&output), &["argument 4", "UTF-8"]);
    }
}

#[test]
fn texts_for_the_model_that_are_not_utf_8_are_read_with_a_warning() {
    for (words, index) in [
        (&[&b"--max-turns"[..], b"3", b"caf\xe9"][..], 3),
        (&[b"-p", b"--", b"caf\xe9"], 3),
        (&[b"run", b"caf\xe9"], 2),
        (&[b"hi", b"--append-system-prompt", b"caf\xe9"], 3),
        (&[b"hi", b"--systemPrompt=caf\xe9"], 2),
    ] {
        let words = words.iter().map(|word| OsString::from_vec(word.to_vec())).collect();
        let request = args::parse_process(&CommandWords::new(words), ProgramName::Outlast);
        let Ok(CliRequest::Run(run)) = request else { panic!("{request:?}") };
        let texts = [&run.prompt, &run.model.append_system_prompt, &run.model.system_prompt];
        let is_read = |text: &&Option<String>| text.as_deref() == Some("caf\u{fffd}");
        assert_eq!(texts.iter().filter(|text| is_read(text)).count(), 1, "{texts:?}");
        let warning = run.encoding_warning.expect("a warning");
        assert!(warning.starts_with(&format!("argument {index} is not valid UTF-8")), "{warning}");
    }
}

#[test]
fn a_prompt_that_looks_like_a_flag_with_a_value_is_a_prompt_or_names_the_dashes() {
    let parse = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        match args::parse(&words) {
            Ok(CliRequest::Run(run)) => Ok(run.prompt.unwrap_or_default()),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    };
    for (words, prompt) in [
        (&["-p=fix it now"][..], "fix it now"),
        (&["--model=my model", "go"], "go"),
        (&["--print=fix it now"], "fix it now"),
        (&["--", "--model=x is not passed on"], "--model=x is not passed on"),
    ] {
        assert_eq!(parse(words).as_deref(), Ok(prompt), "{words:?}");
    }
    for words in [
        &["-p", "--retries=3 is ignored by our CLI, fix it"][..],
        &["-p", "--forbid=Bash(rm *) and more"],
        &["run", "--color-mode=x has no effect"],
        &["-p", "-DFOO=1 breaks the build", "--model", "haiku"],
        &["-p", "--max-turns=5 has no effect, find out why"],
        &["-p", "--output-format=json prints nothing"],
        &["-p", "--model=x is not passed on: fix", "--output-format", "json"],
        &["--append-sytem-prompt=Be terse, please"],
    ] {
        let error = parse(words).expect_err("a mistake");
        assert!(error.contains("a prompt that begins with \"-\" stands after \"--\""), "{error}");
    }
    for (words, parts) in [
        (&["exec", "fix the bug"][..], ["\"exec\" is not a command", "outlast run PROMPT"]),
        (&["ask", "-p", "fix the bug"], ["\"ask\" is not a command", "outlast run PROMPT"]),
        (
            &["hi", "--append-system-prompt", "-terse"],
            ["value of --append-system-prompt", "=-terse"],
        ),
        (&["fix", "the", "bug"], ["one argument too many", "in quotes"]),
    ] {
        let error = parse(words).expect_err("a mistake");
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
}

#[test]
fn invalid_environment_variables_are_refused() {
    let cases = [
        ("CLAUDE_CODE_MAX_RETRIES", "many"),
        ("API_TIMEOUT_MS", "soon"),
        ("BASH_DEFAULT_TIMEOUT_MS", "2m"),
        ("OUTLAST_UNATTENDED_RETRY", "maybe"),
        ("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "-1"),
        ("ANTHROPIC_CUSTOM_HEADERS", "no colon"),
        ("ANTHROPIC_BASE_URL", "example.com"),
    ];
    for (name, value) in cases {
        let world = BinaryFixture::new().with(name, value);
        check(&[], &world.run(&["run", "hi"]), &[name]);
    }
}

#[test]
fn a_missing_credential_has_an_exit_code_of_its_own() {
    let world = BinaryFixture::new().without("ANTHROPIC_API_KEY").without("ANTHROPIC_BASE_URL");
    let ended = world.run(&["run", "hi"]);
    assert_eq!(ended.code, 77);
    assert!(ended.line().contains("ANTHROPIC_API_KEY"));
    let result = ended.result();
    assert_eq!(result["exit_code"], 77);
    assert_eq!(result["api_error_class"], "invalid_api_key");
}

#[test]
fn a_cloud_without_its_region_is_named_and_no_other_service_is_called() {
    let clouds = [
        ("CLAUDE_CODE_USE_BEDROCK", "Amazon Bedrock", "AWS_REGION"),
        ("CLAUDE_CODE_USE_VERTEX", "Google Vertex AI", "CLOUD_ML_REGION"),
        ("CLAUDE_CODE_USE_FOUNDRY", "Microsoft Foundry", "ANTHROPIC_FOUNDRY_RESOURCE"),
    ];
    for (variable, cloud, missing) in clouds {
        for yes in ["1", "true", "YES", " on ", "2"] {
            // A base URL is set as well.
            let world = BinaryFixture::new().with(variable, yes);
            check(&[], &world.run(&["run", "hi"]), &[cloud, missing]);
        }
        for no in ["", "0", "False", "no", "off"] {
            let ended = BinaryFixture::new().with(variable, no).run(&["--require", "", "hi"]);
            assert!(ended.line().contains("--require"), "{variable}={no}: {ended:?}");
        }
    }
}

#[test]
fn an_empty_credential_variable_is_named() {
    let world = BinaryFixture::new().without("ANTHROPIC_BASE_URL").with("ANTHROPIC_API_KEY", " ");
    let ended = world.run(&["run", "hi"]);
    assert_eq!(ended.code, 77);
    assert!(ended.line().contains("ANTHROPIC_API_KEY is set and empty"), "{}", ended.line());
    let both = world.with("ANTHROPIC_AUTH_TOKEN", "").run(&["run", "hi"]);
    assert!(both.line().contains("ANTHROPIC_API_KEY and ANTHROPIC_AUTH_TOKEN are set and empty"));
}

#[test]
fn one_file_for_two_outputs_is_refused_and_holds_the_result() {
    let world = BinaryFixture::new();
    let args = ["--result-file", "r.json", "--last-message-file", "./r.json", "hi"];
    let ended = world.run(&args);
    let both = "--result-file and --last-message-file both name ./r.json";
    check(&args, &ended, &[both, "a file of its own"]);
    let kept = std::fs::read_to_string(world.work().join("r.json")).expect("the result");
    let kept: serde_json::Value = serde_json::from_str(&kept).expect("one object");
    assert_eq!(kept, ended.result());
}

#[test]
fn a_credential_that_cannot_be_sent_is_named() {
    for name in ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"] {
        let ended = BinaryFixture::new().with(name, "sk-ant-a\nsk-ant-b").run(&["run", "hi"]);
        assert_eq!(ended.code, 2, "{ended:?}");
        assert!(ended.line().contains(&format!("put only the key into {name}")), "{ended:?}");
    }
}

#[test]
fn a_usage_error_in_text_format_leaves_stdout_empty() {
    for args in [
        &["--output-format", "text", "--max-turns", "0", "hi"][..],
        &["--max-turns", "0", "hi", "--outputFormat=text"],
    ] {
        let ended = BinaryFixture::new().run(args);
        assert_eq!((ended.code, ended.stdout.as_str()), (2, ""));
        assert!(ended.line().contains("--max-turns"));
    }
}
