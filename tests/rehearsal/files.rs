//! Scenario files: parsing and error messages.

use std::num::NonZeroU64;
use std::time::Duration;

use outlast_rehearsal::{
    AfterLast, Expectation, FaultPosition, MediaRules, RejectedContent, ReplyForm, Scenario,
    ScenarioComments, ScenarioError, ScratchFolder, ScriptedError, ScriptedFaultKind, ServerRules,
    Signatures, StepCondition, TokenRules, file_schema,
};
use serde_json::{Value, json};

const EVERYTHING: &str = r#"
name = "unnamed"
summary = ""
prompt = "Do it."
time_scale = 2.5
after = "repeat last"
args = ["--fallback-model", "b@{server.backup.url}"]
expect = { exit = 0, requests = 4, compactions = 1, refreshes = 2, files = { a = "b" } }

[rules]
require_key = "k"
context_window = 9
token_limit = 7
max_output = 8
signatures = "refuse"
expire_signatures_after = 3
media = { count = 1, image_bytes = 2, image_pixels = 3, many_images_pixels = 4, pdf_pages = 5 }
rejected_content = [{ contains = "a" }, { contains = "b", message = "c" }]

[rules.tokens]
access = "a"
refresh = "r"
expire_token_after = 2
path = "/t"
expires_in = 9
delay = "20ms"
failing_refreshes = 1
keeps_refresh = true

[files]
"deep/run.sh" = { content = "exit 0\n", mode = 0o755 }

[[compaction]]
status = 500

[[compaction]]
text = "In short."

[server.backup]
requests = 6
after = "loop"
rules = { max_output = 3 }
step = [{ text = "B." }]
compaction = [{ text = "b." }]

[[step]]
status = 529
headers = { retry-after = "1" }
repeat = 3
delay = "1s 500ms"

[[step]]
status = 429
error = { type = "rate_limit_error", message = "Slow down", code = "ramp_limit_exceeded" }
when = { model = "m*", stream = true, contains = "x", source = "compact", fast = false, prompt = "p", system = "s" }

[[step]]
status = 200
body = "<html>"
content_type = "text/html"
content_length = 99

[[step]]
text = "I write."
thinking = "Hm."
stop_reason = "max_tokens"
usage = { input_tokens = 1, output_tokens = 2, cache_creation_input_tokens = 0, cache_read_input_tokens = 0 }
form = "llama.cpp"
closes_early = true
chunk = 3
pause = "20ms"
tool = [
    { name = "Bash", input = { command = "ls" }, id = "same" },
    { name = "Write", input = { content = "long" }, cut = 5 },
]

[[step]]
empty = true

[[step]]
raw = "nonsense"

[[step]]
fault = { kind = "reset", after = "request" }

[[step]]
text = "Torn."
fault = { kind = "close", after = { events = 4 } }

[[step]]
fault = { kind = "stall", after = "accept", hold = "10m" }

[[step]]
fault = { kind = "pings", after = { bytes = 7 }, every = "3s", hold = "1m" }

[[step]]
fault = { kind = "insert", after = "delta", bytes = "!" }

[[step]]
fault = { kind = "end", after = "headers" }

[[step]]
fault = { kind = "reset", after = "half_head" }

[[step]]
fault = { kind = "error", after = { events = 1 }, error = { type = "api_error", message = "Oh" } }
"#;

/// Every rule there is.
fn strict() -> ServerRules {
    let tokens = TokenRules {
        expire_token_after: Some(2),
        path: "/t".to_owned(),
        expires_in: 9,
        delay: Duration::from_millis(20),
        failing_refreshes: 1,
        keeps_refresh: true,
        ..TokenRules::new("a", "r")
    };
    let poison = |contains: &str, message: Option<&str>| RejectedContent {
        contains: contains.to_owned(),
        message: message.map(str::to_owned),
    };
    ServerRules {
        require_key: Some("k".to_owned()),
        tokens: Some(tokens),
        context_window: Some(9),
        token_limit: NonZeroU64::new(7),
        max_output: Some(8),
        media: MediaRules {
            count: Some(1),
            image_bytes: Some(2),
            image_pixels: Some(3),
            many_images_pixels: Some(4),
            pdf_pages: Some(5),
        },
        rejected_content: vec![poison("a", None), poison("b", Some("c"))],
        signatures: Signatures::Refuse,
        expire_signatures_after: Some(3),
    }
}

