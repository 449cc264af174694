//! Set-up of a run by scripts, and plugins on the disk.

use outlast::process::LandlockSupport;
use outlast::rehearsal::{AfterLast, Scenario};
use serde_json::{Value, json};

use super::{ANSWER, Caller, judge};
use crate::support::non_temporary_folder;

fn furnished() -> Caller {
    let caller = Caller::new();
    let enabled = r#"{"enabledPlugins": {"kit@shop": true, "gone@shop": false}}"#;
    caller.file("home/.claude/settings.json", enabled);
    let shop = "home/.claude/plugins/marketplaces/shop";
    let list = r#"{"name": "shop", "plugins": [{"name": "kit", "source": "./kit"}]}"#;
    caller.file(&format!("{shop}/.claude-plugin/marketplace.json"), list);
    let manifest = r#"{"name": "kit", "version": "1.2.0",
        "hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "touch \"$HOME/started\""}]}]}}"#;
    caller.file(&format!("{shop}/kit/.claude-plugin/plugin.json"), manifest);
    caller.file(&format!("{shop}/kit/commands/hello.md"), "Greet the world. $ARGUMENTS");
    let agent = "---\nname: judge\ndescription: judges\n---\nYou judge.";
    caller.file("home/.claude/agents/judge.md", agent);
    caller
}

#[test]
fn servers_plugins_agents_and_the_credential_are_listed() {
    let caller = furnished();
    let servers =
        r#"{"mcpServers": {"docs": {"command": "docs-server", "args": ["--port", "7"]}}}"#;
    caller.file("home/.outlast/settings.json", servers);
    judge(
        &caller,
        &[
            ("claude mcp list | grep -q '^docs: docs-server' && echo there", "there"),
            ("claude mcp get docs | grep -q docs-server && echo there", "there"),
            ("claude mcp get nothing >/dev/null 2>&1; echo $?", "1"),
            ("claude plugin list | cut -d' ' -f1,2", "kit 1.2.0"),
            ("claude plugin list --json | jq -r '.[].name'", "kit"),
            ("claude agents | grep -q '^judge: judges' && echo there", "there"),
            ("claude agents list --json | jq -r 'map(.name) | index(\"judge\") != null'", "true"),
            ("claude auth status | jq -r .loggedIn", "true"),
            ("claude auth status --text | grep -c test-key", "0"),
            ("env -u ANTHROPIC_API_KEY claude auth status >/dev/null; echo $?", "1"),
        ],
    );
}

