//! The keys of a scenario file: the one table that the check of a file and the manual read.

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct ScenarioKey {
    pub name: &'static str,
    /// What its value is, for the manual.
    pub takes: &'static str,
    pub meaning: &'static str,
    pub(super) form: KeyForm,
}

/// What the check knows about a value. Types are checked where the value is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum KeyForm {
    Plain,
    /// One of these texts.
    Choice(&'static [&'static str]),
    /// The same, or a table with one of the two keys of a position.
    Position(&'static [&'static str]),
    /// A table with keys of its own.
    Table(&'static KeyTable),
    /// A table of names, each with such a table.
    Named(&'static KeyTable),
    /// Any number of such tables.
    Tables(&'static KeyTable),
}

/// The keys of one table of a file.
#[derive(Clone, Copy, Debug)]
pub struct KeyTable {
    /// As it stands in a file, as in `[[step]]`; for messages and the manual.
    pub heading: &'static str,
    /// What the table is.
    pub about: &'static str,
    pub keys: &'static [ScenarioKey],
}

const fn key(name: &'static str, takes: &'static str, meaning: &'static str) -> ScenarioKey {
    ScenarioKey { name, takes, meaning, form: KeyForm::Plain }
}

impl ScenarioKey {
    const fn of(self, form: KeyForm) -> Self {
        Self { form, ..self }
    }
}

/// All tables, in the order of the manual.
pub const SCENARIO_TABLES: [&KeyTable; 15] = [
    &ROOT, &FILE, &STEP, &WHEN, &TOOL, &USAGE, &ERROR, &FAULT, &POSITION, &SERVER, &RULES, &MEDIA,
    &REJECTED, &TOKENS, &EXPECT,
];

pub(super) static ROOT: KeyTable = KeyTable {
    heading: "the file",
    about: "What is run, and against which servers.",
    keys: &[
        key("name", "text", "The name of the scenario, for messages. Required."),
        key("summary", "text", "One sentence on what happens. Required."),
        key("prompt", "text", "The prompt of the run, in which `${cwd}` is the scratch folder."),
        key(
            "args",
            "a list of texts",
            "Further flags of `outlast run`. `${cwd}` is the scratch folder, `{server.NAME.url}` \
             the address of a server; `main` is the one at the base URL.",
        ),
        key(
            "env",
            "a table of texts",
            "Variables of the run and its commands, with the same placeholders. `HOME` is a scratch \
             folder unless it stands here.",
        ),
        key("time_scale", "a number above 0", "How many seconds of the run pass in one second."),
        key(
            "files",
            "a table of tables",
            "The files of the scratch folder, by relative path. Their contents may have \
             `{server.NAME.url}`.",
        )
        .of(KeyForm::Named(&FILE)),
        key("rules", "a table", "What the server insists on beside what the real one does.")
            .of(KeyForm::Table(&RULES)),
        key(
            "step",
            "tables",
            "The answers, in order: a request gets the first one left whose `when` it fits.",
        )
        .of(KeyForm::Tables(&STEP)),
        key(
            "compaction",
            "tables",
            "Answers to requests for a summary, with the keys of `[[step]]`. Without any, the \
             steps answer them.",
        )
        .of(KeyForm::Tables(&STEP)),
        key(
            "after",
            "a text",
            "What follows the last step: `fail` (the default) answers with a 500, and the \
             rehearsal fails; `repeat last` repeats the last step, `loop` all of them.",
        )
        .of(KeyForm::Choice(&["fail", "repeat last", "loop"])),
        key("server", "a table of tables", "Further servers, by name.").of(KeyForm::Named(&SERVER)),
        key("expect", "a table", "How the run has to end.").of(KeyForm::Table(&EXPECT)),
    ],
};

static FILE: KeyTable = KeyTable {
    heading: "[files.\"PATH\"]",
    about: "A file of the scratch folder.",
    keys: &[
        key("content", "text", "What is in it. Required."),
        key("mode", "a number", "Its permission bits, as in `0o755`. 0o644 by default."),
    ],
};

static STEP: KeyTable = KeyTable {
    heading: "[[step]]",
    about: "One answer: a reply, or another HTTP response, or bytes; each may be broken by a \
            fault.",
    keys: &[
        key("when", "a table", "Which requests it answers; all by default.")
            .of(KeyForm::Table(&WHEN)),
        key("repeat", "a number from 1", "How many requests it answers. 1 by default."),
        key("delay", "a time, as in `\"1m 30s\"`", "The time before the first byte."),
        key("text", "text", "A reply: its text, in which `${cwd}` is the scratch folder."),
        key("thinking", "text", "A reply: its thinking."),
        key("tool", "tables", "A reply: its tool calls.").of(KeyForm::Tables(&TOOL)),
        key("empty", "true", "A reply without content."),
        key(
            "stop_reason",
            "text",
            "A reply: its stop reason. `tool_use` or `end_turn` by default.",
        ),
        key("usage", "a table", "A reply: the tokens that it reports.").of(KeyForm::Table(&USAGE)),
        key(
            "form",
            "a text",
            "A reply: `as asked` (the default), `json` although a stream is asked for, or a stream \
             as `llama.cpp` sends it.",
        )
        .of(KeyForm::Choice(&["as asked", "json", "llama.cpp"])),
        key("status", "200 to 599", "Another response: its status, with the usual error."),
        key("error", "a table", "Another response: its error.").of(KeyForm::Table(&ERROR)),
        key("body", "text", "Another response: its body, in place of an error."),
        key("content_type", "text", "Another response: the type of the body."),
        key("content_length", "a number", "Another response: a length that is not the body's."),
        key("raw", "text", "Bytes in place of a response; then the connection is closed."),
        key(
            "headers",
            "a table of texts",
            "Added headers. `${unix+5h}` and `${date+61s}` stand for times.",
        ),
        key("chunk", "a number from 1", "Bytes per write. One event per write by default."),
        key("pause", "a time", "The time between writes."),
        key("fault", "a table", "Where the answer breaks, and how.").of(KeyForm::Table(&FAULT)),
        key("closes_early", "true", "The connection is closed although it is announced as kept."),
    ],
};

static WHEN: KeyTable = KeyTable {
    heading: "when",
    about: "The condition of a step. All that is given must fit.",
    keys: &[
        key("model", "text", "The model; a `*` at the end matches any rest."),
        key("stream", "true or false", "Whether a stream is asked for."),
        key("contains", "text", "Text that the request must contain."),
        key("prompt", "text", "Text in its first message: the task of a run or a sub-agent."),
        key("system", "text", "Text in its system prompt."),
        key(
            "source",
            "text",
            "What asks: `main`, `compact`, `agent:general-purpose`, or `agent:*` for any sub-agent.",
        ),
        key("fast", "true or false", "Whether fast mode is asked for."),
    ],
};

static TOOL: KeyTable = KeyTable {
    heading: "[[step.tool]]",
    about: "A tool call of a reply.",
    keys: &[
        key("name", "text", "The tool. Required."),
        key("input", "a table", "Its input, in whose texts `${cwd}` is the scratch folder."),
        key("input_json", "text", "The same as JSON, for what TOML cannot say, such as null."),
        key("id", "text", "The id of the call. A new one by default."),
        key("cut", "a number", "Cuts the JSON of the input after so many bytes."),
    ],
};

static USAGE: KeyTable = KeyTable {
    heading: "usage",
    about: "The tokens that a reply reports. What is not given is estimated.",
    keys: &[
        key("input_tokens", "a number", "Input that was not in the cache."),
        key("output_tokens", "a number", "Output; at most what the request allows."),
        key("cache_creation_input_tokens", "a number", "Input that was written to the cache."),
        key("cache_read_input_tokens", "a number", "Input that was read from the cache."),
    ],
};

static ERROR: KeyTable = KeyTable {
    heading: "error",
    about: "An error of the service.",
    keys: &[
        key("type", "text", "As in `overloaded_error`. Required."),
        key("message", "text", "Its message. Required."),
        key("code", "text", "Its `details.error_code`."),
    ],
};

static FAULT: KeyTable = KeyTable {
    heading: "fault",
    about: "What breaks an answer.",
    keys: &[
        key(
            "kind",
            "a text",
            "`reset` resets the connection, `close` closes it, `end` ends the answer as if it were \
             complete, `stall` sends nothing more, `pings` sends only pings, `error` an error \
             event, `insert` extra bytes. Required.",
        )
        .of(KeyForm::Choice(&["reset", "close", "end", "stall", "pings", "error", "insert"])),
        key(
            "after",
            "a text or a table",
            "Where: `accept` (a connection, before any request), `request`, `half_head`, \
             `headers`, `delta` (half of the last one), `{ events = 3 }` or `{ bytes = 100 }`. \
             Required.",
        )
        .of(KeyForm::Position(&["accept", "request", "half_head", "headers", "delta"])),
        key("hold", "a time", "`stall`, `pings`: how long, before the connection is closed."),
        key("every", "a time", "`pings`: the time between two."),
        key("error", "a table", "`error`: the error; an overload by default.")
            .of(KeyForm::Table(&ERROR)),
        key("bytes", "text", "`insert`: what is inserted."),
    ],
};

pub(super) static POSITION: KeyTable = KeyTable {
    heading: "after",
    about: "A position in an answer, as a table.",
    keys: &[
        key("events", "a number", "After so many events of a stream."),
        key("bytes", "a number", "After so many bytes of the body."),
    ],
};

static SERVER: KeyTable = KeyTable {
    heading: "[server.NAME]",
    about: "A further server, with a script of its own.",
    keys: &[
        key("rules", "a table", "As above.").of(KeyForm::Table(&RULES)),
        key("step", "tables", "As above.").of(KeyForm::Tables(&STEP)),
        key("compaction", "tables", "As above.").of(KeyForm::Tables(&STEP)),
        key("after", "a text", "As above.").of(KeyForm::Choice(&["fail", "repeat last", "loop"])),
        key("requests", "a number", "How many requests it has to get."),
    ],
};

static RULES: KeyTable = KeyTable {
    heading: "[rules]",
    about: "A request that exceeds a limit gets the service's own error. Sending it again \
            unchanged fails the rehearsal.",
    keys: &[
        key("require_key", "text", "The only valid credential."),
        key("tokens", "a table", "Access tokens that expire.").of(KeyForm::Table(&TOKENS)),
        key(
            "context_window",
            "a number",
            "How many tokens a request may have, at four bytes each.",
        ),
        key("token_limit", "a number", "The same as the server counts tokens, with the output."),
        key("max_output", "a number", "The largest `max_tokens`."),
        key("media", "a table", "Limits of images and documents.").of(KeyForm::Table(&MEDIA)),
        key("rejected_content", "tables", "What no block may contain.")
            .of(KeyForm::Tables(&REJECTED)),
        key(
            "signatures",
            "a text",
            "Thinking that another server signed: with `judge` (the default) the rehearsal fails, \
             with `refuse` the request gets a 400.",
        )
        .of(KeyForm::Choice(&["judge", "refuse"])),
        key(
            "expire_signatures_after",
            "a number",
            "After so many requests, earlier thinking counts as signed by another server.",
        ),
    ],
};

static MEDIA: KeyTable = KeyTable {
    heading: "[rules.media]",
    about: "Limits of images and documents.",
    keys: &[
        key("count", "a number", "Images and documents in a request."),
        key("image_bytes", "a number", "Base64 of an image."),
        key("image_pixels", "a number", "The longer side of an image."),
        key("many_images_pixels", "a number", "The same in a request with more than 20 images."),
        key("pdf_pages", "a number", "Pages of all documents."),
    ],
};

static REJECTED: KeyTable = KeyTable {
    heading: "[[rules.rejected_content]]",
    about: "Content that the service does not take.",
    keys: &[
        key("contains", "text", "Text of a block, or base64. Required."),
        key("message", "text", "The message of the error after the path of the block."),
    ],
};

static TOKENS: KeyTable = KeyTable {
    heading: "[rules.tokens]",
    about: "Access tokens that expire, and an endpoint that renews them.",
    keys: &[
        key("access", "text", "The first access token; then `NAME.1`, `NAME.2` ... Required."),
        key("refresh", "text", "The first refresh token, likewise; each is valid once. Required."),
        key("expire_token_after", "a number", "For how many requests a token is valid."),
        key("path", "text", "The path of the endpoint. `/oauth/token` by default."),
        key("expires_in", "a number", "The reported lifetime in seconds. 3600 by default."),
        key("delay", "a time", "The time before the endpoint answers."),
        key("failing_refreshes", "a number", "How many of the first renewals get a 503."),
        key("keeps_refresh", "true or false", "Whether the first refresh token stays valid."),
    ],
};

static EXPECT: KeyTable = KeyTable {
    heading: "[expect]",
    about: "How the run has to end. What is not given is not checked.",
    keys: &[
        key("exit", "a number", "The exit code."),
        key("terminal_reason", "text", "The `terminal_reason` of the result."),
        key("requests", "a number", "How many requests the main server gets."),
        key("compactions", "a number", "How many of them are answered by `[[compaction]]`."),
        key("refreshes", "a number", "How many access tokens are granted."),
        key(
            "files",
            "a table of texts",
            "Text that a file of the scratch folder contains, by path.",
        ),
        key("absent", "a list of texts", "Paths that the scratch folder does not have."),
        key(
            "stderr",
            "a list of texts",
            "Texts on standard error. Only tests that read it check this.",
        ),
    ],
};
