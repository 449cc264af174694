//! TASKS: every mistake names its line, and nothing is started.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use outlast::batch::{TaskLimits, read_tasks};
use outlast::recovery::Money;
use outlast::rehearsal::Scenario;
use serde_json::json;

use super::fixture::{BatchFixture, end};

#[test]
fn a_task_has_defaults_and_relative_paths_begin_at_its_file() {
    let base = tempfile::tempdir().expect("a scratch folder");
    fs::write(base.path().join("p.md"), "From a file.\n").expect("a new file");
    let text = "{\"prompt\": \"One.\"}\n\n\
                {\"id\": \"b\", \"prompt_file\": \"p.md\", \"cwd\": \"w\", \"flags\": [\"--verbose\"],\
                 \"limits\": {\"max_turns\": 3, \"max_budget_usd\": 0.5, \"max_duration\": \"5m\"}}\n\
                {\"prompt\": \"Three.\", \"git\": {\"repository\": \"https://a.example/r\"}}\n";
    let unset = "{\"prompt\":\"Four.\",\"id\":null,\"cwd\":null,\"git\":null,\"prompt_file\":null,\
                 \"flags\":null,\"limits\":{\"max_turns\":null}}\n";
    let tasks = read_tasks("t.jsonl", unset, (base.path(), None)).expect("what is null is not set");
    assert_eq!((tasks[0].prompt.as_str(), &tasks[0].limits), ("Four.", &TaskLimits::default()));
    let tasks = read_tasks("t.jsonl", text, (base.path(), None)).expect("good tasks");
    assert_eq!(tasks.iter().map(|task| task.line).collect::<Vec<_>>(), [1, 3, 4]);
    assert_eq!(tasks[1].prompt, "From a file.\n");
    assert_eq!(tasks[1].cwd.as_deref(), Some(base.path().join("w").as_path()));
    assert_eq!(tasks[1].limits.max_turns, Some(3));
    assert_eq!(tasks[1].limits.max_duration.as_deref(), Some("5m"));
    assert_eq!(tasks[2].git.as_ref().map(|git| git.reference.clone()), Some(None));
    let at_home = "{\"prompt_file\": \"~/p.md\", \"cwd\": \"~/w\"}\n\
                   {\"prompt\": \"Five.\", \"git\": {\"repository\": \"~/r\"}}\n";
    let folders = (Path::new("/tasks"), Some(base.path()));
    let tasks = read_tasks("t.jsonl", at_home, folders).expect("good tasks");
    assert_eq!(tasks[0].prompt, "From a file.\n");
    assert_eq!(tasks[0].cwd.as_deref(), Some(base.path().join("w").as_path()));
    let cloned = tasks[1].git.as_ref().map(|git| git.repository.as_str());
    assert_eq!(cloned, base.path().join("r").to_str());
}