#[test]
fn a_scenario_file_equals_the_same_scenario_from_the_builder() {
    let backup = Scenario::new()
        .reply("B.")
        .after(AfterLast::Loop)
        .rules(ServerRules { max_output: Some(3), ..ServerRules::default() })
        .compactions(Scenario::new().reply("b."))
        .expect(Expectation { requests: Some(6), ..Expectation::default() });
    let built = Scenario::new()
        .prompt("Do it.")
        .time_scale(2.5)
        .after(AfterLast::RepeatLast)
        .rules(strict())
        .args(&["--fallback-model", "b@{server.backup.url}"])
        .compactions(Scenario::new().status(500).reply("In short."))
        .server("backup", backup)
        .expect(Expectation {
            exit: Some(0),
            requests: Some(4),
            compactions: Some(1),
            refreshes: Some(2),
            files: [("a".to_owned(), "b".to_owned())].into(),
            ..Expectation::default()
        })
        .file("deep/run.sh", "exit 0\n", 0o755)
        .status(529)
        .header("retry-after", "1")
        .times(3)
        .delay(Duration::from_millis(1500))
        .status(429)
        .error("rate_limit_error", "Slow down", Some("ramp_limit_exceeded"))
        .when(StepCondition {
            model: Some("m*".to_owned()),
            stream: Some(true),
            contains: Some("x".to_owned()),
            prompt: Some("p".to_owned()),
            system: Some("s".to_owned()),
            source: Some("compact".to_owned()),
            fast: Some(false),
        })
        .status(200)
        .body("text/html", "<html>")
        .content_length(99)
        .reply("I write.")
        .and_thinking("Hm.")
        .usage(1, 2)
        .form(ReplyForm::LlamaCpp)
        .closes_early()
        .timing(Some(3), Duration::from_millis(20))
        .and_tool("Bash", json!({ "command": "ls" }))
        .id("same")
        .and_tool("Write", json!({ "content": "long" }))
        .cut(5)
        .empty()
        .raw("nonsense")
        .interrupted(ScriptedFaultKind::Reset, FaultPosition::Request)
        .interrupted(ScriptedFaultKind::Close, FaultPosition::Events(4))
        .and_text("Torn.")
        .interrupted(ScriptedFaultKind::Stall, FaultPosition::Accept)
        .hold(Duration::from_mins(10))
        .interrupted(
            ScriptedFaultKind::Pings { every: Duration::from_secs(3) },
            FaultPosition::Bytes(7),
        )
        .hold(Duration::from_mins(1))
        .interrupted(ScriptedFaultKind::Insert(b"!".to_vec()), FaultPosition::Delta)
        .interrupted(ScriptedFaultKind::End, FaultPosition::Headers)
        .interrupted(ScriptedFaultKind::Reset, FaultPosition::HalfHead)
        .interrupted(
            ScriptedFaultKind::Error(ScriptedError {
                kind: "api_error".to_owned(),
                message: "Oh".to_owned(),
                code: None,
            }),
            FaultPosition::Events(1),
        );
    let read = Scenario::parse(EVERYTHING, "everything.toml").unwrap();
    for (number, (read, built)) in read.main.steps.iter().zip(&built.main.steps).enumerate() {
        assert_eq!(read, built, "step {number}");
    }
    assert_eq!(read, built);
}

/// The keys that are not among all of those.
const REST: &str = r#"
name = "rest"
summary = ""
compactions_vary = true
step = [{ text = "", tool = [{ name = "B", input_json = "{\"a\": null}" }] }]
env = { A = "b" }
expect = { terminal_reason = "completed", absent = ["a"], stderr = ["b"] }
"#;

#[test]
fn the_input_of_a_tool_call_is_any_value() {
    let input =
        r#"{ on = 2024-02-29, at = 07:32:00, list = [0xff, 1_000, -1.5, true], text = "t" }"#;
    let text = format!(
        "name = \"x\"\nsummary = \"\"\n[[step]]\ntool = [{{ name = \"B\", input = {input} }}]\n"
    );
    let read = Scenario::parse(&text, "input.toml").unwrap();
    let input = json!({ "on": "2024-02-29", "at": "07:32:00", "list": [255, 1000, -1.5, true], "text": "t" });
    assert_eq!(read.main.steps, Scenario::new().tool("B", input).main.steps);
}

