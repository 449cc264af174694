//! Agents, commands and skills: which files are read, which of several counts, and what of them is
//! not believed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use outlast::cli::prompts::{FileTrust, LibrarySearch, PromptLibrary};
use outlast::hooks::HookEvent;
use outlast::tools::{AgentDefinition, PermissionMode};
use outlast::types::Effort;
use tempfile::TempDir;

use crate::support::scratch::write_file;

/// A home with a repository in it, and a folder of that to work in.
struct Home {
    folder: TempDir,
    trusted: bool,
}

impl Home {
    fn new() -> Self {
        let home = Self { folder: tempfile::tempdir().expect("a folder"), trusted: false };
        fs::create_dir_all(home.path("repo/.git")).expect("made");
        fs::create_dir_all(home.path("repo/part")).expect("made");
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().expect("it is there").join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> &Self {
        write_file(&self.path(name), text);
        self
    }

    fn agent(&self, file: &str, name: &str, more: &str) -> &Self {
        self.write(file, format!("---\nname: {name}\ndescription: From {file}\n{more}---\nPrompt"))
    }

    fn read(&self) -> PromptLibrary {
        let untrusted = || FileTrust::Untrusted("the repository is not trusted".to_owned());
        let trust = |_: &str| if self.trusted { FileTrust::Trusted } else { untrusted() };
        let search = LibrarySearch {
            cwd: &self.path("repo/part"),
            own: vec![self.path("config"), self.path(".claude")],
            plugins: &[],
            added: &[self.path("added")],
            project: true,
            trust: &trust,
            plugin_trust: &|_| FileTrust::Trusted,
            anywhere: self.trusted,
            commands: true,
            lists_skills: true,
        };
        search.read()
    }
}

/// Names, and the end of each file's path.
fn agents(library: &PromptLibrary) -> Vec<(&str, &str)> {
    library.agents.iter().map(|it| (it.definition.name.as_str(), it.file.as_str())).collect()
}

fn commands(library: &PromptLibrary) -> Vec<&str> {
    library.callable().map(|command| command.name.as_str()).collect()
}

#[test]
fn among_agents_with_the_same_name_the_nearest_file_wins() {
    let home = Home { trusted: true, ..Home::new() };
    for file in [
        ".claude/agents/a.md",
        "config/agents/a.md",
        "repo/.claude/agents/a.md",
        "repo/.outlast/agents/a.md",
        "repo/part/.claude/agents/deep/er/a.md",
    ] {
        home.agent(file, "a", "");
    }
    let expected = [
        ("repo/part/.claude/agents/deep/er/a.md", ".claude/agents/deep/er/a.md"),
        ("repo/.outlast/agents/a.md", "../.outlast/agents/a.md"),
        ("repo/.claude/agents/a.md", "../.claude/agents/a.md"),
        ("config/agents/a.md", "config/agents/a.md"),
        (".claude/agents/a.md", ".claude/agents/a.md"),
    ];
    for (file, shown) in expected {
        let library = home.read();
        let [(name, counts)] = agents(&library)[..] else { panic!("{library:?}") };
        assert!(name == "a" && counts.ends_with(shown), "{counts} is not {shown}");
        assert_eq!(library.warnings, Vec::<String>::new());
        fs::remove_file(home.path(file)).expect("it was there");
    }
    assert!(home.read().agents.is_empty());
}

#[test]
fn the_tools_of_an_agent_may_be_called_allowed_tools() {
    for field in ["allowed-tools: Read, Grep", "allowedTools: [read, grep]", "tools: Read Grep"] {
        let home = Home { trusted: true, ..Home::new() };
        home.agent("repo/.claude/agents/x.md", "x", &format!("{field}\ndisallowedTools: bash\n"));
        let definition = home.read().agents[0].definition.clone();
        assert_eq!(definition.tools, Some(["Read", "Grep"].map(str::to_owned).to_vec()), "{field}");
        assert_eq!(definition.disallowed_tools, ["Bash"]);
        assert_eq!(definition.tool_rules, Vec::<String>::new());
    }
}

#[test]
fn every_field_of_an_agent_file_is_parsed() {
    let home = Home { trusted: true, ..Home::new() };
    home.agent(
        "repo/.claude/agents/x.md",
        "code-reviewer",
        "tools: read, bash(git log:*), mcp__x__y, NoSuchTool, Read\ndisallowedTools: [Write]\n\
         model: opus\neffort: low\nmaxTurns: 7\npermissionMode: acceptEdits\nbackground: true\ncolor: pink\n\
         mcpServers: [git hub, db]\nskills: tone\n",
    );
    let expected = AgentDefinition {
        name: "code-reviewer".to_owned(),
        description: "From repo/.claude/agents/x.md".to_owned(),
        prompt: "Prompt".to_owned(),
        tools: Some(["Read", "Bash", "mcp__x__y", "NoSuchTool"].map(str::to_owned).to_vec()),
        tool_rules: ["Read", "Bash(git log:*)", "mcp__x__y", "NoSuchTool", "Read"]
            .map(str::to_owned)
            .to_vec(),
        disallowed_tools: vec!["Write".to_owned()],
        model: Some("opus".to_owned()),
        effort: Some(Effort::Low),
        max_turns: Some(7),
        permission_mode: Some(PermissionMode::AcceptEdits),
        background: true,
        servers: Some(["mcp__git_hub__", "mcp__db__"].map(str::to_owned).to_vec()),
    };
    let library = home.read();
    assert_eq!(library.agents[0].definition, expected);
    assert_eq!(library.agents[0].skills, ["tone"]);
    assert_eq!((library.warnings, library.withheld), (Vec::new(), Vec::new()));
    home.agent("repo/.claude/agents/x.md", "any", "tools: \"*\"\nmodel: inherit\nmaxTurns: none\n");
    let library = home.read();
    let any = &library.agents[0].definition;
    assert_eq!((&any.tools, &any.model, any.max_turns), (&None, &None, None));
    assert!(library.warnings[0].contains("maxTurns makes no sense"), "{:?}", library.warnings);
    for (effort, warnings) in [
        ("ultra", &["../.claude/commands/c.md: effort makes no sense, no effect"][..]),
        ("max", &[]),
    ] {
        let home = Home { trusted: true, ..Home::new() };
        home.write("repo/.claude/commands/c.md", format!("---\neffort: {effort}\n---\nGo"));
        assert_eq!(home.read().warnings, warnings, "{effort}");
    }
}

#[test]
fn agent_hooks_apply_only_if_trusted_and_only_to_that_agent() {
    let fields = "hooks:\n  Stop:\n    - hooks: [{ type: command, command: make check }]\n  \
                  PreToolUse:\n    - matcher: Bash\n      hooks: [{ type: http, url: x }]\n";
    for trusted in [true, false] {
        let home = Home { trusted, ..Home::new() };
        home.agent("repo/.claude/agents/x.md", "careful", fields);
        let library = home.read();
        let of_kind = library.hooks(None);
        let withheld: Vec<_> = library.withheld.iter().map(|one| one.key.as_deref()).collect();
        if !trusted {
            assert!(of_kind.is_empty(), "{of_kind:?}");
            assert_eq!(withheld, [Some("hooks")]);
            continue;
        }
        let [hook] = &of_kind[..] else { panic!("{of_kind:?}") };
        assert_eq!(
            (hook.agent_type.as_deref(), hook.event),
            (Some("careful"), HookEvent::SubagentStop)
        );
        let [warning] = &library.warnings[..] else { panic!("{:?}", library.warnings) };
        assert!(warning.contains("hooks.PreToolUse[0].hooks[0]"), "{warning}");
        let role = library.agents[0].definition.clone();
        let of_run = library.hooks(Some(&role));
        assert_eq!(of_run.len(), 2, "the run's own, and those of agents of that kind");
        assert_eq!((of_run[1].agent_type.as_deref(), of_run[1].event), (None, HookEvent::Stop));
    }
}

#[test]
fn unexpected_entries_in_an_agent_folder_are_reported_and_ignored() {
    let (good, dir) = ("---\nname: n\ndescription: d\n---\n", "repo/.claude/agents");
    let rows: [(&str, Vec<u8>, &str); 8] = [
        ("no-front.md", b"Just text.".to_vec(), "has no \"description\""),
        ("empty.md", Vec::new(), "has no \"description\""),
        ("no-description.md", b"---\nname: x\n---\n".to_vec(), "has no \"description\""),
        ("yaml.md", b"---\nname: x\ntools: [Read\n---\n".to_vec(), ".md:"),
        ("large.md", vec![b'x'; 10 << 20], "larger than 256 kB"),
        ("program.md", b"\x7fELF\x02\x01\x01\0\0\xff\0\x01".to_vec(), "not text"),
        (
            "nul.md",
            b"---\nname: \"a\\0b\"\ndescription: d\n---\n".to_vec(),
            "has control characters",
        ),
        ("open.md", b"---\nname: x\n".to_vec(), "has no \"description\""),
    ];
    for (name, content, why) in rows {
        let home = Home { trusted: true, ..Home::new() };
        home.write(&format!("{dir}/{name}"), content).write(&format!("{dir}/good.md"), good);
        let library = home.read();
        assert_eq!(agents(&library), [("n", "../.claude/agents/good.md")], "{name}");
        let [warning] = &library.warnings[..] else { panic!("{name}: {:?}", library.warnings) };
        assert!(warning.contains(&format!("../.claude/agents/{name}")), "{warning}");
        assert!(warning.contains(why) && !warning.contains('\n'), "{name}: {warning}");
    }
}

#[test]
fn an_agent_without_a_name_has_that_of_its_file() {
    let home = Home { trusted: true, ..Home::new() };
    home.write("repo/.claude/agents/team/reviewer.md", "---\ndescription: d\n---\nReview.");
    let library = home.read();
    assert_eq!(agents(&library), [("reviewer", "../.claude/agents/team/reviewer.md")]);
    assert!(library.warnings.is_empty(), "{:?}", library.warnings);
}

#[test]
fn skills_of_added_folders_are_read_and_nothing_else_of_them() {
    // Trust is in the working folder, and not in those that are added.
    for trusted in [true, false] {
        let home = Home { trusted, ..Home::new() };
        home.agent("added/.claude/agents/a.md", "a", "").write("added/.claude/commands/c.md", "C");
        home.write("added/.claude/skills/s/SKILL.md", "---\ndescription: D\n---\nBody");
        home.write("repo/.claude/skills/s2/SKILL.md", "---\nname: s2\ndescription: D\n---\nBody");
        home.write("outside/SKILL.md", "---\nname: linked\ndescription: D\n---\nBody");
        symlink(home.path("outside"), home.path("added/.claude/skills/linked")).expect("linked");
        let library = home.read();
        assert!(agents(&library).is_empty(), "{:?}", agents(&library));
        let mut names = commands(&library);
        names.retain(|name| *name != "s2");
        assert_eq!(names, ["s"], "{trusted}: {:?}", library.warnings);
        let skill = library.commands.iter().find(|command| command.name == "s").expect("found");
        assert!(!skill.trusted, "{trusted}");
    }
}

#[test]
fn bad_yaml_is_reported_with_line_and_column() {
    let home = Home::new();
    home.write("repo/.claude/agents/x.md", "---\nname: x\ntools: [Read, Grep\n---\n");
    let library = home.read();
    let place = library.warnings[0].strip_prefix("../.claude/agents/x.md:").expect("the file");
    let mut parts = place.split(':');
    let mut number = || parts.next().and_then(|part| part.parse::<u32>().ok());
    assert!(number().is_some_and(|line| line >= 3) && number().is_some(), "{place}");
}

#[test]
fn agent_files_with_odd_encodings_are_read_and_readmes_are_skipped() {
    let home = Home::new();
    home.write(
        "repo/.claude/agents/bom.md",
        "\u{feff}---\r\nname: b\r\ndescription: d\r\n---\r\nP\r\nQ",
    )
    .write("repo/.claude/agents/latin.md", b"---\nname: l\ndescription: pr\xfcfen\n---\nP")
    .write("repo/.claude/agents/README.md", "How we write agents")
    .write("repo/.claude/agents/notes.txt", "---\nname: no\ndescription: no\n---\n");
    let library = home.read();
    assert_eq!(library.agents[0].definition.prompt, "P\nQ");
    assert_eq!(library.agents[1].definition.description, "prüfen");
    assert_eq!((library.agents.len(), library.warnings.len()), (2, 0), "{:?}", library.warnings);
}

#[test]
fn pipes_link_loops_and_dangling_links_do_not_block_loading() {
    let home = Home { trusted: true, ..Home::new() };
    home.agent("repo/.claude/agents/good.md", "good", "");
    let dir = home.path("repo/.claude/agents");
    mkfifo(&dir.join("pipe.md"), Mode::S_IRWXU).expect("made");
    fs::create_dir(dir.join("folder.md")).expect("made");
    symlink("nowhere.md", dir.join("lost.md")).expect("linked");
    symlink(&dir, dir.join("loop")).expect("linked");
    symlink("/dev/zero", dir.join("zero.md")).expect("linked");
    let deep = "repo/.claude/agents/1/2/3/4/5/6/7/8/9/deep.md";
    home.agent(deep, "deep", "").agent("repo/.claude/agents/1/2/3/4/shallow.md", "shallow", "");
    let library = home.read();
    let names: Vec<&str> = agents(&library).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["good", "shallow"]);
    for name in ["pipe.md", "zero.md"] {
        let told = library.warnings.iter().filter(|line| line.contains(name)).count();
        assert_eq!(told, 1, "{name}: {:?}", library.warnings);
    }
}

