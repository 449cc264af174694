//! A repository with agents, commands and skills, as users of other tools have them.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use outlast::rehearsal::{RehearsalServer, Scenario};
use serde_json::{Value, json};

use super::outcomes::agrees;
use crate::support::scratch::write_file;
use crate::support::{FinishedProcess, RunBuilder, serve};

fn plant(folder: &Path, name: &str, text: &str) {
    write_file(&folder.join(name), text);
}

/// Writes the files of a repository of this kind.
fn furnish(work: &Path) {
    plant(work, ".git/HEAD", "ref: refs/heads/main\n");
    plant(
        work,
        ".claude/agents/code-reviewer.md",
        "---\nname: code-reviewer\ndescription: Use it after changes. Examples: user: \"done\"\n\
         tools: Read, Grep, Glob\nmodel: inherit\ncolor: blue\n---\n\nYou review code.\n",
    );
    plant(
        work,
        ".claude/commands/fix-issue.md",
        "---\ndescription: Fix an issue\nargument-hint: [number] [priority]\n---\n\
         Fix issue $0 with priority $ARGUMENTS[1].\nAll: $ARGUMENTS\n",
    );
    plant(
        work,
        ".claude/commands/git/commit.md",
        "---\nallowed-tools: Bash(touch *)\n---\nStatus: !`git status`\nCommit.\n",
    );
    plant(
        work,
        ".claude/skills/tables/SKILL.md",
        "---\nname: tables\ndescription: Draws tables\n---\nSee [more](more.md).\n",
    );
    plant(work, ".claude/skills/tables/more.md", "Tables have rows.\n");
}

/// The user's prompt in the first request.
fn said(server: &RehearsalServer) -> String {
    let message = &server.requests()[0].body["messages"][0]["content"];
    let blocks = message.as_array().expect("a list of blocks");
    blocks.iter().filter_map(|block| block["text"].as_str()).collect()
}

fn system(server: &RehearsalServer) -> String {
    server.requests()[0].body["system"].to_string()
}

fn init(ended: &FinishedProcess) -> Value {
    let frames = ended.frames();
    frames.into_iter().find(|frame| frame["subtype"] == "init").expect("there is one")
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().expect("a list").iter().filter_map(Value::as_str).collect()
}

#[tokio::test]
async fn a_repository_configured_for_other_tools_is_used_unchanged() {
    let server = serve(Scenario::new().reply("Fixed."));
    let trial = RunBuilder::bare(&server.base_url()).args(["--output-format", "stream-json"]);
    furnish(&trial.work());
    let ended = trial.args(["/fix-issue 42 'very high'"]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stderr, "", "nothing is amiss");
    assert_eq!(agrees(&ended)["result"], "Fixed.");
    let expected = "Fix issue 42 with priority very high.\nAll: 42 'very high'";
    assert_eq!(said(&server), expected);
    let init = init(&ended);
    assert_eq!(names(&init["slash_commands"]), ["tables", "fix-issue", "git:commit"]);
    assert_eq!(names(&init["skills"]), ["tables"]);
    assert!(names(&init["agents"]).contains(&"code-reviewer"), "{init}");
    assert!(system(&server).contains("- tables: Draws tables ("), "{}", system(&server));
}