#[test]
fn every_key_of_the_manual_is_read() {
    let rest = Scenario::parse(REST, "rest.toml").unwrap();
    let built = Scenario::new().reply("").and_tool("B", json!({ "a": null }));
    assert_eq!(rest.main.steps, built.main.steps);
    let files = [EVERYTHING, REST].concat();
    let words: Vec<&str> =
        files.split(|one: char| !(one.is_alphanumeric() || one == '_')).collect();
    let mut keys = Vec::new();
    add_keys(&file_schema(), &mut keys);
    assert!(keys.len() > 80, "{keys:?}");
    for key in keys {
        assert!(words.contains(&key.as_str()), "{key}");
    }
}

/// Collects the keys of all tables in a schema.
fn add_keys(schema: &Value, keys: &mut Vec<String>) {
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        keys.extend(properties.keys().cloned());
    }
    let parts = schema.as_object().into_iter().flat_map(|parts| parts.values());
    for part in parts.chain(schema.as_array().into_iter().flatten()) {
        add_keys(part, keys);
    }
}

/// Invalid scenarios, with the line and column of the error.
const WRONG: &[(&str, usize, usize, &str)] = &[
    ("name = \"x\"\nsummary = 1", 2, 11, "`summary`: invalid type: integer `1`, expected a string"),
    ("summary = \"s\"", 1, 1, "missing field `name`"),
    ("name = \"x\"", 1, 1, "missing field `summary`"),
    ("nam = \"x\"\nsummary = \"s\"", 1, 1, "did you mean `name`?"),
    ("", 1, 1, "missing field `name`"),
    ("\"a\\nb\" = 1", 1, 1, "unknown field `a b`, expected one of `name`"),
    ("name = \"x\"\nsummary = \"s\nprompt = \"\"", 2, 13, "string"),
    ("name = \"x\"\nsummary = \"s\"", 1, 1, "at least one `[[step]]`"),
    ("name = 2024-02-29\nsummary = \"s\"", 1, 8, "`name`: invalid type: map, expected a string"),
];