#[test]
fn folders_of_prompts_that_cannot_be_reached_are_reported() {
    let home = Home::new();
    home.write("repo/.claude/skills/own/SKILL.md", "own");
    symlink("lost", home.path("repo/.claude/skills/lost")).expect("a link to itself");
    symlink("agents", home.path("repo/.claude/agents")).expect("a link to itself");
    let library = home.read();
    assert_eq!(commands(&library), ["own"]);
    for name in ["agents", "skills/lost/SKILL.md"] {
        let told = library.warnings.iter().filter(|line| line.contains(name)).count();
        assert_eq!(told, 1, "{name}: {:?}", library.warnings);
    }
}

#[test]
fn duplicate_agent_names_in_one_folder_are_reported() {
    let home = Home::new();
    home.agent("repo/.claude/agents/a.md", "same", "").agent(
        "repo/.claude/agents/b.md",
        "same",
        "",
    );
    let library = home.read();
    assert_eq!(agents(&library), [("same", "../.claude/agents/a.md")]);
    assert!(library.warnings[0].starts_with("../.claude/agents/b.md is left out"));
}

#[test]
fn agent_files_are_limited_in_number_and_total_size() {
    let home = Home::new();
    for number in 0..510 {
        home.agent(&format!("repo/.claude/agents/{number}.md"), &format!("n{number}"), "");
    }
    let library = home.read();
    assert_eq!(library.agents.len(), 500);
    assert!(library.warnings[0].contains("only 500 files"), "{:?}", library.warnings);
    let home = Home::new();
    for number in 0..2_100 {
        home.write(&format!("repo/.claude/agents/{number}.txt"), "");
    }
    assert!(home.read().warnings[0].contains("more than 2000 files"));
    let home = Home::new();
    for number in 0..40 {
        let name = format!("repo/.claude/commands/{number}.md");
        home.write(&name, "x".repeat(250 << 10));
    }
    let library = home.read();
    assert_eq!(commands(&library).len(), (8 << 20) / (250 << 10));
    assert_eq!(library.warnings.len(), 8, "{:?}", library.warnings);
    assert!(library.warnings.iter().all(|line| line.contains("larger than 8 MB")));
}