#[tokio::test]
async fn the_model_reads_a_skill_from_wherever_the_run_works() {
    let scenario = |folder: &str| {
        let file = |name: &str| json!({ "file_path": format!("{folder}/{name}") });
        Scenario::new().tool("Read", file("SKILL.md")).tool("Read", file("more.md")).reply("Read.")
    };
    // In the repository, above the folder that is worked in.
    let server = serve(scenario("../.claude/skills/tables"));
    let trial = RunBuilder::bare(&server.base_url());
    furnish(&trial.work());
    fs::create_dir(trial.work().join("part")).expect("a folder");
    let ended = trial.in_shell("cd part && exec \"$@\"").args(["draw it"]).run().await;
    assert_eq!(ended.result()["permission_denials"], json!([]), "{ended:?}");
    // In outlast's own folder, which is otherwise kept from the model.
    let server = serve(scenario("../config/skills/mine"));
    let trial = RunBuilder::bare(&server.base_url());
    plant(&trial.config(), "skills/mine/SKILL.md", "---\ndescription: Mine\n---\nDo it.");
    plant(&trial.config(), "skills/mine/more.md", "More.");
    let ended = trial.args(["/mine so"]).run().await;
    assert_eq!(ended.result()["permission_denials"], json!([]), "{ended:?}");
    assert!(
        said(&server).starts_with("Do it.\n\nArguments: so\n\n(The files"),
        "{}",
        said(&server)
    );
    let server = serve(scenario("../config"));
    let ended = RunBuilder::bare(&server.base_url()).args(["draw it"]).run().await;
    let denials = ended.result()["permission_denials"].as_array().map(Vec::len);
    assert_eq!(denials, Some(2), "nothing else is open: {ended:?}");
}

#[tokio::test]
async fn allowed_tools_of_a_trusted_slash_command_apply_to_its_run() {
    let touches =
        || Scenario::new().tool("Bash", json!({ "command": "touch made" })).reply("Done.");
    for (trust, prompt, made) in [
        ("--trust-project", "/commit", true),
        ("--trust-project", "/git:commit", true),
        ("--trust-project", "commit", false),
        ("--log-detail", "/commit", false),
    ] {
        let server = serve(touches());
        let trial =
            RunBuilder::bare(&server.base_url()).args(["--output-format", "stream-json", trust]);
        furnish(&trial.work());
        let ended = trial.args([prompt]).run().await;
        assert_eq!(ended.work().join("made").exists(), made, "{trust} {prompt}: {ended:?}");
        let ignored = init(&ended)["ignored_settings"].to_string();
        assert_eq!(ignored.contains("allowed-tools"), trust == "--log-detail", "{ignored}");
        assert_eq!(ended.result()["ignored_settings"].to_string(), ignored);
        let called = prompt.starts_with('/');
        assert_eq!(said(&server).contains("Status: !`git status`"), called, "it is left as it is");
        assert_eq!(ended.stderr.contains("are not run before"), called, "{}", ended.stderr);
    }
}

#[tokio::test]
async fn a_command_chooses_the_model_unless_a_flag_does() {
    for (flags, expected) in
        [(&[][..], "my-model"), (&["--model", "other-model"][..], "other-model")]
    {
        let server = serve(Scenario::new().reply("Done."));
        let trial = RunBuilder::bare(&server.base_url()).args(flags);
        plant(
            &trial.config(),
            "commands/quick.md",
            "---\nmodel: my-model\nallowed-tools: Bash(ls, Read\n---\nBe quick",
        );
        let id = "0198c0de-0000-7000-8000-000000000001";
        let ended = trial.args(["--session-id", id, "/quick"]).run().await;
        assert_eq!(server.requests()[0].body["model"], expected, "{ended:?}");
        assert_eq!(ended.result()["session_id"], id);
        assert!(ended.stderr.contains("quick.md: allowed-tools: \"Bash(ls, Read\""), "{ended:?}");
    }
}

#[tokio::test]
async fn an_unknown_slash_command_is_rejected_before_the_run() {
    let rows = [
        ("/fix-isue 1", "did you mean /fix-issue?"),
        ("/zzz", "there are /"),
        ("/compact now", "summarises a conversation by itself"),
        ("/login", "for interactive use"),
    ];
    for (prompt, expected) in rows {
        let server = serve(Scenario::new().reply("Never."));
        let trial = RunBuilder::bare(&server.base_url());
        furnish(&trial.work());
        let ended = trial.args([prompt]).run().await;
        assert_eq!((ended.code, server.requests().len()), (Some(2), 0), "{ended:?}");
        assert!(ended.stderr.contains(expected) && ended.stderr.lines().count() == 1, "{ended:?}");
        assert_eq!(ended.result()["is_error"], true);
    }
}

