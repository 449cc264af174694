//! The man page is printed from the same tables that the program uses.

use std::fmt::Write;

use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use outlast::cli::{args, environment, exit, settings};

use super::golden;

/// Paragraphs with a bold word in front.
fn entries<'a>(roff: &mut Roff, entries: impl IntoIterator<Item = (String, &'a str)>) {
    for (name, text) in entries {
        roff.control("TP", []).text([bold(name)]).text([roman(text)]);
    }
}

fn section(title: &str, fill: impl FnOnce(&mut Roff)) -> String {
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    fill(&mut roff);
    let mut page = Vec::new();
    roff.to_writer(&mut page).expect("memory takes it");
    String::from_utf8(page).expect("roff is text")
}

fn page() -> String {
    let man = Man::new(args::command()).manual("User Commands").date("");
    let mut head = Vec::new();
    man.render_title(&mut head).expect("memory takes it");
    man.render_name_section(&mut head).expect("memory takes it");
    man.render_synopsis_section(&mut head).expect("memory takes it");
    man.render_description_section(&mut head).expect("memory takes it");
    man.render_options_section(&mut head).expect("memory takes it");
    man.render_subcommands_section(&mut head).expect("memory takes it");
    let mut page = String::from_utf8(head).expect("roff is text");
    page += &section("EXIT STATUS", |roff| {
        entries(roff, exit::MEANINGS.iter().map(|(code, text)| (code.to_string(), *text)));
    });
    page += &section("ENVIRONMENT", |roff| {
        entries(roff, environment::VARIABLES.iter().map(|(name, text)| (name.to_string(), *text)));
    });
    page += &section("FILES", |roff| {
        entries(roff, environment::FILES.iter().map(|(path, text)| (path.to_string(), *text)));
    });
    page += &section("SETTINGS", |roff| {
        roff.text([roman(
            "Keys of a settings file, which is a JSON object without comments. Managed files \
             outrank flags, flags outrank variables, variables outrank --settings, and that \
             outranks the files. A mistake in a settings file ends outlast before anything is \
             sent, with its file, line and column; outlast config lists all of them. So does a \
             key that is almost one that holds a run back; other unknown keys have no effect, \
             and are told in one line.",
        )]);
        let settings = settings::settings();
        let texts: Vec<(String, String)> = settings
            .iter()
            .map(|setting| {
                let mut text = format!("{} Takes {}.", setting.meaning, setting.takes);
                if setting.default != "none" {
                    write!(text, " Default: {}.", setting.default).expect("memory takes it");
                }
                (setting.name.to_owned(), text)
            })
            .collect();
        entries(roff, texts.iter().map(|(name, text)| (name.clone(), text.as_str())));
    });
    page += &section("HOOKS", |roff| {
        for paragraph in HOOKS {
            roff.text([roman(*paragraph)]).control("PP", []);
        }
    });
    page += &section("AGENTS", |roff| {
        for paragraph in AGENTS {
            roff.control("PP", []).text([roman(*paragraph)]);
        }
    });
    page += &section("TRUST", |roff| {
        for paragraph in TRUST {
            roff.control("PP", []).text([roman(*paragraph)]);
        }
    });
    page += &section("FALLBACK", |roff| {
        for paragraph in FALLBACK {
            roff.control("PP", []).text([roman(*paragraph)]);
        }
        entries(roff, ENTRIES.iter().map(|(entry, text)| (entry.to_string(), *text)));
    });
    page += &section("SANDBOX", |roff| {
        for paragraph in SANDBOX {
            roff.control("PP", []).text([roman(*paragraph)]);
        }
    });
    page += &section("MCP", |roff| {
        for paragraph in MCP {
            roff.control("PP", []).text([roman(*paragraph)]);
        }
    });
    page += &section("SUB-AGENTS", |roff| {
        for paragraph in SUB_AGENTS {
            roff.control("PP", []).text([roman(*paragraph)]);
        }
    });
    page += &section("HEARTBEATS", |roff| {
        for paragraph in HEARTBEATS {
            roff.control("PP", []).text([roman(*paragraph)]);
        }
    });
    page += &section("SIGNALS", |roff| {
        for paragraph in SIGNALS {
            roff.control("PP", []).text([roman(*paragraph)]);
        }
    });
    page
}