/// The same for texts that begin on line 3, after a name and a summary.
const WRONG_KEYS: &[(&str, usize, usize, &str)] = &[
    ("prompt = \"\"\nturns = 3", 4, 1, "unknown field `turns`, expected one of `name`"),
    (
        "time_scale = 0",
        3,
        14,
        "`time_scale`: invalid value: floating point `0.0`, expected a number above 0",
    ),
    (
        "time_scale = -0.5",
        3,
        14,
        "`time_scale`: invalid value: floating point `-0.5`, expected a number above 0",
    ),
    (
        "time_scale = inf",
        3,
        14,
        "`time_scale`: invalid value: floating point `inf`, expected a number above 0",
    ),
    (
        "time_scale = nan",
        3,
        14,
        "`time_scale`: invalid value: floating point `NaN`, expected a number above 0",
    ),
    (
        "time_scale = \"2\"",
        3,
        14,
        "`time_scale`: invalid type: string \"2\", expected a number above 0",
    ),
    ("after = \"stop\"", 3, 9, "`after`: unknown variant `stop`, expected one of `fail`"),
    ("[files]\n\"../x\" = { content = \"\" }", 4, 1, "does not lie below"),
    ("[files]\n\"/x\" = { content = \"\" }", 4, 1, "does not lie below"),
    ("[expect]\nexitcode = 1", 4, 1, "`expect`: unknown field `exitcode`, expected one of `exit`"),
    (
        "[rules]\ntoken_limit = 0",
        4,
        15,
        "`rules.token_limit`: invalid value: integer `0`, expected a whole number from 1",
    ),
    (
        "[rules.media]\nimages = 1",
        4,
        1,
        "`rules.media`: unknown field `images`, expected one of `count`",
    ),
    (
        "[[rules.rejected_content]]\nmessage = \"\"",
        3,
        1,
        "`rules.rejected_content[0]`: missing field `contains`",
    ),
    (
        "[rules.tokens]\naccess = \"a\"\nrefresh = \"r\"\ndelay = 3",
        6,
        9,
        "`rules.tokens.delay`: invalid type: integer `3`, expected a time, as in \"1m 30s\"",
    ),
    ("[server.main]\nafter = \"loop\"", 3, 9, "`main` cannot be"),
    ("[server.\"a.b\"]\nafter = \"loop\"", 3, 9, "`a.b` cannot be"),
    (
        "[server.b]\nname = \"c\"",
        4,
        1,
        "`server.NAME`: unknown field `name`, expected one of `rules`",
    ),
    ("[[server.b.step]]\nrepeat = 2", 3, 1, "needs an answer"),
    ("[[compaction]]\nrepeat = 2", 3, 1, "needs an answer"),
    ("args = [\"-p\", \"m@{server.b.url}\"]", 3, 15, "there is no `[server.b]`"),
    ("env = { A = \"{server.c.url}\" }", 3, 13, "there is no `[server.c]`"),
    ("[files]\nf = { content = \"{server.d.url}\" }", 4, 1, "there is no `[server.d]`"),
    ("args = 1", 3, 8, "`args`: invalid type: integer `1`, expected a list"),
    ("args = [\"-p\", true]", 3, 15, "`args[1]`: invalid type: boolean `true`, expected a string"),
    ("env = []", 3, 7, "`env`: invalid type: sequence, expected a table"),
    ("env = { A = 1.5 }", 3, 13, "`env.A`: invalid type: floating point `1.5`, expected a string"),
    ("files = \"f\"", 3, 9, "`files`: invalid type: string \"f\", expected a table"),
    ("files = { f = \"\" }", 3, 15, "`files.NAME`: invalid type: string \"\", expected a table"),
    ("[files.f]\nmode = 1", 3, 1, "`files.NAME`: missing field `content`"),
    ("[rules.tokens]\naccess = \"a\"", 3, 1, "`rules.tokens`: missing field `refresh`"),
    ("rules = [{}]", 3, 10, "`rules[0]`: invalid type: map, expected a string"),
    ("[step]\ntext = \"\"", 3, 1, "`step`: invalid type: map, expected a list"),
    (
        "step = [{ text = \"\" }, 1]",
        3,
        24,
        "`step[1]`: invalid type: integer `1`, expected a table",
    ),
    ("after = 3", 3, 9, "`after`: wanted string or table"),
    (
        "[expect]\nrequests = -1",
        4,
        12,
        "`expect.requests`: invalid value: integer `-1`, expected a whole number from 0",
    ),
    (
        "[expect]\nrequests = 1.5",
        4,
        12,
        "`expect.requests`: invalid type: floating point `1.5`, expected a whole number from 0",
    ),
    (
        "[expect]\nrequests = -9223372036854775809",
        4,
        12,
        "`expect.requests`: invalid type: integer `-9223372036854775809` as i128, expected a whole number from 0",
    ),
    (
        "[expect]\nexit = 256",
        4,
        8,
        "`expect.exit`: invalid value: integer `256`, expected a whole number from 0 to 255",
    ),
    ("prompt = 1\ntimescale = 1", 3, 10, "`prompt`: invalid type: integer `1`, expected a string"),
];