#[test]
fn a_folder_of_invalid_agent_files_is_reported_in_a_few_lines() {
    let home = Home::new();
    for number in 0..100 {
        home.write(&format!("repo/.claude/agents/{number}.md"), "rubbish");
    }
    let warnings = home.read().warnings;
    assert_eq!(warnings.len(), 21, "{warnings:?}");
    assert_eq!(warnings[20], "80 more files like these are left out");
}

#[test]
fn agents_of_an_untrusted_project_cannot_widen_permissions() {
    let home = Home::new();
    let more = "tools: Read\nmodel: opus\npermissionMode: bypassPermissions\nhooks:\n  Stop: []\n\
                mcpServers: [x]\n";
    home.agent("repo/.claude/agents/theirs.md", "theirs", more)
        .agent("repo/.claude/agents/mine.md", "mine", "")
        .agent("config/agents/mine.md", "mine", "model: opus\npermissionMode: plan\n")
        .write("repo/.claude/commands/go.md", "---\nallowed-tools: Bash\nmodel: opus\n---\nGo");
    let library = home.read();
    let [mine, theirs] = &library.agents[..] else { panic!("{library:?}") };
    assert_eq!(mine.definition.permission_mode, Some(PermissionMode::Plan));
    assert_eq!(mine.definition.model.as_deref(), Some("opus"));
    assert_eq!((&theirs.definition.permission_mode, &theirs.definition.model), (&None, &None));
    assert_eq!(theirs.definition.servers, None);
    assert_eq!(theirs.definition.tools, Some(vec!["Read".to_owned()]));
    let told: Vec<(&str, Option<&str>)> =
        library.withheld.iter().map(|one| (one.file.as_str(), one.key.as_deref())).collect();
    let of_theirs = |key| ("../.claude/agents/theirs.md", Some(key));
    let mut expected = ["permissionMode", "hooks", "mcpServers", "model"].map(of_theirs).to_vec();
    expected.insert(0, ("../.claude/agents/mine.md", None));
    assert_eq!(told, expected);
    assert_eq!(library.warnings, Vec::<String>::new());
    let go = library.callable().next().expect("it can be called");
    assert_eq!((&go.requested.grants, &go.requested.model), (&vec![], &None));
    let withheld: Vec<(Option<&str>, &str)> =
        go.requested.withheld.iter().map(|one| (one.key.as_deref(), one.why.as_str())).collect();
    let why = "the repository is not trusted";
    assert_eq!(withheld, [(Some("allowed-tools"), why), (Some("model"), why)]);

    let library = Home { trusted: true, ..home }.read();
    assert_eq!(library.withheld, Vec::new());
    assert!(library.agents[0].file.starts_with("../.claude"), "{library:?}");
    assert_eq!(library.callable().next().expect("still").requested.grants, ["Bash"]);
    let theirs = library.agents.iter().find(|agent| agent.definition.name == "theirs");
    let servers = theirs.and_then(|agent| agent.definition.servers.clone());
    assert_eq!(servers, Some(vec!["mcp__x__".to_owned()]));
}

