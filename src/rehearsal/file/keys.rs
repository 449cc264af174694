//! The keys of a scenario file, for the manual. A test holds this table against the types that read a
//! file.

use KeyForm::{
    AboveZero, Any, Choice, Flag, Named, NamedTexts, Position, Table, Tables, Text, Texts, Time,
    Whole,
};

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct ScenarioKey {
    /// The key.
    pub name: &'static str,
    /// The effect of its value, for the manual.
    pub meaning: &'static str,
    /// True if its table is invalid without it.
    pub required: bool,
    form: KeyForm,
}

/// The type of a key's value.
#[derive(Clone, Copy, Debug)]
enum KeyForm {
    Any,
    Text,
    Texts,
    /// A table of names, each with a text.
    NamedTexts,
    Flag,
    Whole {
        from: i64,
        to: i64,
    },
    /// A number above zero, also one with a fraction.
    AboveZero,
    /// A duration in the format of `ScriptedDuration`.
    Time,
    /// One of some texts.
    Choice,
    /// The same, or a table with one of the two keys of a position.
    Position,
    /// A table with keys of its own.
    Table,
    /// A table of names, each with such a table.
    Named,
    /// Any number of such tables.
    Tables,
}

/// Any whole number of TOML that is not below zero.
const COUNT: KeyForm = Whole { from: 0, to: i64::MAX };

const AFTER_LAST: KeyForm = Choice;

/// The largest value of the fields of type `u32`.
const U32_MAX: i64 = u32::MAX as i64;

/// The keys of one table of a file.
#[derive(Clone, Copy, Debug)]
pub struct KeyTable {
    /// As it stands in a file, as in `[[step]]`.
    pub heading: &'static str,
    /// The description of the table.
    pub about: &'static str,
    /// The keys of the table.
    pub keys: &'static [ScenarioKey],
}

const fn key(name: &'static str, form: KeyForm, meaning: &'static str) -> ScenarioKey {
    ScenarioKey { name, meaning, required: false, form }
}

impl ScenarioKey {
    const fn required(self) -> Self {
        Self { required: true, ..self }
    }

    /// What its value is.
    pub fn takes(&self) -> String {
        let takes = match self.form {
            Any => "any value",
            Text => "text",
            Texts => "a list of texts",
            NamedTexts => "a table of texts",
            Flag => "true or false",
            // A limit that only the type sets is not part of the description.
            Whole { from, to } if to >= U32_MAX => return format!("a whole number from {from}"),
            Whole { from, to } => return format!("a whole number from {from} to {to}"),
            AboveZero => "a number above 0",
            Time => "a time, as in `\"1m 30s\"`",
            Choice => "a text",
            Position => "a text, or a table with one key",
            Table => "a table",
            Named => "a table of tables",
            Tables => "a list of tables",
        };
        takes.to_owned()
    }
}

/// All tables, in the order of the manual.
pub const SCENARIO_TABLES: [&KeyTable; 15] = [
    &ROOT, &FILE, &STEP, &WHEN, &TOOL, &USAGE, &ERROR, &FAULT, &POSITION, &SERVER, &RULES, &MEDIA,
    &REJECTED, &TOKENS, &EXPECT,
];

static ROOT: KeyTable = KeyTable {
    heading: "the file",
    about: "What is run, and against which servers.",
    keys: &[
        key("name", Text, "The name of the scenario, for messages.").required(),
        key("summary", Text, "One sentence on what happens.").required(),
        key("prompt", Text, "The prompt of the run, in which `${cwd}` is the scratch folder."),
        key(
            "args",
            Texts,
            "Further flags of `outlast run`. `${cwd}` is the scratch folder, `{server.NAME.url}` \
             the address of a server; `main` is the one at the base URL.",
        ),
        key(
            "env",
            NamedTexts,
            "Variables of the run and its commands, with the same placeholders. `HOME` is a scratch \
             folder unless it stands here.",
        ),
        key("time_scale", AboveZero, "How many seconds of the run pass in one second."),
        key(
            "files",
            Named,
            "The files of the scratch folder, by relative path. Their contents may have \
             `{server.NAME.url}`.",
        ),
        key("rules", Table, "What the server insists on beside what the real one does."),
        key(
            "step",
            Tables,
            "The answers, in order: a request gets the first one left whose `when` it fits.",
        ),
        key(
            "compaction",
            Tables,
            "Answers to requests for a summary, with the keys of `[[step]]`. Without any, the \
             steps answer them.",
        ),
        key(
            "compactions_vary",
            Flag,
            "Whether the number of summaries depends on the sizes of tool results: a \
             `[[compaction]]` may be left over, and the last one is repeated.",
        ),
        key(
            "after",
            AFTER_LAST,
            "What follows the last step: `fail` (the default) answers with a 500, and the \
             rehearsal fails; `repeat last` repeats the last step, `loop` all of them.",
        ),
        key("server", Named, "Further servers, by name."),
        key("expect", Table, "How the run has to end."),
    ],
};