const HOOKS: &[&str] = &[
    "The setting hooks names programs of yours for each event: {\"hooks\": {\"PreToolUse\": \
     [{\"matcher\": \"Bash|Write\", \"hooks\": [{\"type\": \"command\", \"command\": \
     \"./guard.sh\", \"timeout\": 10, \"failClosed\": true}]}]}}. The events are SessionStart, \
     UserPromptSubmit, PreToolUse, PostToolUse, PostToolUseFailure, Stop, StopFailure, \
     SubagentStart, SubagentStop, PreCompact, Notification (of a call that was denied) and SessionEnd. \
     A hook reads a JSON object about what happens from standard input. Exit code 0 is consent, 2 \
     objects with what stands on standard error; a JSON object on standard output, with nothing \
     before it, may say more. Other text is consent. One that prints {\"async\":true} first runs on in \
     the background, without a say. The file or folder that a call names is absolute in tool_input; \
     where a link leads elsewhere, PreToolUse hooks are asked about the real path, too.",
    "A hook that crashes, hangs past its timeout, prints rubbish or is missing counts as not there, \
     unless it is a guard with failClosed: then it forbids. A guard that could not guard (async, of \
     another type than command, of an event that there is not) is a mistake, as is an event that is \
     nearly one; what else outlast cannot run is named in a warning. Failures are written to \
     hooks/.logs/hook-log.jsonl in the configuration folder. Hooks see your environment without \
     the credentials of the model. A Stop hook that still objects at its third pass (see \
     CLAUDE_CODE_STOP_HOOK_BLOCK_CAP), or says the same twice with no tool call in between, ends \
     the run as stop_hook_blocked, exit code 9. Hooks that are ended with \
     the run are named in hooks.cut of the result.",
    "What a SessionStart hook appends to the file that CLAUDE_ENV_FILE names is run by a shell when \
     the session starts or is resumed, and later commands see what it exports, without credentials.",
];

const AGENTS: &[&str] = &[
    "Agents, commands and skills are Markdown files below agents, commands and skills of .outlast and \
     .claude: of the working folder and of those above it up to the root of the repository, of the \
     configuration folder, and of ~/.claude (or CLAUDE_CONFIG_DIR). Of several of a name the nearest \
     counts. --setting-sources says whether the project's and the user's are read. Files beyond 256 \
     kB, 500 of a kind, 8 MB in all or eight folders deep are left out, as is what cannot be read, \
     with a warning that names the file, and the line and column where its front matter is no YAML.",
    "An agent's front matter has name and description, and perhaps tools, disallowedTools, model, \
     maxTurns, permissionMode and background; its text is the prompt. --agents takes the same as \
     JSON, with the text as prompt, and outranks files. --agent, or the setting agent, has the run \
     itself work as one: with its prompt in place of outlast's, its tools unless --tools names some, \
     its model unless --model does, its permissionMode unless a flag names one, and no more than \
     its maxTurns unless --max-turns says so.",
    "A command is called by a prompt that begins with a slash and its name, with its folders before \
     it (/git:commit) or without them; a skill (skills/NAME/SKILL.md) by its folder's name. \
     $ARGUMENTS stands for all that follows; $0, $1 and $ARGUMENTS[1] stand for single words of it, \
     counted from 0, which quotes hold together; without a place for them, arguments are added at \
     the end. ${CLAUDE_PROJECT_DIR} is the folder of the run, ${CLAUDE_SESSION_ID} the id of its \
     session, ${CLAUDE_SKILL_DIR} the folder of the file. allowed-tools is added to \
     the allowed tools of that run, and model is its model unless --model names one. An unknown name \
     is a mistake, exit code 2, unless it is a path or a file. What other tools would run in a \
     command, !`like this`, is left as it is, with a warning: the model may run it as any other \
     command.",
    "@path in the prompt argument or in a command's file shows the model that file beside the prompt, \
     as Read would and under the rules for reading: @src/main.rs, @src/main.rs#L10-40 for some of its \
     lines, @src/ for the names in a folder. At most 20 files and 2 MB are shown; what cannot be \
     shown is a warning. Addresses, code and piped input name no files.",
    "The model is told of skills by name, description and file (8 kB at most) when it has the tool \
     Read, and may read their folders whole, yours even where credentials are kept from it.",
    "Of a repository that is not trusted, model, permissionMode, hooks and mcpServers of agents and \
     allowed-tools and model of commands have no effect and are listed in ignored_settings, and no \
     file takes the place of one of yours.",
];