#[test]
fn only_trusted_agent_files_replace_the_built_in_agent() {
    let home = Home::new();
    let file = "repo/.claude/agents/x.md";
    home.agent(file, "general-purpose", "maxTurns: 100000\n");
    let library = home.read();
    assert_eq!(agents(&library), []);
    let [withheld] = &library.withheld[..] else { panic!("{library:?}") };
    assert_eq!((withheld.file.as_str(), &withheld.key), ("../.claude/agents/x.md", &None));
    let home = Home { trusted: true, ..home };
    assert_eq!(agents(&home.read()), [("general-purpose", "../.claude/agents/x.md")]);
}

#[test]
fn a_project_that_is_not_trusted_leads_nowhere_outside() {
    let home = Home::new();
    home.agent("secret/a.md", "secret", "").write("secret/SKILL.md", "secret");
    let dir = home.path("repo/.claude/agents");
    fs::create_dir_all(&dir).expect("made");
    fs::create_dir_all(home.path("repo/.claude/skills")).expect("made");
    symlink(home.path("secret/a.md"), dir.join("file.md")).expect("linked");
    symlink(home.path("secret"), dir.join("folder")).expect("linked");
    symlink(home.path("secret"), home.path("repo/.claude/skills/skill")).expect("linked");
    symlink(home.path("secret"), home.path("repo/.claude/commands")).expect("linked");
    home.write("repo/notes/SKILL.md", "plain").write("repo/.claude/skills/own/SKILL.md", "own");
    symlink(home.path("repo/notes"), home.path("repo/.claude/skills/notes")).expect("linked");
    let library = home.read();
    assert!(library.agents.is_empty(), "{library:?}");
    assert_eq!(commands(&library), ["notes", "own"]);
    let told = library.warnings.iter().filter(|line| line.contains("out of the project")).count();
    assert_eq!(told, 3, "{:?}", library.warnings);
    let cwd = home.path("repo/part");
    let folders = library.skill_folders(&cwd, None);
    let folders: Vec<_> = folders.into_iter().map(|folder| folder.path).collect();
    assert_eq!(folders, [home.path("repo/.claude/skills/own")], "a link opens nothing");

    let trusted = Home { trusted: true, ..home };
    let library = trusted.read();
    assert_eq!(library.agents.len(), 1);
    assert_eq!(library.skill_folders(&cwd, None).len(), 3);
    assert_eq!(library.skill_folders(&cwd, Some(&trusted.path("secret/home"))).len(), 2);
}