#[test]
fn what_would_change_a_setup_is_answered_with_what_to_do() {
    judge(
        &Caller::new(),
        &[
            ("claude mcp add x -- npx x 2>&1 >/dev/null | grep -c -- --mcp-config", "1"),
            ("claude plugin install a@b 2>&1 >/dev/null | grep -c -- --plugin-dir", "1"),
            ("claude auth login 2>&1 >/dev/null | grep -c ANTHROPIC_API_KEY", "1"),
            ("claude setup-token 2>&1 >/dev/null | grep -c ANTHROPIC_API_KEY", "1"),
            ("claude update 2>&1 >/dev/null | grep -c release", "1"),
            ("claude install latest >/dev/null 2>&1; echo $?", "2"),
            (r#"claude -p "/init" 2>&1 >/dev/null | grep -c CLAUDE.md"#, "1"),
            (r#"claude -p "/code-review" 2>&1 >/dev/null | grep -c "in words""#, "1"),
            (r#"claude -p "/rename x" 2>&1 >/dev/null | grep -c -- --name"#, "1"),
            (r#"claude -p "/login" 2>&1 >/dev/null | grep -c ANTHROPIC_API_KEY"#, "1"),
        ],
    );
}

#[test]
fn plugins_of_marketplaces_on_the_disk_are_used_as_settings_enable_them() {
    let caller = furnished();
    let (code, stdout, stderr) = caller.shell(r#"claude -p "/kit:hello now""#);
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (0, "feat: add parser\n", ""));
    let body = caller.server().requests()[0].body.to_string();
    assert!(body.contains("Greet the world. now"), "{body}");
    assert!(caller.path("home/started").exists(), "its hook did not run");
    let init = "claude -p hi --output-format stream-json --verbose | head -n 1 | jq -r";
    judge(&caller, &[(&format!("{init} .plugins[0].name"), "kit")]);
}

#[test]
fn plugins_of_a_marketplace_that_settings_name_are_used() {
    let caller = furnished();
    let enabled = r#"{"enabledPlugins": {"kit@shelf": true},
        "extraKnownMarketplaces": {"shelf": {"source": {"source": "directory",
            "path": "../home/.claude/plugins/marketplaces/shop"}}}}"#;
    caller.file("home/.claude/settings.json", enabled);
    let (code, stdout, stderr) = caller.shell(r#"claude -p "/kit:hello now""#);
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (0, "feat: add parser\n", ""));
    let body = caller.server().requests()[0].body.to_string();
    assert!(body.contains("Greet the world. now"), "{body}");
}

/// As large marketplaces have them: several plugins of one folder, without a description there.
#[test]
fn plugins_that_only_the_list_of_their_marketplace_describes_are_used() {
    let call = Scenario::new().tool("Bash", json!({ "command": "true" }));
    let caller = Caller::with(call.reply(ANSWER).after(AfterLast::RepeatLast));
    let enabled = r#"{"enabledPlugins": {"docs@shop": true, "art@shop": true}}"#;
    caller.file("home/.claude/settings.json", enabled);
    let hook = json!({ "type": "command", "command": "echo GUARDED >&2; exit 2" });
    let list = json!({ "name": "shop", "plugins": [
        { "name": "docs", "source": "./", "strict": false, "skills": ["./skills/xlsx"] },
        { "name": "art", "source": "./", "strict": false, "version": "1.2",
            "skills": "./examples/paint", "commands": ["./cmds/draw.md"],
            "mcpServers": { "m": { "command": "false" } },
            "hooks": { "PreToolUse": [{ "matcher": "Bash", "hooks": [hook] }] } },
    ] });
    let shop = "home/.claude/plugins/marketplaces/shop";
    caller.file(&format!("{shop}/.claude-plugin/marketplace.json"), &list.to_string());
    for skill in ["skills/xlsx", "skills/other", "examples/paint"] {
        caller.file(&format!("{shop}/{skill}/SKILL.md"), "---\ndescription: d\n---\nDo");
    }
    caller.file(&format!("{shop}/cmds/draw.md"), "Draw $ARGUMENTS please");
    let (code, stdout, stderr) = caller.shell(
        "claude -p '/art:draw a cat' --allowedTools Bash --output-format stream-json --verbose",
    );
    assert_eq!(code, 0, "{stderr}");
    let init: Value = serde_json::from_str(stdout.lines().next().expect("a line")).expect("JSON");
    assert_eq!(init["skills"], json!(["art:paint", "docs:xlsx"]));
    let plugins: Vec<_> = init["plugins"].as_array().expect("a list").iter().collect();
    let named: Vec<_> = plugins.iter().map(|it| (&it["name"], &it["version"])).collect();
    assert_eq!(named, [(&json!("art"), &json!("1.2")), (&json!("docs"), &Value::Null)]);
    assert_eq!(init["mcp_servers"][0]["name"], "plugin:art:m");
    let bodies: Vec<String> =
        caller.server().requests().iter().map(|request| request.body.to_string()).collect();
    assert!(bodies[0].contains("Draw a cat please"), "{}", bodies[0]);
    assert!(bodies[1].contains("GUARDED"), "{}", bodies[1]);
}

/// Manifest, commands, hooks and servers as plugins for the reference have them.
#[test]
fn plugins_as_they_are_published_are_used_and_broken_ones_are_left_out() {
    let caller = Caller::new();
    let manifest = r#"{"name": "kit", "commands": ["./extra/one.md", "./commands"],
        "agents": "./more", "skills": ["./abilities/pp"], "mcpServers": "./servers.json",
        "hooks": ["./hooks/hooks.json", {"SessionStart": [{"hooks": [{"type": "command",
            "command": "echo \"$CLAUDE_PLUGIN_DATA\" > ${CLAUDE_PLUGIN_DATA}/kept"}]}]}], // no more
        }"#;
    caller.file("work/kit/.claude-plugin/plugin.json", manifest);
    caller.file("work/kit/extra/one.md", "Run ${CLAUDE_PLUGIN_ROOT}/x.sh");
    caller.file("work/kit/commands/two.md", "Two");
    caller.file("work/kit/more/aa.md", "---\nname: aa\ndescription: d\n---\nAgent");
    caller.file("work/kit/abilities/pp/SKILL.md", "Read ${CLAUDE_PLUGIN_ROOT}/notes");
    let hooks = r#"// Hooks.
        {"description": "What it is for", "hooks": {"SessionStart": [{"hooks": [
        {"type": "command", "command": "echo \"$CLAUDE_PLUGIN_ROOT\" >> \"$HOME/root\""}]},]}}"#;
    caller.file("work/kit/servers.json", "/* none yet */ {}");
    caller.file("work/kit/hooks/hooks.json", hooks);
    let settings = r#"{"enabledPlugins": {"bad@shop": true}, "outputStyle": "My Style"}"#;
    caller.file("home/.claude/settings.json", settings);
    let style = "---\nname: My Style\n---\nStyled";
    caller.file("home/.claude/output-styles/my-style.md", style);
    caller.file("home/.claude/plugins/cache/shop/bad/1.0.0/.claude-plugin/plugin.json", "{bad");
    let (code, stdout, stderr) = caller.shell("claude -p /kit:one --plugin-dir kit");
    assert_eq!((code, stdout.as_str()), (0, "feat: add parser\n"), "{stderr}");
    assert!(stderr.contains("plugin.json") && stderr.contains("not used"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    let body = caller.server().requests()[0].body.to_string();
    assert!(body.contains("/work/kit/x.sh") && body.contains("Styled"), "{body}");
    assert!(body.contains("; CLAUDE_PLUGIN_ROOT in it is"), "{body}");
    let root = std::fs::read_to_string(caller.path("home/root")).expect("its hook ran");
    assert!(root.trim_end().ends_with("/work/kit"), "{root}");
    assert_eq!(root.lines().count(), 1, "its file of hooks counts once: {root}");
    let data = caller.path("home/.claude/plugins/data/kit-inline");
    let kept = std::fs::read_to_string(data.join("kept")).expect("the other hook ran");
    assert_eq!(kept.trim_end(), data.to_string_lossy());
    caller.file("work/kit/.mcp.json", r#"{"mcpServers": {"echo": {"command": "false"}}}"#);
    caller.file("work/kit/servers.json", r#"{"mcpServers": {"more": {"command": "false"},},}"#);
    let init = "claude -p hi --plugin-dir kit --output-format stream-json 2>/dev/null | head -n 1";
    judge(
        &caller,
        &[
            (
                &format!("{init} | jq -c '[.mcp_servers[].name]'"),
                r#"["plugin:kit:echo","plugin:kit:more"]"#,
            ),
            (&format!("{init} | jq -c .slash_commands"), r#"["kit:pp","kit:one","kit:two"]"#),
            (&format!("{init} | jq -c '.agents | index(\"kit:aa\") != null'"), "true"),
        ],
    );
    // A guard that is not there must not be left out silently.
    caller
        .file("work/kit/.claude-plugin/plugin.json", r#"{"name": "kit", "hooks": "./guard.json"}"#);
    let (code, _, stderr) = caller.shell("claude -p hi --plugin-dir kit");
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("hooks names ./guard.json, which is missing"), "{stderr}");
}

#[test]
fn what_is_found_by_itself_is_left_out_of_bare_and_safe_runs() {
    let caller = Caller::new();
    caller.file("work/.mcp.json", r#"{"mcpServers": {"s": {"command": "false"}}}"#);
    caller.file("work/.claude/skills/s/SKILL.md", "Do");
    caller.file("home/.claude/settings.json", r#"{"outputStyle": "st"}"#);
    caller.file("home/.claude/output-styles/st.md", "Styled");
    caller.file("home/.claude/agents/a.md", "---\nname: a\ndescription: d\n---\nx");
    let init = |flag: &str, fields: &str| {
        let run = "claude -p hi --trust-project --output-format stream-json 2>/dev/null";
        format!("{run} {flag} | head -n 1 | jq -c '{fields}'")
    };
    let found = "[[.mcp_servers[].name], .skills, .slash_commands]";
    judge(
        &caller,
        &[
            (&init("", found), r#"[["s"],["s"],["s"]]"#),
            (&init("--bare", found), r#"[[],[],["s"]]"#),
            (&init("--safe-mode", r#".agents | index("a")"#), "null"),
        ],
    );
    let last = caller.server().requests().last().expect("a request").body.to_string();
    assert!(!last.contains("Styled"), "{last}");
}

#[test]
fn a_skill_denies_tools_to_the_run_that_it_begins() {
    let scenario = Scenario::new().tool("Bash", json!({ "command": "echo ran > made" }));
    let caller = Caller::with(scenario.reply("Done.").after(AfterLast::RepeatLast));
    let skill = "---\ndisallowed-tools: Bash\narguments: issue\nhooks: {}\n---\nFix $issue";
    caller.file("home/.claude/skills/s/SKILL.md", skill);
    let (_, _, stderr) = caller.shell("claude -p '/s 12' --dangerously-skip-permissions");
    assert!(stderr.contains("SKILL.md: hooks: not supported for skills"), "{stderr}");
    assert!(caller.server().requests()[0].body.to_string().contains("Fix 12"));
    assert!(!caller.path("work/made").exists(), "the command was not denied");
}

#[test]
fn a_run_works_in_a_worktree_of_its_own() {
    let write = json!({ "command": "pwd; git branch --show-current; echo x > made" });
    let scenario = Scenario::new().tool("Bash", write).reply("Done.").after(AfterLast::RepeatLast);
    let caller = Caller::with(scenario);
    let (code, _, stderr) = caller.shell(
        "git init -q -b main . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x",
    );
    assert_eq!(code, 0, "{stderr}");
    let run = "claude -p go --dangerously-skip-permissions";
    let (code, stdout, stderr) = caller.shell(&format!("mkdir sub && cd sub && {run} -w fix-1"));
    assert_eq!((code, stdout.as_str()), (0, "Done.\n"), "{stderr}");
    let made = caller.path("work/.claude/worktrees/fix-1");
    let line = format!(
        "outlast: working in {}, on the new branch worktree-fix-1 from HEAD\n",
        made.display()
    );
    assert_eq!(stderr, line);
    let body = caller.server().requests()[1].body.to_string();
    assert!(body.contains(&format!("{}\\nworktree-fix-1", made.display())), "{body}");
    assert!(made.join("made").exists() && !caller.path("work/made").exists());
    judge(
        &caller,
        &[
            ("git status --short .claude; git add -A -n .claude", ""),
            // The same worktree, from the main folder and from within it.
            (&format!("{run} --worktree=fix-1; ls .claude/worktrees"), "Done.\nfix-1"),
            (&format!("cd .claude/worktrees/fix-1; {run} --worktree fix-1"), "Done."),
            // Output files are in the folder in which the flags were written.
            (
                &format!(
                    "mkdir out; cd out; {run} -w fix-1 --result-file r --last-message-file m \
                     --heartbeat-file h --debug-file d >/dev/null; ls -A; rm *; \
                     {run} -w fix-1 --result-file r --json-schema gone.json >/dev/null; ls -A"
                ),
                "d\nh\nm\nr\nr",
            ),
            // Files that flags name are there, too, unless only the worktree has them.
            (
                &format!(
                    "cd out; echo '{{\"env\":{{\"FROM\":\"caller\"}}}}' > s.json; echo Be brief. > p.md; \
                     mv p.md ../.claude/worktrees/fix-1/; \
                     {run} -w fix-1 --settings s.json --system-prompt-file p.md; rm s.json"
                ),
                "Done.",
            ),
            // A mistake in them is found before the worktree is made.
            (&format!("{run} -w fix-2 --result-file gone/r; ls .claude/worktrees"), "fix-1"),
            // A run that fails says how to go on in the worktree.
            (
                &format!(
                    "ANTHROPIC_BASE_URL=http://127.0.0.1:1 {run} -w fix-1 --max-retries 0 \
                     --output-format json | jq -r .resume.command | sed 's/-C .* --resume [^ ]* /ID /'"
                ),
                "outlast ID --worktree=fix-1 --max-retries=0",
            ),
            // A name is found for another one.
            (&format!("{run} --worktree; ls .claude/worktrees | wc -l"), "Done.\n2"),
            (
                "claude -p --continue -w fix-1 'and more' --output-format json | jq -r .result",
                "Done.",
            ),
            (
                &format!(
                    "{run} -w ../out 2>&1 | grep -c 'not a valid name of a worktree'; ls .. | grep -c out"
                ),
                "1\n0",
            ),
            (
                &format!(
                    "mkdir ../bare && cd ../bare && {run} -w a 2>&1 | grep -c -- '--worktree: git .*not a git repository'; echo ${{PIPESTATUS[0]}}"
                ),
                "1\n2",
            ),
            (
                &format!(
                    "cd ../bare && git init -q && {run} -w a 2>&1 | grep -o 'no commit .*'; \
                     echo ${{PIPESTATUS[0]}}; PATH=/gone $(command -v claude) -p go -w a 2>&1; \
                     echo $?; ls -A"
                ),
                "no commit to begin at; make one, such as by `git commit --allow-empty -m Begin`\n2\n\
                 outlast: --worktree: git was not found on PATH; install it\n2\n.git",
            ),
        ],
    );
}

#[test]
fn a_worktree_that_was_removed_is_added_again_on_its_branch() {
    let caller = Caller::with(Scenario::new().reply("Done.").after(AfterLast::RepeatLast));
    let (code, _, stderr) = caller.shell(
        "git init -q -b main . && git config user.email a@b && git config user.name a && \
         echo one > a && git add a && git commit -qm one && git worktree add -q -b worktree-w ../w \
         && echo two > ../w/a && git -C ../w commit -qam two && git worktree remove ../w",
    );
    assert_eq!(code, 0, "{stderr}");
    let work = "claude -p go -w w 2> ../e; sed 's/.*w, on/on/' ../e; cat .claude/worktrees/w/a";
    let added = "Done.\non its earlier branch worktree-w\ntwo";
    let add = "git worktree add -q --no-checkout --lock --reason 'outlast checks out its files'";
    let remove = "git worktree remove -f .claude/worktrees/w";
    judge(
        &caller,
        &[
            (work, added),
            (&format!("{remove}; {work}"), added),
            (&format!("rm -r .claude/worktrees/w; {work}"), added),
            // A run was killed before it had checked out the files.
            (&format!("{remove}; {add} .claude/worktrees/w worktree-w; {work}"), added),
            (
                &format!(
                    "{remove}; {add} .claude/worktrees/w worktree-w; rm -r .claude/worktrees/w; {work}"
                ),
                added,
            ),
            // A complete one is kept as it is, also one that the user locked.
            (
                &format!(
                    "git worktree lock .claude/worktrees/w; rm .claude/worktrees/w/a; {}",
                    "claude -p go -w w; ls .claude/worktrees/w"
                ),
                "Done.",
            ),
            // The branch is in use elsewhere.
            (
                &format!(
                    "git worktree unlock .claude/worktrees/w; {remove}; git checkout -q worktree-w; \
                     claude -p go -w w 2>&1 | grep -c ' is already '; echo ${{PIPESTATUS[0]}}; \
                     ls .claude/worktrees; git branch --show-current"
                ),
                "1\n2\nworktree-w",
            ),
            (
                "for i in 1 2 3 4; do claude -p go -w same >/dev/null & pids=\"$pids $!\"; done; \
                 for pid in $pids; do wait $pid; echo $?; done; cat .claude/worktrees/same/a",
                "0\n0\n0\n0\ntwo",
            ),
        ],
    );
}

#[test]
fn a_git_that_prints_much_or_hangs_is_within_the_time_of_the_run() {
    let caller = Caller::with(Scenario::new().reply("Done.").after(AfterLast::RepeatLast));
    let fake = "#!/bin/sh\ncase \"$*\" in *\"worktree list\"*) eval \"$AT_LIST\";; esac\nexec GIT \"$@\"\n";
    caller.file("fake/git", fake);
    let (code, _, stderr) = caller.shell(
        "git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && \
         sed -i \"s|GIT|$(command -v git)|\" ../fake/git && chmod +x ../fake/git && claude -p go -w w",
    );
    assert_eq!(code, 0, "{stderr}");
    let run = "PATH=$PWD/../fake:$PATH claude -p go -w w --output-format json";
    judge(
        &caller,
        &[
            // More than fits in a pipe, on both.
            (
                &format!(
                    "export AT_LIST='yes | head -c 300000; yes | head -c 300000 >&2'; {run} | jq -r .result"
                ),
                "Done.",
            ),
            (&format!("export AT_LIST='sleep 0.3'; {run} | jq '.duration_ms >= 300'"), "true"),
            (
                &format!(
                    "export AT_LIST='sleep 1000'; {run} --max-duration 1s | jq -r .terminal_reason; \
                     echo ${{PIPESTATUS[0]}}"
                ),
                "deadline\n5",
            ),
        ],
    );
}

/// An earlier command could have written them.
#[test]
fn hooks_and_filters_of_the_repository_run_as_commands_when_a_worktree_is_added() {
    let caller = Caller::with(Scenario::new().reply("Done.").after(AfterLast::RepeatLast));
    let program = "#!/bin/sh\necho ${0##*/} ${GH_TOKEN-no token} >> \"$HOME/../seen\"\n\
                   touch \"$OUTSIDE/made\"\ncat";
    for name in ["hooks/post-checkout", "monitor", "smudge"] {
        caller.file(&format!("work/.git/{name}"), program);
    }
    let (code, _, stderr) = caller.shell(
        "git init -q -b main . && git config user.email a@b && git config user.name a && \
         echo x > a && git add a && git commit -qm x && cd .git && \
         chmod +x hooks/post-checkout monitor smudge && echo '* filter=f' > info/attributes && \
         git config core.fsmonitor \"$PWD/monitor\" && git config filter.f.smudge \"$PWD/smudge\"",
    );
    assert_eq!(code, 0, "{stderr}");
    let outside = non_temporary_folder();
    let (code, stdout, stderr) = caller.shell(&format!(
        "export OUTSIDE={}; GH_TOKEN=ghp_0123456789 claude -p go -w a && cat .claude/worktrees/a/a",
        outside.path().display()
    ));
    assert_eq!((code, stdout.as_str()), (0, "Done.\nx\n"), "{stderr}");
    let seen = std::fs::read_to_string(caller.path("seen")).expect("they ran");
    for name in ["post-checkout", "smudge"] {
        assert!(seen.lines().any(|line| line == format!("{name} no token")), "{seen}");
    }
    assert!(seen.lines().all(|line| line.ends_with(" no token")), "{seen}");
    assert!(LandlockSupport::probe().abi == 0 || !outside.path().join("made").exists());
    // What a link names is not changed.
    judge(
        &caller,
        &[
            (
                "ln -s \"$HOME\" .claude/worktrees/b; claude -p go -w b 2>&1 >/dev/null | \
                 grep -c 'worktrees/b is a link'; echo ${PIPESTATUS[0]}",
                "1\n2",
            ),
            (
                "rm -r .claude/worktrees; ln -s \"$HOME\" .claude/worktrees; \
                 claude -p go -w c 2>&1 | grep -c 'worktrees is a link'; ls \"$HOME\" | grep -c c$",
                "1\n0",
            ),
            (
                "rm .claude/worktrees; mkdir ../other; mv .git ../other/; ln -s ../other/.git; \
                 claude -p go -w d 2>&1 | grep -c 'does not belong'; ls -A ../other",
                "1\n.git",
            ),
        ],
    );
}

#[test]
fn an_enabled_plugin_that_is_not_there_is_named_once() {
    let caller = Caller::with(Scenario::new().reply("Done.").after(AfterLast::RepeatLast));
    caller.file("home/.claude/settings.json", r#"{"enabledPlugins": {"far@away": true}}"#);
    let (code, stdout, stderr) = caller.shell("claude -p hi");
    assert_eq!((code, stdout.as_str()), (0, "Done.\n"), "{stderr}");
    assert!(stderr.contains("far@away") && stderr.contains("--plugin-dir"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[test]
fn sessions_have_names_by_which_they_are_resumed() {
    let caller = Caller::new();
    judge(
        &caller,
        &[
            (r#"claude -p "first task" -n nightly"#, "feat: add parser"),
            (r#"claude -p "other task" --name=weekly"#, "feat: add parser"),
            ("claude sessions --json | jq -r .name | sort | paste -sd' '", "nightly weekly"),
            ("claude sessions | grep -c nightly", "1"),
            (r#"claude -p --resume nightly "and more""#, "feat: add parser"),
            (r#"claude -p "more" --resume unheard-of >/dev/null 2>&1; echo $?"#, "2"),
        ],
    );
    let requests = caller.server().requests();
    let last = requests.last().expect("a request").body.to_string();
    assert!(last.contains("first task") && !last.contains("other task"), "{last}");
}

#[test]
fn details_go_to_the_file_that_is_named() {
    let caller = Caller::new();
    let (code, stdout, stderr) = caller.shell("claude -p hi --debug-file trace.log -d api");
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (0, "feat: add parser\n", ""));
    let trace = std::fs::read_to_string(caller.path("work/trace.log")).expect("the file");
    assert!(trace.contains("outlast: turn 1: "), "{trace}");
    // Libraries tell there, too.
    assert!(trace.contains(" DEBUG hyper_util::client::legacy::"), "{trace}");
    assert!(!trace.contains("test-key-0123456789"), "{trace}");
    let (code, _, stderr) = caller.shell("claude -p hi --debug-file /nowhere/trace.log");
    assert_eq!(code, 2, "{stderr}");
    let (code, _, stderr) = caller.shell("claude -p hi --debug=rustls=loud");
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("not a filter such as hyper_util=trace,rustls=debug"), "{stderr}");
}