#[tokio::test]
async fn a_prompt_that_merely_begins_with_a_slash_is_a_prompt() {
    for prompt in ["/etc/hosts is wrong", "/tmp is full", "/* a comment */", "/x.log is large"] {
        let server = serve(Scenario::new().reply("I see."));
        let trial = RunBuilder::bare(&server.base_url());
        furnish(&trial.work());
        let ended = trial.args([prompt]).run().await;
        assert_eq!((ended.code, said(&server).as_str()), (Some(0), prompt), "{ended:?}");
    }
    let server = serve(Scenario::new().reply("I see."));
    let trial = RunBuilder::bare(&server.base_url()).args(["--output-format", "stream-json"]);
    furnish(&trial.work());
    let ended = trial.args(["--disable-slash-commands", "/fix-issue 1"]).run().await;
    assert_eq!(said(&server), "/fix-issue 1", "{ended:?}");
    assert_eq!(names(&init(&ended)["slash_commands"]), [""; 0]);
    assert!(!system(&server).contains("tables"), "{}", system(&server));
}

#[tokio::test]
async fn a_slash_command_may_come_from_standard_input_with_arguments() {
    let server = serve(Scenario::new().reply("Done."));
    let trial = RunBuilder::bare(&server.base_url()).stdin(Stdio::piped());
    plant(&trial.config(), "commands/explain.md", "Explain this: $ARGUMENTS");
    let ended = trial.in_shell("printf 'it\\nbroke' | \"$@\"").args(["/explain"]).run().await;
    assert_eq!(said(&server), "Explain this: it\nbroke", "{ended:?}");
    let server = serve(Scenario::new().reply("Done."));
    let trial = RunBuilder::bare(&server.base_url());
    plant(&trial.config(), "commands/explain.md", "Explain this: $ARGUMENTS");
    let ended = trial.in_shell("printf '/explain x' | \"$@\"").run().await;
    assert_eq!(said(&server), "Explain this: x", "{ended:?}");
}

#[tokio::test]
async fn a_run_with_an_agent_flag_has_its_prompt_and_tools() {
    let server = serve(Scenario::new().reply("Reviewed."));
    let trial = RunBuilder::bare(&server.base_url());
    furnish(&trial.work());
    let ended = trial.args(["--agent", "code-reviewer", "review"]).run().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let request = &server.requests()[0].body;
    let system = request["system"].to_string();
    assert!(system.contains("You review code.") && !system.contains("You are outlast"), "{system}");
    assert!(system.contains("Facts of this run"), "{system}");
    let tools = request["tools"].as_array().expect("tools").iter();
    let tools: Vec<&str> = tools.filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(tools, ["Read", "Glob", "Grep"]);
}

#[tokio::test]
async fn config_lists_commands_agents_and_skills() {
    let trial = RunBuilder::bare("http://127.0.0.1:9").args(["config", "--json"]);
    furnish(&trial.work());
    plant(&trial.work(), ".claude/agents/broken.md", "---\nname: x\ntools: [Read\n---\n");
    let ended = trial.run().await;
    let object = &ended.frames()[0];
    let list = object["definitions"].as_array().expect("a list").iter();
    let list: Vec<String> =
        list.map(|one| format!("{} {}", one["kind"], one["name"]).replace('"', "")).collect();
    let expected =
        ["agent code-reviewer", "skill tables", "command fix-issue", "command git:commit"];
    assert_eq!(list, expected, "{object:#}");
    assert!(object["warnings"].to_string().contains("broken.md:"), "{object:#}");
    let trial = RunBuilder::bare("http://127.0.0.1:9").args(["config"]);
    furnish(&trial.work());
    let ended = trial.run().await;
    assert!(
        ended.stdout.contains("  skill tables (.claude/skills/tables/SKILL.md)\n"),
        "{ended:?}"
    );
}