#[test]
fn slash_commands_are_named_by_folder_and_file_name() {
    let home = Home::new();
    home.write("repo/.claude/commands/review.md", "# Look\n\nWell")
        .write("repo/.claude/commands/git/commit.md", "---\nargument-hint: [what]\n---\nCommit")
        .write("repo/.claude/commands/a b.md", "no name")
        .write("repo/.claude/commands/blank.md", " \n")
        .write("repo/part/.claude/commands/review.md", "Nearer")
        .write(
            "config/skills/pdf/SKILL.md",
            "---\nname: PDF things\ndescription: For PDFs\n---\nDo",
        )
        .write("config/skills/hidden/SKILL.md", "---\nuser-invocable: false\n---\nBehind")
        .write("config/skills/asked/SKILL.md", "---\ndisable-model-invocation: true\n---\nAsk")
        .write("config/skills/no-skill/README.md", "x")
        .write("config/skills/README.md", "x")
        .write("repo/.claude/skills/.gitkeep", "");
    let library = home.read();
    assert_eq!(commands(&library), ["asked", "pdf", "git:commit", "review"]);
    let skills: Vec<&str> = library.skills().map(|skill| skill.name.as_str()).collect();
    assert_eq!(skills, ["hidden", "pdf"]);
    let named = |name: &str| library.callable().find(|one| one.name == name).expect(name);
    assert_eq!(named("git:commit").hint.as_deref(), Some("[what]"));
    assert_eq!(named("review").description, "Nearer");
    let told: Vec<bool> = ["a b.md", "blank.md"]
        .map(|name| library.warnings.iter().any(|line| line.contains(name)))
        .to_vec();
    assert_eq!((told, library.warnings.len()), (vec![true, true], 2), "{:?}", library.warnings);
    let instructions = library.instructions().expect("there are skills");
    let file = home.path("config/skills/pdf/SKILL.md").display().to_string();
    assert!(instructions.contains(&format!("- pdf: For PDFs ({file})")), "{instructions}");
    assert!(!instructions.contains("asked"), "{instructions}");
}