const TRUST: &[&str] = &[
    "The settings of the repository in whose folder outlast works may be hostile. Unless the user \
     trusts it, they can only forbid (permissions.deny, permissions.ask, \
     disableBypassPermissionsMode, the default mode plan, sandbox.filesystem.denyRead and denyWrite) \
     and nothing else: they run \
     nothing, change no address, model, proxy or variable, and widen no right. A file of them that \
     is broken, odd, larger than 1 MB or a link out of the repository is left alone. What was \
     ignored is told in one line on standard error, and listed by file and name, never by value, \
     in ignored_settings of the result and of the init message.",
    "--trust-project, or OUTLAST_TRUST_PROJECT=1, vouches for this run. The setting \
     trustedProjects of your own settings, or of --settings, names repositories: by the absolute \
     path of the folder or of the root of its repository, in which * and ** stand for anything \
     within a folder and across folders; by the SHA-256 of a settings file (\"sha256\": one, or a \
     list), so that a file that changes is not trusted any more; or by both. Links are followed \
     first: where the folder really is decides.",
    "The files of a trusted repository outrank the user's and are outranked by --settings, by the \
     environment and by flags; lists are joined. A mistake in one of them ends outlast.",
];

const SIGNALS: &[&str] = &[
    "SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM and SIGXCPU end the run within four \
     seconds: its commands are ended, nothing more is sent or started, and there is a result. The \
     exit code is 128 and the number of the signal. A second SIGINT within three seconds ends the \
     run at once. The run also ends when the reader of standard output has gone.",
    "A signal that is ignored when outlast starts stays ignored, as nohup(1) does it with SIGHUP, \
     and a shell without job control with SIGINT for what it starts in the background.",
    "When CI or GITHUB_ACTIONS is set, the death of the process that started outlast counts as \
     SIGTERM: a cancelled job often signals only the shell of its step. A step whose last \
     line is exec outlast ... hears the cancellation itself.",
    "SIGKILL leaves no result; the session is kept up to its last finished step, and --continue \
     goes on with it.",
];

const FALLBACK: &[&str] = &[
    "The models of --fallback-model, or of the setting fallbackModel, take over in their order when \
     the one before has failed for good: they may be at the same address or at another, so that an \
     outage of one provider does not end the night. A key is never written there, only the name of \
     the variable that holds it; commands of the model do not see that variable.",
    "The credentials and headers of the first model go to its own origin (scheme, host and port) \
     and nowhere else. An entry at another origin that names no variable is asked without \
     credentials.",
    "In results, in progress lines, and for --price and --context-window, a model at another place \
     is called just as it is written here; one that costs nothing has the price 0/0.",
];

const ENTRIES: &[(&str, &str)] = &[
    ("haiku", "At the address of the first model, with its credentials."),
    ("haiku#SECOND_KEY", "There, with the API key of another account."),
    ("my-model@http://127.0.0.1:8080", "At another address, without credentials."),
    ("opus@https://gate.example/api#GATE_KEY", "With the API key in the variable GATE_KEY."),
    ("opus@https://gate.example/api#bearer:GATE_TOKEN", "The same with a bearer token."),
    (
        "{\"model\": \"opus\", \"baseUrl\": \"https://gate.example/api\", \"apiKeyEnv\": \"GATE_KEY\"}",
        "As an object, in the list of the setting fallbackModel. With \"authTokenEnv\" instead, the \
         variable holds a bearer token; \"headers\" are sent with each request, and \
         \"contextWindow\" is the model's.",
    ),
];

const MCP: &[&str] = &[
    "The model is offered the tools of servers of the Model Context Protocol, as \
     mcp__SERVER__TOOL. Servers are named in the setting mcpServers, in .mcp.json of a repository \
     that is trusted, and in --mcp-config; of the same name, the later one counts. ${NAME} and \
     ${NAME:-default} stand for variables. An entry that is no good is left out, with a warning.",
    "A call needs leave like any other: a rule mcp__SERVER or mcp__SERVER__TOOL, with * behind the \
     server's name, or --permission-mode bypassPermissions. While the run only plans, a tool that \
     says of itself that it only reads may be used with such a rule, unless a repository named the \
     server. Resources are listed with ListMcpResources, and read with ReadMcpResource, which takes \
     the leave of the server's tools.",
    "A tool is left out, with a warning, when the service would refuse its name or schema: that \
     would have every request refused. Servers that ask are told the working directory and those of \
     --add-dir as their roots; questions to people are declined, since the run is unattended. \
     What a server says of its use stands in the system prompt, 2,000 characters at most.",
    "Servers start side by side. The first request waits for them as long as MCP_TIMEOUT says, \
     with a heartbeat. The start of later ones goes on beside the run (OUTLAST_MCP_START_TIMEOUT); \
     the model is told that they are pending, and their tools join at the next turn. --mcp-required names those without which the run \
     does not begin: it waits for them as long as MCP_TIMEOUT says, within --max-duration, and then \
     ends with exit 1 and the reason mcp_unavailable. A session that is resumed still requires them; \
     none takes that back.",
    "Nothing that a server does ends a run. A call that goes wrong is an error that the model \
     reads, and a line on standard error with the server's name. What is no result is an error too. \
     A server that is lost is started anew after 1, 2, 4, 8 and 16 seconds, and then given \
     up; one that wants a login is not asked again. A call is repeated only when the server has \
     said that it forgot the session. The result says in \"mcp\" what came of each.",
    "Servers see the variables that commands see, and those of their own entry. They are not \
     sandboxed, and end with the run at the latest.",
];