/// The same for steps, whose texts begin on line 4.
const WRONG_STEPS: &[(&str, usize, usize, &str)] = &[
    ("txt = \"hello\"", 4, 1, "did you mean `text`?"),
    ("tool = [{ nme = \"Bash\" }]", 4, 11, "did you mean `name`?"),
    ("fault = { kind = \"rest\", after = \"headers\" }", 4, 18, "did you mean `reset`?"),
    ("fault = { kind = \"end\", after = { event = 1 } }", 4, 35, "did you mean `events`?"),
    ("text = \"x\"\nwhen = { sorce = \"main\" }", 5, 10, "did you mean `source`?"),
    ("tool = [{ name = \"B\", input = {}, input_json = \"{}\" }]", 3, 1, "exclude each other"),
    ("tool = [{ name = \"B\", input_json = \"{\" }]", 3, 1, "`input_json` is not JSON"),
    ("delay = \"soon\"\ntext = \"x\"", 4, 9, "`soon` is not a time span"),
    ("", 3, 1, "a step needs an answer"),
    (
        "repeat = 0\ntext = \"x\"",
        4,
        10,
        "`step[0].repeat`: invalid value: integer `0`, expected a whole number from 1 to",
    ),
    (
        "repeat = 4294967296\ntext = \"x\"",
        4,
        10,
        "`step[0].repeat`: invalid value: integer `4294967296`, expected a whole number from 1 to",
    ),
    (
        "chunk = 0\ntext = \"x\"",
        4,
        9,
        "`step[0].chunk`: invalid value: integer `0`, expected a whole number from 1",
    ),
    (
        "closes_early = 1",
        4,
        16,
        "`step[0].closes_early`: invalid type: integer `1`, expected true or false",
    ),
    (
        "pause = true\ntext = \"x\"",
        4,
        9,
        "`step[0].pause`: invalid type: boolean `true`, expected a time, as in \"1m 30s\"",
    ),
    ("tool = [{ input = {} }]", 4, 9, "`step[0].tool[0]`: missing field `name`"),
    (
        "tool = [{ name = \"B\", input = { a = [nan] } }]",
        4,
        31,
        "`step[0].tool[0].input`: invalid value: floating point `NaN`, expected a number of JSON",
    ),
    (
        "tool = [{ name = \"B\", input = 9223372036854775808 }]",
        4,
        31,
        "`step[0].tool[0].input`: u64 value was too large",
    ),
    (
        "headers = { retry-after = 1 }",
        4,
        27,
        "`step[0].headers.retry-after`: invalid type: integer `1`, expected a string",
    ),
    ("error = { type = \"a\" }", 4, 9, "`step[0].error`: missing field `message`"),
    ("text = \"x\"\nstatus = 529", 3, 1, "a step is one answer"),
    ("raw = \"x\"\nstatus = 529", 3, 1, "a step is one answer"),
    ("stop_reason = \"refusal\"", 3, 1, "a reply needs"),
    ("empty = true\ntext = \"x\"", 3, 1, "no room for content"),
    ("raw = \"x\"\nfault = { kind = \"reset\", after = \"headers\" }", 3, 1, "`raw` is all"),
    (
        "status = 42",
        4,
        10,
        "`step[0].status`: invalid value: integer `42`, expected a whole number from 200 to 599",
    ),
    ("error = { type = \"a\", message = \"b\" }\nbody = \"\"", 3, 1, "exclude each other"),
    (
        "fault = { kind = \"bang\", after = \"headers\" }",
        4,
        18,
        "`step[0].fault.kind`: unknown variant `bang`, expected one of `reset`",
    ),
    (
        "fault = { kind = \"reset\", after = \"lunch\" }",
        4,
        35,
        "`step[0].fault.after`: unknown variant `lunch`, expected one of `accept`",
    ),
    ("fault = { kind = \"reset\" }", 4, 9, "`step[0].fault`: missing field `after`"),
    (
        "fault = { kind = \"end\", after = 3 }",
        4,
        33,
        "`step[0].fault.after`: wanted string or table",
    ),
    (
        "fault = { kind = \"end\", after = {} }",
        4,
        33,
        "`step[0].fault.after`: wanted exactly 1 element, found 0 elements",
    ),
    (
        "fault = { kind = \"end\", after = { events = 1, bytes = 2 } }",
        4,
        33,
        "`step[0].fault.after`: wanted exactly 1 element, more than 1 element",
    ),
    ("fault = { kind = \"end\", after = \"request\" }", 3, 1, "after `headers`, or later"),
    ("fault = { kind = \"insert\", after = \"accept\", bytes = \"\" }", 3, 1, "after `request`"),
    ("fault = { kind = \"error\", after = \"half_head\" }", 3, 1, "after `headers`, or later"),
    ("fault = { kind = \"insert\", after = \"headers\" }", 3, 1, "needs `bytes`"),
    ("fault = { kind = \"reset\", after = \"headers\", hold = \"1s\" }", 3, 1, "`hold` belongs to"),
    (
        "fault = { kind = \"stall\", after = \"headers\", every = \"1s\" }",
        3,
        1,
        "`every` belongs to",
    ),
];