#[tokio::test]
async fn files_that_a_prompt_names_are_shown_beside_it_under_the_rules_for_reading() {
    let server = serve(Scenario::new().reply("Done."));
    let trial = RunBuilder::against(&server);
    plant(&trial.work(), "notes.md", "one\ntwo\nthree\n");
    plant(&trial.work(), "Makefile", "all:\n");
    plant(&trial.work(), "secret.txt", "the-secret\n");
    plant(&trial.work(), "sub/inner.txt", "inner\n");
    let prompt = "Look at @notes.md#L2-3, @Makefile, @sub/ and @secret.txt; not at `@notes.md`, \
                  me@notes.md, @alice or @missing.txt.";
    let ended = trial.args([prompt, "--disallowed-tools", "Read(secret.txt)"]).run().await;
    let result = agrees(&ended);
    let content = server.requests()[0].body["messages"][0]["content"].clone();
    let texts: Vec<&str> =
        content.as_array().unwrap().iter().filter_map(|block| block["text"].as_str()).collect();
    assert_eq!(texts.len(), 4, "{texts:?}");
    assert_eq!(texts[0], prompt);
    assert!(texts[1].contains("2\ttwo") && texts[1].contains("3\tthree"), "{texts:?}");
    assert!(!texts[1].contains("one"), "{texts:?}");
    assert!(texts[2].contains("all:") && texts[3].contains("inner.txt"), "{texts:?}");
    let warnings = result["warnings"].to_string();
    assert!(warnings.contains("@missing.txt in the prompt"), "{warnings}");
    assert!(warnings.contains("@secret.txt in the prompt"), "{warnings}");
    assert_eq!(warnings.matches(" in the prompt ").count(), 2, "{warnings}");
}

#[tokio::test]
async fn file_references_in_piped_input_are_not_expanded() {
    let server = serve(Scenario::new().reply("Done."));
    let trial = RunBuilder::against(&server);
    plant(&trial.work(), "notes.md", "noted\n");
    let script = "printf '+@notes.md\\n @notes.md' | \"$@\"";
    let ended = trial.args(["review"]).in_shell(script).run().await;
    assert!(!agrees(&ended)["warnings"].to_string().contains("in the prompt"), "{ended:?}");
    assert!(said(&server).contains("@notes.md") && !said(&server).contains("noted"));
}

#[tokio::test]
async fn subfolder_instructions_load_when_a_file_there_is_used() {
    let read = |file: &str| json!({ "file_path": file });
    let scenario = Scenario::new()
        .tool("Read", read("top.txt"))
        .tool("Read", read("sub/deep/a.txt"))
        .tool("Read", read("sub/b.txt"))
        .reply("Done.");
    let server = serve(scenario);
    let trial = RunBuilder::against(&server);
    for file in ["top.txt", "sub/deep/a.txt", "sub/b.txt"] {
        plant(&trial.work(), file, "text\n");
    }
    plant(&trial.work(), "sub/CLAUDE.md", "Write in Latin. @more.md\n");
    plant(&trial.work(), "sub/more.md", "Use no adverbs.\n");
    plant(&trial.work(), "other/CLAUDE.md", "Never told.\n");
    let ended = trial.args(["do it"]).run().await;
    agrees(&ended);
    let texts = |request: usize| server.requests()[request].body["messages"].to_string();
    assert!(!texts(1).contains("Write in Latin"), "no file there was read yet");
    for (request, times) in [(2, 1), (3, 1)] {
        let said = texts(request);
        assert_eq!(said.matches("Write in Latin").count(), times, "{said}");
        assert_eq!(said.matches("Use no adverbs").count(), times, "{said}");
        assert!(!said.contains("Never told"), "{said}");
    }
}