#[test]
fn every_mistake_names_file_line_and_remedy() {
    for (line, said) in [
        ("", "there is no task; write one JSON object on each line"),
        ("{\"prompt\": \"x\"", "column 14: not valid JSON"),
        ("[1]", "a task is a JSON object"),
        ("[]", "there is no task"),
        ("[{\"prompt\": \"x\"},", "the list has no closing ]"),
        ("[{\"prompt\": \"x\"},,]", "column 18: not valid JSON"),
        ("[{\"prompt\": \"x\"}] [", "more text follows the list"),
        ("{\"prompt\": \"x\"} {\"prompt\": \"x\"", "not valid JSON"),
        ("- prompt: x", "a task is a JSON object"),
        ("prompt,cwd", "a task is a JSON object"),
        ("{\"tasks\": []}", "did you mean [{\"prompt\": ...}], the list alone?"),
        ("{\"name\": \"a\"}", "unknown key \"name\"; did you mean \"id\"?"),
        ("{\"text\": \"a\"}", "unknown key \"text\"; did you mean \"prompt\"?"),
        ("{\"working_directory\": \"a\"}", "did you mean \"cwd\"?"),
        ("{\"env\": \"a\"}", "unknown key \"env\"; the keys are"),
        ("{\"prompt\":\"x\",\"maxTurns\":3}", "did you mean \"limits\": {\"max_turns\": 20}?"),
        ("{\"prompt\":\"x\",\"limits\":{\"timeout\":3}}", "did you mean \"max_duration\"?"),
        ("{\"prompt\":\"x\",\"limits\":{\"max_duration\":-5}}", "is not a duration"),
        ("{\"promt\": \"x\"}", "unknown key \"promt\"; did you mean \"prompt\"?"),
        ("{\"prompt\":\"x\",\"colour\":1}", "unknown key \"colour\"; the keys are id, prompt,"),
        ("{\"prompt\":\"x\",\"prompt\":\"y\"}", "key \"prompt\" is given twice"),
        ("{\"id\":\"a\"}", "a task needs a prompt or a prompt_file"),
        ("{\"prompt\":\" \"}", "the prompt is empty"),
        ("{\"prompt\":\"-\"}", "would read standard input"),
        ("{\"prompt\":1}", "prompt must be a text, and is a number"),
        ("{\"prompt\":\"x\",\"prompt_file\":\"y\"}", "prompt and prompt_file exclude each other"),
        ("{\"prompt_file\":\"none.md\"}", "prompt_file /base/none.md cannot be read"),
        ("{\"prompt\":\"x\",\"id\":\"\"}", "id must have 1 to 200 characters"),
        ("{\"prompt\":\"x\",\"flags\":\"-v\"}", "flags must be a list of texts"),
        ("{\"prompt\":\"x\",\"flags\":[true]}", "flags must be a list of texts"),
        ("{\"prompt\":\"x\",\"git\":\"r\"}", "git must be an object, and is a text"),
        ("{\"prompt\":\"x\",\"git\":{}}", "git.repository is missing"),
        ("{\"prompt\":\"x\",\"git\":{\"repository\":\"--x\"}}", "git.repository must not"),
        (
            "{\"prompt\":\"x\",\"git\":{\"repository\":\"r\",\"rev\":\"1\"}}",
            "did you mean \"ref\"?",
        ),
        ("{\"prompt\":\"x\",\"cwd\":\"w\",\"git\":{\"repository\":\"r\"}}", "cwd and git exclude"),
        ("{\"prompt\":\"x\",\"limits\":{\"max_turn\":1}}", "\"limits.max_turn\"; did you mean"),
        ("{\"prompt\":\"x\",\"limits\":{\"max_turns\":0}}", "limits.max_turns must be a whole"),
        ("{\"prompt\":\"x\",\"limits\":{\"max_turns\":1.5}}", "limits.max_turns must be a whole"),
        (
            "{\"prompt\":\"x\",\"limits\":{\"max_turns\":\"3x\"}}",
            "limits.max_turns must be a whole",
        ),
        ("{\"prompt\":\"x\",\"limits\":{\"max_budget_usd\":-1}}", "limits.max_budget_usd must be"),
        (
            "{\"prompt\":\"x\",\"limits\":{\"max_budget_usd\":\"NaN\"}}",
            "limits.max_budget_usd must be",
        ),
        (
            "{\"prompt\":\"x\",\"limits\":{\"max_budget_usd\":1e999}}",
            "limits.max_budget_usd must be",
        ),
        ("{\"prompt\":\"x\",\"limits\":{\"max_budget_usd\":-0}}", "limits.max_budget_usd must be"),
        ("{\"prompt\":\"x\",\"limits\":{\"max_budget_usd\":NaN}}", "column 42: not valid JSON"),
        (
            "{\"prompt\":\"x\",\"limits\":{\"max_duration\":true}}",
            "limits.max_duration must be a text",
        ),
        ("{\"prompt\":\"x\",\"limits\":{\"max_duration\":\"5 x\"}}", "is not a duration; write it"),
    ] {
        let errors = read_tasks("t.jsonl", line, (Path::new("/base"), None)).expect_err(line);
        let first = errors.first().expect("a mistake").to_string();
        assert!(first.starts_with("t.jsonl:1: ") && first.contains(said), "{line}: {first}");
    }
    let twice = "{\"id\":\"a\",\"prompt\":\"x\"}\n{\"id\":\"a\",\"prompt\":\"y\"}\n";
    let errors = read_tasks("t", twice, (Path::new("/"), None)).expect_err("the same id");
    assert_eq!(errors[0].to_string(), "t:2: line 1 has the id \"a\", too; ids are unique");
}