static FILE: KeyTable = KeyTable {
    heading: "[files.\"PATH\"]",
    about: "A file of the scratch folder.",
    keys: &[
        key("content", Text, "What is in it.").required(),
        key(
            "mode",
            Whole { from: 0, to: U32_MAX },
            "Its permission bits, as in `0o755`. 0o644 by default.",
        ),
    ],
};

static STEP: KeyTable = KeyTable {
    heading: "[[step]]",
    about: "One answer: a reply, or another HTTP response, or bytes; each may be broken by a \
            fault.",
    keys: &[
        key("when", Table, "Which requests it answers; all by default."),
        key(
            "repeat",
            Whole { from: 1, to: U32_MAX },
            "How many requests it answers. 1 by default.",
        ),
        key("delay", Time, "The time before the first byte."),
        key("text", Text, "A reply: its text, in which `${cwd}` is the scratch folder."),
        key("thinking", Text, "A reply: its thinking."),
        key("tool", Tables, "A reply: its tool calls."),
        key("empty", Flag, "A reply without content."),
        key("stop_reason", Text, "A reply: its stop reason. `tool_use` or `end_turn` by default."),
        key("usage", Table, "A reply: the tokens that it reports."),
        key(
            "form",
            Choice,
            "A reply: `as asked` (the default), `json` although a stream is asked for, or a stream \
             as `llama.cpp` sends it.",
        ),
        key(
            "status",
            Whole { from: 200, to: 599 },
            "Another response: its status, with the usual error.",
        ),
        key("error", Table, "Another response: its error."),
        key("body", Text, "Another response: its body, in place of an error."),
        key("content_type", Text, "Another response: the type of the body."),
        key("content_length", COUNT, "Another response: a length that is not the body's."),
        key("raw", Text, "Bytes in place of a response; then the connection is closed."),
        key(
            "headers",
            NamedTexts,
            "Added headers. `${unix+5h}` and `${date+61s}` stand for times.",
        ),
        key(
            "chunk",
            Whole { from: 1, to: i64::MAX },
            "Bytes per write. One event per write by default.",
        ),
        key("pause", Time, "The time between writes."),
        key("fault", Table, "Where the answer breaks, and how."),
        key("closes_early", Flag, "The connection is closed although it is announced as kept."),
    ],
};

static WHEN: KeyTable = KeyTable {
    heading: "when",
    about: "The condition of a step. All that is given must fit.",
    keys: &[
        key("model", Text, "The model; a `*` at the end matches any rest."),
        key("stream", Flag, "Whether a stream is asked for."),
        key("contains", Text, "Text that the request must contain."),
        key("prompt", Text, "Text in its first message: the task of a run or a sub-agent."),
        key("system", Text, "Text in its system prompt."),
        key(
            "source",
            Text,
            "What asks: `main`, `compact`, `agent:general-purpose`, or `agent:*` for any sub-agent.",
        ),
        key("fast", Flag, "Whether fast mode is asked for."),
    ],
};

static TOOL: KeyTable = KeyTable {
    heading: "[[step.tool]]",
    about: "A tool call of a reply.",
    keys: &[
        key("name", Text, "The tool.").required(),
        key(
            "input",
            Any,
            "Its input, a table for all tools. In its texts `${cwd}` is the scratch folder.",
        ),
        key("input_json", Text, "The same as JSON, for what TOML cannot say, such as null."),
        key("id", Text, "The id of the call. A new one by default."),
        key("cut", COUNT, "Cuts the JSON of the input after so many bytes."),
    ],
};

static USAGE: KeyTable = KeyTable {
    heading: "usage",
    about: "The tokens that a reply reports. What is not given is estimated.",
    keys: &[
        key("input_tokens", COUNT, "Input that was not in the cache."),
        key("output_tokens", COUNT, "Output; at most what the request allows."),
        key("cache_creation_input_tokens", COUNT, "Input that was written to the cache."),
        key("cache_read_input_tokens", COUNT, "Input that was read from the cache."),
    ],
};

static ERROR: KeyTable = KeyTable {
    heading: "error",
    about: "An error of the service.",
    keys: &[
        key("type", Text, "As in `overloaded_error`.").required(),
        key("message", Text, "Its message.").required(),
        key("code", Text, "Its `details.error_code`."),
    ],
};