#[test]
fn an_error_in_a_scenario_file_names_its_position() {
    let head = "name = \"x\"\nsummary = \"s\"\n";
    let tables = [("", WRONG), (head, WRONG_KEYS), (&format!("{head}[[step]]\n"), WRONG_STEPS)];
    let rows = tables.iter().flat_map(|(before, rows)| rows.iter().map(move |row| (before, row)));
    for (before, (text, line, column, message)) in rows {
        let text = format!("{before}{text}\n");
        let error = Scenario::parse(&text, "mine.toml").expect_err(&text);
        let shown = error.to_string();
        assert!(shown.contains(message), "{text}\n{shown}");
        assert!(shown.starts_with(&format!("mine.toml:{line}:{column}: ")), "{text}\n{shown}");
        assert_eq!(shown.lines().count(), 1, "{shown}");
    }
}

#[test]
fn a_missing_scenario_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none.toml");
    let error = Scenario::load(&path).expect_err("there is no such file");
    assert!(matches!(error, ScenarioError::Unreadable { .. }));
    assert!(error.to_string().contains("none.toml"));
}

#[test]
fn a_scratch_folder_holds_the_files_and_is_removed_on_drop() {
    use std::os::unix::fs::PermissionsExt;

    let scenario = Scenario::parse(EVERYTHING, "everything.toml").unwrap();
    let scratch = ScratchFolder::create(&scenario).unwrap();
    let file = scratch.path().join("deep/run.sh");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "exit 0\n");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o755);
    let folder = scratch.path().to_owned();
    let root = folder.parent().expect("a root").metadata().unwrap().permissions().mode();
    assert_eq!(root & 0o777, 0o700, "other users share the temporary folder");
    drop(scratch);
    assert!(!folder.exists());
}

#[test]
fn a_file_with_every_key_is_read_as_it_was_written() {
    let scenario = Scenario::parse(EVERYTHING, "all.toml").unwrap();
    let written = scenario.to_toml(&ScenarioComments::default());
    let read = Scenario::parse(&written, "written.toml").unwrap_or_else(|error| {
        panic!("{error}\n{written}");
    });
    assert_eq!(read, scenario, "{written}");
}

#[test]
fn a_comment_with_control_characters_is_read_as_a_comment() {
    let comments = ScenarioComments {
        head: vec!["One\rname = \"other\"".to_owned(), "Two\u{7}\u{7f}\nlines".to_owned()],
        steps: vec!["Step\u{1b}[1m".to_owned()],
    };
    let scenario = Scenario::new().reply("Done.");
    let written = scenario.to_toml(&comments);
    let of_comments = written.lines().filter(|line| line.starts_with('#')).collect::<Vec<_>>();
    assert_eq!(of_comments, ["# Onename = \"other\"", "#", "# Twolines", "# Step[1m"]);
    assert_eq!(Scenario::parse(&written, "written.toml").ok(), Some(scenario), "{written}");
}

/// A file as it is written: tables of steps stand on one line, and defaults are left out.
const WRITTEN: &str = r#"# Why.
name = "unnamed"
summary = ""
prompt = "Do it."
args = [
    "--max-turns",
    "3",
]
time_scale = 1.0
after = "loop"

[env]
A = "b"

[files."run.sh"]
content = """
exit 0
"""
mode = 0o755

[rules]
media = { count = 1 }

# First.
[[step]]
when = { source = "main" }
text = 'Says "a".'
[[step.tool]]
name = "Bash"
input = { command = "ls" }
[[step.tool]]
name = "Bash"
input_json = '{"command":null}'

[[step]]
fault = { kind = "close", after = { events = 4 } }

[server.backup]
requests = 1

[[server.backup.step]]
status = 429
error = { type = "rate_limit_error", message = "Slow down" }

[expect]
exit = 0
files = { "a.txt" = "b" }
"#;

#[test]
fn a_scenario_is_written_without_defaults_and_with_short_tables() {
    let scenario = Scenario::parse(WRITTEN, "written.toml").unwrap();
    let comments =
        ScenarioComments { head: vec!["Why.".to_owned()], steps: vec!["First.".to_owned()] };
    assert_eq!(scenario.to_toml(&comments), WRITTEN);
}