#[test]
fn tasks_may_be_printed_by_other_programs() {
    let read = |text: &str| {
        let tasks = read_tasks("t.json", text, (Path::new("/"), None))
            .unwrap_or_else(|why| panic!("{why:?}"));
        let task = |task: outlast::batch::TaskLine| (task.line, task.id.unwrap_or_default());
        tasks.into_iter().map(task).collect::<Vec<_>>()
    };
    let wanted = [(2, "7".to_owned()), (6, "b".to_owned())];
    let objects =
        "\n{\n  \"id\": 7,\n  \"prompt\": \"x\"\n}\n{\n  \"id\": \"b\",\n  \"prompt\": \"y\"\n}\n";
    assert_eq!(read(objects), wanted);
    let list = objects.replacen('\n', "[\n", 1).replace("}\n{", "},\n{") + "]\n";
    assert_eq!(read(&list), wanted);
    let pair = "[{\"id\":1,\"prompt\":\"x\"},{\"id\":2,\"prompt\":\"x\"}]";
    assert_eq!(read(pair).len(), 2);
    assert_eq!(read(&format!("\u{feff}{pair}")).len(), 2);
    let mistaken = list.replace("\"b\"", "\"\"");
    let errors = read_tasks("t.json", &mistaken, (Path::new("/"), None)).expect_err("an empty id");
    assert!(errors[0].to_string().starts_with("t.json:6: id must have"), "{errors:?}");
    let timed = "{\"prompt\":\"x\",\"limits\":{\"max_duration\":90}}";
    let tasks = read_tasks("t.json", timed, (Path::new("/"), None)).expect("seconds");
    assert_eq!(tasks[0].limits.max_duration.as_deref(), Some("90"));
    let limits = r#""limits":{"max_turns":"2","max_budget_usd":"0.5"},"flags":["--max-retries",3]"#;
    for limits in [r#""limits":{"max_turns":2.0}"#, limits] {
        let text = format!("{{\"prompt\":\"x\",{limits}}}");
        let tasks = read_tasks("t.json", &text, (Path::new("/"), None)).expect("numbers");
        assert_eq!(tasks[0].limits.max_turns, Some(2));
        let is_whole = limits.contains("2.0");
        assert_eq!(tasks[0].limits.max_budget, Money::from_dollars(0.5).filter(|_| !is_whole));
        assert_eq!(tasks[0].flags.len(), if is_whole { 0 } else { 2 });
    }
}

#[test]
fn comments_and_commas_between_tasks_are_left_out_and_lines_keep_their_numbers() {
    let lines = |text: &str| {
        let tasks = read_tasks("t.json", text, (Path::new("/"), None))
            .unwrap_or_else(|why| panic!("{why:?}"));
        tasks.into_iter().map(|task| task.line).collect::<Vec<_>>()
    };
    let one = r#"{"prompt":"x # y"}"#;
    assert_eq!(lines(&format!("# tasks\n{one}\n  // {one}\n{one}\n")), [2, 4]);
    assert_eq!(lines(&format!("{one},\r\n{one},\r\n")), [1, 2]);
    assert_eq!(lines(&format!("[\n{one},\n# {one},\n{one},\n]\n")), [2, 4]);
    assert_eq!(lines(&format!("{one}{one}")), [1, 1]);
    let errors = |text: &str| {
        let errors = read_tasks("t", text, (Path::new("/"), None)).expect_err(text);
        errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    // The one mistake, at its own place.
    let said = errors(&format!("[\n  {one},\n  {{\"prompt\": }},\n  {one}\n]\n"));
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("t:3: column 14: not valid JSON: "), "{said:?}");
    let said = errors("{\n  \"prompt\": \"x\"\n  \"id\": 1\n}\n");
    assert!(said.len() == 1 && said[0].starts_with("t:3: column 3: not valid JSON"), "{said:?}");
    // Each malformed line.
    let said = errors(&format!("{one},\n{{\"prompt\"\n{one}\n{{\n"));
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].starts_with("t:2: ") && said[1].starts_with("t:4: "), "{said:?}");
}