static FAULT: KeyTable = KeyTable {
    heading: "fault",
    about: "What breaks an answer.",
    keys: &[
        key(
            "kind",
            Choice,
            "`reset` resets the connection, `close` closes it, `end` ends the answer as if it were \
             complete, `stall` sends nothing more, `pings` sends only pings, `error` an error \
             event, `insert` extra bytes.",
        )
        .required(),
        key(
            "after",
            Position,
            "Where: `accept` (a connection, before any request), `request`, `half_head`, \
             `headers`, `delta` (half of the last one), `{ events = 3 }` or `{ bytes = 100 }`.",
        )
        .required(),
        key("hold", Time, "`stall`, `pings`: how long, before the connection is closed."),
        key("every", Time, "`pings`: the time between two."),
        key("error", Table, "`error`: the error; an overload by default."),
        key("bytes", Text, "`insert`: what is inserted."),
    ],
};

static POSITION: KeyTable = KeyTable {
    heading: "after",
    about: "A position in an answer, as a table.",
    keys: &[
        key("events", COUNT, "After so many events of a stream."),
        key("bytes", COUNT, "After so many bytes of the body."),
    ],
};

static SERVER: KeyTable = KeyTable {
    heading: "[server.NAME]",
    about: "A further server, with a script of its own.",
    keys: &[
        key("rules", Table, "As above."),
        key("step", Tables, "As above."),
        key("compaction", Tables, "As above."),
        key("compactions_vary", Flag, "As above."),
        key("after", AFTER_LAST, "As above."),
        key("requests", COUNT, "How many requests it has to get."),
    ],
};

static RULES: KeyTable = KeyTable {
    heading: "[rules]",
    about: "A request that exceeds a limit gets the service's own error. Sending it again \
            unchanged fails the rehearsal.",
    keys: &[
        key("require_key", Text, "The only valid credential."),
        key("tokens", Table, "Access tokens that expire."),
        key("context_window", COUNT, "How many tokens a request may have, at four bytes each."),
        key(
            "token_limit",
            Whole { from: 1, to: i64::MAX },
            "The same as the server counts tokens, with the output.",
        ),
        key("max_output", COUNT, "The largest `max_tokens`."),
        key("media", Table, "Limits of images and documents."),
        key("rejected_content", Tables, "What no block may contain."),
        key(
            "signatures",
            Choice,
            "Thinking that another server signed: with `check` (the default) the rehearsal fails, \
             with `refuse` the request gets a 400.",
        ),
        key(
            "expire_signatures_after",
            COUNT,
            "After so many requests, earlier thinking counts as signed by another server.",
        ),
    ],
};

static MEDIA: KeyTable = KeyTable {
    heading: "[rules.media]",
    about: "Limits of images and documents.",
    keys: &[
        key("count", COUNT, "Images and documents in a request."),
        key("image_bytes", COUNT, "Base64 of an image."),
        key("image_pixels", Whole { from: 0, to: U32_MAX }, "The longer side of an image."),
        key(
            "many_images_pixels",
            Whole { from: 0, to: U32_MAX },
            "The same in a request with more than 20 images.",
        ),
        key("pdf_pages", COUNT, "Pages of all documents."),
    ],
};

static REJECTED: KeyTable = KeyTable {
    heading: "[[rules.rejected_content]]",
    about: "Content that the service does not take.",
    keys: &[
        key("contains", Text, "Text of a block, or base64.").required(),
        key("message", Text, "The message of the error after the path of the block."),
    ],
};

static TOKENS: KeyTable = KeyTable {
    heading: "[rules.tokens]",
    about: "Access tokens that expire, and an endpoint that renews them.",
    keys: &[
        key("access", Text, "The first access token; then `NAME.1`, `NAME.2` ...").required(),
        key("refresh", Text, "The first refresh token, likewise; each is valid once.").required(),
        key("expire_token_after", COUNT, "For how many requests a token is valid."),
        key("path", Text, "The path of the endpoint. `/oauth/token` by default."),
        key("expires_in", COUNT, "The reported lifetime in seconds. 3600 by default."),
        key("delay", Time, "The time before the endpoint answers."),
        key("failing_refreshes", COUNT, "How many of the first renewals get a 503."),
        key("keeps_refresh", Flag, "Whether the first refresh token stays valid."),
    ],
};

static EXPECT: KeyTable = KeyTable {
    heading: "[expect]",
    about: "How the run has to end. What is not given is not checked.",
    keys: &[
        key("exit", Whole { from: 0, to: 255 }, "The exit code."),
        key("terminal_reason", Text, "The `terminal_reason` of the result."),
        key("requests", COUNT, "How many requests the main server gets."),
        key("compactions", COUNT, "How many of them are answered by `[[compaction]]`."),
        key("refreshes", COUNT, "How many access tokens are granted."),
        key("files", NamedTexts, "Text that a file of the scratch folder contains, by path."),
        key("absent", Texts, "Paths that the scratch folder does not have."),
        key("stderr", Texts, "Texts on standard error. Only tests that read it check this."),
    ],
};