#[test]
fn agents_of_plugins_name_skills_without_their_plugin() {
    let home = Home::new();
    for name in ["art", "kit-pdf", "other-pdf", "other-ink"] {
        let file = format!("config/skills/{name}/SKILL.md");
        home.write(&file, format!("---\ndescription: d\n---\nBODY of {name}."));
    }
    home.agent("config/agents/a.md", "a", "skills: art, pdf, ink, kit:pdf, none\n");
    let mut library = home.read();
    for command in &mut library.commands {
        command.name = command.name.replace('-', ":");
    }
    library.agents[0].definition.name = "kit:a".to_owned();
    library.preload();
    let prompt = &library.agents[0].definition.prompt;
    let found = ["BODY of art.", "BODY of kit-pdf.", "BODY of other-ink.", "BODY of other-pdf."]
        .map(|body| prompt.matches(body).count());
    assert_eq!(found, [1, 2, 1, 0], "{prompt}");
    let [warning] = &library.warnings[..] else { panic!("{:?}", library.warnings) };
    assert!(warning.contains("the skill \"none\" is left out"), "{warning}");
}

#[test]
fn skills_are_limited_to_those_that_are_listed_and_not_denied() {
    let home = Home::new();
    for name in ["art", "pdf", "pdf-fill"] {
        home.write(&format!("config/skills/{name}/SKILL.md"), "---\ndescription: d\n---\nDo");
    }
    let none: &[&str] = &[];
    for (only, denied, listed, callable) in [
        (None, none, "art pdf pdf-fill", "art pdf pdf-fill"),
        (Some(&["pdf"][..]), none, "pdf", "art pdf pdf-fill"),
        (Some(none), none, "", "art pdf pdf-fill"),
        (Some(&["/pdf", "art"][..]), &["Skill(art)"], "pdf", "pdf pdf-fill"),
        (None, &["Skill"], "", ""),
        (None, &["Skill(*)"], "", ""),
        (None, &["Skill(pdf)"], "art pdf-fill", "art pdf-fill"),
        (None, &["Skill(pdf *)", "Skill(/art:*)"], "pdf-fill", "pdf-fill"),
        (None, &["Skill(pdf*)"], "art", "art"),
        (
            None,
            &["Skills", "Skill(p)", "SkillX(pdf)", "Bash(pdf)"],
            "art pdf pdf-fill",
            "art pdf pdf-fill",
        ),
    ] {
        let mut library = home.read();
        let owned = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        library.limit_skills(only.map(owned).as_deref(), &owned(denied));
        let skills: Vec<&str> = library.skills().map(|skill| skill.name.as_str()).collect();
        assert_eq!(skills.join(" "), listed, "{only:?} {denied:?}");
        assert_eq!(commands(&library).join(" "), callable, "{only:?} {denied:?}");
    }
}

#[test]
fn what_a_skill_denies_counts_without_trust_and_what_has_no_effect_is_known() {
    let text = "---\ndisallowed-tools: Bash, Write\nallowed-tools: Read\narguments: [issue, branch]\n\
        hooks: {}\ncontext: fork\n---\nGo";
    let home = Home::new();
    home.write("repo/.claude/skills/s/SKILL.md", text);
    let library = home.read();
    let skill = &library.commands[0];
    assert_eq!(skill.requested.denials, ["Bash", "Write"]);
    assert_eq!(skill.requested.grants, Vec::<String>::new());
    assert_eq!(skill.arguments, ["issue", "branch"]);
    assert_eq!(skill.without_effect, ["hooks", "context"]);
}

#[test]
fn the_list_of_skills_is_short_however_many_there_are() {
    let home = Home::new();
    for number in 0..200 {
        let text = format!("---\ndescription: {}\n---\nDo", "word ".repeat(1_000));
        home.write(&format!("config/skills/s{number}/SKILL.md"), text);
    }
    let instructions = home.read().instructions().expect("there are skills");
    assert!(
        instructions.len() < 9_000 && instructions.contains("more, in the folders"),
        "{instructions}"
    );
}