const SANDBOX: &[&str] = &[
    "Commands of the model, and that of --require, are held by the kernel's Landlock, if it has one \
     that works; the result and the init message say in \"sandbox\" what is in force. They write to \
     the git checkout around the working directory, to the .git that it belongs to, to --add-dir \
     folders, temporary folders and the caches of tools. They do not read the content of \
     credentials, such as ~/.ssh, nor of outlast's own folder; file tools neither, unless a rule \
     names them. They neither look into nor, since Linux 6.12, signal processes that they did not \
     start.",
    "In the setting sandbox, filesystem.allowWrite and filesystem.allowRead open further paths, \
     filesystem.denyWrite and filesystem.denyRead close some. Paths are absolute, begin with ~/, or \
     are seen from the working directory; patterns are not taken. Of allowRead and denyRead the \
     deeper path decides; denyWrite outranks allowWrite. Nothing can be closed inside of a folder \
     that commands write to: such paths are listed in \"exposed\", \"enforced\" is then partial, and \
     with --sandbox required the run does not begin.",
    "Not held back are: reading names of files, changing modes and owners, UDP, and connecting to \
     sockets in the file system. --sandbox-network off takes TCP away, since Linux \
     6.7, and WebFetch with it.",
];

const SUB_AGENTS: &[&str] = &[
    "With the tool Agent (Task is the same) the model gives a part of its work to a sub-agent: a run \
     with a conversation, tools, model and turn limit of its own, and the budget, deadline, rules \
     and hooks of the run. It may do no more than its parent. The kind general-purpose is \
     built in. Calls in one reply work side by side, with its read-only tools; with \
     run_in_background the call returns at once, and the run waits for it in the end as it does for \
     background commands. Without it, the work is in the foreground.",
    "Only the last words come back. A sub-agent that fails comes back as an error with its stop \
     reason, cost, session and what it had finished. on_failure in the call is continue, \
     cancel_siblings or retry_once. maxAgentDepth, maxLiveAgents and maxAgents bound them; rules \
     such as Agent(general-purpose) deny kinds of them. What ends the run ends them.",
    "The result lists them in \"agents\". Costs and modelUsage are of all; usage, num_turns and \
     recovery are the run's own. CLAUDE_CODE_SUBAGENT_MODEL names the model of all of them.",
];

const HEARTBEATS: &[&str] = &[
    "Standard error stays empty while there is nothing to wait for. Every wait for the service is \
     announced when it begins, and no 30 seconds pass in silence while outlast waits for the \
     service, for the model or for a tool. The lines are plain and meant for grep:",
    "outlast: waiting 2m10s to retry (server_overload, HTTP 529, retry 4 of 10), until 14:02:11, \
     waited 3m20s so far, $0.0123 spent",
    "outlast: waiting for MODEL to answer, 30s so far, last byte 12s ago, turn 3, $0.0123 spent",
    "outlast: running Bash (toolu_1), 30s so far, turn 3, $0.0123 spent",
    "On a terminal there is a moving line with a countdown instead. With --output-format \
     stream-json the same is told on standard output, in messages of the type system with the \
     subtypes api_retry and heartbeat. --heartbeat-file touches a file for probes.",
];

#[test]
fn the_man_page_is_as_committed() {
    golden::compare("man/outlast.1", &page());
}

#[test]
fn every_flag_is_in_the_man_page() {
    let page = page().replace('\\', "");
    for argument in args::command().get_arguments() {
        if let Some(long) = argument.get_long() {
            assert!(page.contains(&format!("--{long}")), "--{long}");
        }
    }
}