#[tokio::test]
async fn tasks_are_read_from_standard_input() {
    let fixture = BatchFixture::new(Scenario::new().reply("Done.")).tasks(1, |_| json!({}));
    let file = fixture.path().join("tasks.jsonl");
    let tasks = fs::read(&file).expect("written");
    // A shell may have read the first line of a file, and Node.js connects its children by sockets.
    fs::write(&file, [&b"header\n"[..], &tasks].concat()).expect("ours");
    let mut rest = fs::File::open(&file).expect("written");
    rest.seek(SeekFrom::Start(7)).expect("a file");
    let words = ["batch", "-", "--dir", "batch", "--", "--sandbox", "off"];
    let ended = end(fixture.outlast(&words).stdin(rest).spawn().expect("built")).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(fixture.result(0)["result"], "Done.");
    let (mut ours, theirs) = UnixStream::pair().expect("a socket");
    ours.write_all(&tasks).expect("it has room");
    drop(ours);
    let stdin = Stdio::from(OwnedFd::from(theirs));
    let ended = end(fixture.outlast(&words).stdin(stdin).spawn().expect("built")).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[tokio::test]
async fn silent_sources_of_tasks_are_given_up() {
    let fixture = BatchFixture::new(Scenario::new());
    let (ours, theirs) = UnixStream::pair().expect("a socket");
    let stdin = Stdio::from(OwnedFd::from(theirs));
    let words = ["batch", "-", "--", "--stdin-timeout", "100ms"];
    let ended = end(fixture.outlast(&words).stdin(stdin).spawn().expect("built")).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("standard input stayed silent"), "{ended:?}");
    drop(ours);
    // Like a process substitution of a shell, whose program may take long.
    let pipe = fixture.path().join("pipe");
    mkfifo(&pipe, Mode::S_IRWXU).expect("a pipe can be made");
    let words = ["batch", "pipe", "--", "--stdin-timeout", "100ms"];
    // In this order: what another test starts has a copy of the writer for a while.
    for has_writer in [false, true] {
        let writer = || fs::File::options().read(true).write(true).open(&pipe).expect("it is ours");
        let _writer = has_writer.then(writer);
        let ended = end(fixture.outlast(&words).spawn().expect("built")).await;
        assert_eq!(ended.code, Some(2), "{has_writer}: {ended:?}");
        assert!(ended.stderr.contains("TASKS pipe stayed silent"), "{has_writer}: {ended:?}");
        assert!(ended.stderr.contains("write the tasks to a file"), "{ended:?}");
    }
}

#[tokio::test]
async fn a_mistake_is_one_line_with_exit_2_and_nothing_is_started() {
    let fixture = BatchFixture::new(Scenario::new());
    let good = "{\"prompt\":\"Do it.\"}";
    let write = |text: &str| fs::write(fixture.path().join("tasks.jsonl"), text).expect("ours");
    for (tasks, args, said) in [
        ("{\"promt\":1}", &[][..], "tasks.jsonl:1: unknown key \"promt\""),
        (
            &format!("{good}\n{{\"prompt\":\"x\",\"flags\":[\"--max-turms\",\"1\"]}}"),
            &[],
            "tasks.jsonl:2: flags: ",
        ),
        (
            &format!("{good}\n{{\"prompt\":\"x\",\"flags\":[\"--resume\",\"1\"]}}"),
            &[],
            "tasks.jsonl:2: flags: --resume is set by the batch",
        ),
        (
            "{\"prompt\":\"x\",\"flags\":[\"--max-turns 3\"]}",
            &[],
            "tasks.jsonl:1: flags: a flag and its value are given as one word; give two",
        ),
        (
            "{\"prompt\":\"x\",\"flags\":[\"hello you\"]}",
            &[],
            "tasks.jsonl:1: flags: a word without a flag",
        ),
        (
            "{\"prompt\":\"x\",\"flags\":[\"--max-budget-usd\",\"1\"]}",
            &[],
            "--max-budget-usd is given by limits.max_budget_usd",
        ),
        ("{\"prompt\":\"x\",\"cwd\":\"nowhere\"}", &[], "tasks.jsonl:1: cwd "),
        ("{\"prompt\":\"x\",\"flags\":[\"--permission-mode\",\"wild\"]}", &[], "tasks.jsonl:1"),
        (good, &["--", "-w", "../x"], "after --: --worktree \"../x\" is not a valid name"),
        (good, &["--", "--result-file", "x"], "after --: --result-file is set by the batch"),
        (good, &["--id", "My Batch"], "--id \"My Batch\" is not a valid id of a batch"),
        (good, &["--jobs", "0"], "--jobs"),
        (good, &["--engine", "cloud"], "local, slurm, kubernetes"),
        (good, &["--engine", "kubernetes", "--render"], "--image is missing"),
        (good, &["--image", "i"], "--image is for --engine kubernetes"),
        (good, &["--render"], "--render needs another engine than local"),
        (good, &["--engine", "slurm", "--max-duration", "1h"], "--max-duration is not known"),
        (good, &["--max-budget-usd", "0.0000001"], "--max-budget-usd"),
        (good, &["--jobs", "0"], "--jobs: \"0\" must be a whole number, at least 1"),
        (good, &["--attempts", "many"], "--attempts: \"many\" must be a whole number\n"),
        (
            "{\"prompt\":\"x\",\"limits\":{\"max_budget_usd\":2}}",
            &["--max-budget-usd", "1"],
            "add up to $2.0000",
        ),
    ] {
        write(tasks);
        let ended = fixture.call(&[&["batch", "tasks.jsonl"], args].concat()).await;
        assert_eq!(ended.code, Some(2), "{tasks} {args:?} {ended:?}");
        assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
        assert!(ended.stderr.contains(said), "{said}: {ended:?}");
        assert_eq!(ended.stdout, "", "{ended:?}");
    }
    write(good);
    for (words, said) in [
        (&["batch"][..], "TASKS is missing"),
        (&["batch", "run", "tasks.jsonl"], "by their file alone: outlast batch TASKS"),
        (&["batch", "none.jsonl"], "none.jsonl cannot be read"),
        (&["batch", "status", "none"], "name the folder of a batch, or its id"),
        (&["batch", "worker", "none"], "name the folder of a batch, or its id"),
    ] {
        let ended = fixture.call(words).await;
        assert_eq!((ended.code, ended.stderr.lines().count()), (Some(2), 1), "{ended:?}");
        assert!(ended.stderr.contains(said), "{said}: {ended:?}");
    }
    assert!(fixture.server.requests().is_empty());
    let tasks = fixture.path().join("home/.outlast/batch");
    let begun = fs::read_dir(&tasks).into_iter().flatten().filter_map(Result::ok);
    for batch in begun {
        assert!(!batch.path().join("tasks").exists(), "{:?}", batch.path());
    }
}

#[tokio::test]
async fn a_missing_engine_is_one_line_and_exit_2() {
    let fixture = BatchFixture::new(Scenario::new()).tasks(1, |_| serde_json::Value::Null);
    for args in [&["--engine", "slurm"][..], &["--engine", "k8s", "--image", "i"]] {
        let words = [&["batch", "tasks.jsonl", "--dir", "batch"], args].concat();
        let mut command = fixture.outlast(&words);
        let child = command.env("PATH", "/nowhere").spawn().expect("it starts");
        let ended = super::fixture::end(child).await;
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains("was not found on PATH; install it"), "{ended:?}");
        assert!(!fixture.batch().exists(), "nothing was planned");
    }
}
