//! Writes a scenario as a file.

use std::fmt::Write as _;

use serde_json::Value;

use crate::error_response;
use crate::rules::ServerRules;
use crate::scenario::{
    AfterLast, FaultPosition, Scenario, ScriptStep, ScriptedError, ScriptedFault,
    ScriptedFaultKind, ScriptedHttp, ScriptedReply, ScriptedToolCall, ServerPart, StepAnswer,
    StepCondition,
};

use super::toml_text::{comment, duration, inline, key, text, value};

/// Comments of a scenario file.
#[derive(Clone, Debug, Default)]
pub struct ScenarioComments {
    /// Comments at the top, one paragraph each.
    pub head: Vec<String>,
    /// Comments before the steps of the main server. There may be fewer than steps.
    pub steps: Vec<String>,
}

impl Scenario {
    /// The text of a file from which [`Scenario::parse`] reads this scenario. Files hold text:
    /// in scripted bytes that are not UTF-8, the replacement character is written.
    pub fn to_toml(&self, comments: &ScenarioComments) -> String {
        write(self, comments)
    }
}

fn write(scenario: &Scenario, notes: &ScenarioComments) -> String {
    let mut file = String::new();
    for (index, words) in notes.head.iter().enumerate() {
        file.push_str(if index == 0 { "" } else { "#\n" });
        file.push_str(&comment(words));
    }
    line(&mut file, "name", &text(&scenario.name));
    line(&mut file, "summary", &text(&scenario.summary));
    line(&mut file, "prompt", &text(&scenario.prompt));
    if !scenario.args.is_empty() {
        line(&mut file, "args", &format!("[\n{}]", args(&scenario.args)));
    }
    // A string accepts every write, here and below.
    let _ = writeln!(file, "time_scale = {:?}", scenario.time_scale);
    write_part(&mut file, &scenario.main);
    if !scenario.env.is_empty() {
        file.push_str("\n[env]\n");
        for (name, value) in &scenario.env {
            line(&mut file, &key(name), &text(value));
        }
    }
    if !scenario.files.is_empty() {
        file.push_str("\n[files]\n");
        for (path, content) in &scenario.files {
            let mode = format!("0o{:o}", content.mode);
            let fields = [("mode", mode), ("content", text(&content.content))];
            line(&mut file, &key(path), &inline(&fields));
        }
    }
    for (index, step) in scenario.main.steps.iter().enumerate() {
        let note = notes.steps.get(index).map_or("", String::as_str);
        write_step(&mut file, "step", step, note);
    }
    for step in &scenario.main.compactions {
        write_step(&mut file, "compaction", step, "");
    }
    for (name, part) in &scenario.servers {
        let heading = format!("server.{}", key(name));
        let _ = writeln!(file, "\n[{heading}]");
        if let Some(requests) = part.requests {
            line(&mut file, "requests", &requests.to_string());
        }
        write_part(&mut file, part);
        for step in &part.steps {
            write_step(&mut file, &format!("{heading}.step"), step, "");
        }
        for step in &part.compactions {
            write_step(&mut file, &format!("{heading}.compaction"), step, "");
        }
    }
    write_expectation(&mut file, scenario);
    file
}

/// The flags, each on a line with its value.
fn args(args: &[String]) -> String {
    let mut lines = String::new();
    for (index, arg) in args.iter().enumerate() {
        let is_value = !arg.starts_with("--") && index > 0;
        lines.push_str(match (index, is_value) {
            (0, _) => "    ",
            (_, true) => " ",
            (_, false) => "\n    ",
        });
        lines.push_str(&text(arg));
        lines.push(',');
    }
    lines + "\n"
}

fn line(file: &mut String, name: &str, value: &str) {
    let _ = writeln!(file, "{name} = {value}");
}

fn write_part(file: &mut String, part: &ServerPart) {
    if part.compactions_vary {
        line(file, "compactions_vary", "true");
    }
    match part.after {
        AfterLast::Fail => {}
        AfterLast::RepeatLast => line(file, "after", "\"repeat last\""),
        AfterLast::Loop => line(file, "after", "\"loop\""),
    }
    if part.rules != ServerRules::default() {
        let rules = serde_json::to_value(&part.rules).ok().and_then(|it| value(&writable(it)));
        line(file, "rules", &rules.expect("rules are texts, flags and numbers of TOML"));
    }
}

/// A value as TOML can write it: without its unset fields, and with the largest number of TOML in
/// place of a larger one.
fn writable(json: Value) -> Value {
    match json {
        Value::Number(number) if number.as_i64().is_none() => i64::MAX.into(),
        Value::Object(fields) => {
            let set = fields.into_iter().filter(|(_, field)| !field.is_null());
            set.map(|(name, field)| (name, writable(field))).collect()
        }
        Value::Array(items) => items.into_iter().map(writable).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => json,
    }
}

fn write_expectation(file: &mut String, scenario: &Scenario) {
    let expect = &scenario.expect;
    let mut lines = String::new();
    let counts = [
        ("requests", expect.requests),
        ("compactions", expect.compactions),
        ("refreshes", expect.refreshes),
    ];
    if let Some(exit) = expect.exit {
        line(&mut lines, "exit", &exit.to_string());
    }
    if let Some(reason) = &expect.terminal_reason {
        line(&mut lines, "terminal_reason", &text(reason));
    }
    for (name, count) in counts {
        if let Some(count) = count {
            line(&mut lines, name, &count.to_string());
        }
    }
    if !expect.files.is_empty() {
        let files: Vec<_> = expect.files.iter().map(|(path, it)| (path, text(it))).collect();
        line(&mut lines, "files", &inline(&files));
    }
    for (name, texts) in [("absent", &expect.absent), ("stderr", &expect.stderr)] {
        if !texts.is_empty() {
            let texts: Vec<String> = texts.iter().map(|it| text(it)).collect();
            line(&mut lines, name, &format!("[{}]", texts.join(", ")));
        }
    }
    if !lines.is_empty() {
        let _ = write!(file, "\n[expect]\n{lines}");
    }
}

fn write_step(file: &mut String, heading: &str, step: &ScriptStep, note: &str) {
    let _ = write!(file, "\n{}[[{heading}]]\n", comment(note));
    let when = condition(&step.when);
    if !when.is_empty() {
        line(file, "when", &inline(&when));
    }
    if step.repeat != 1 {
        line(file, "repeat", &step.repeat.to_string());
    }
    if !step.delay.is_zero() {
        line(file, "delay", &duration(step.delay));
    }
    let mut tools: &[ScriptedToolCall] = &[];
    match &step.answer {
        StepAnswer::Reply(reply) => {
            write_reply(file, reply, step.fault.is_some());
            tools = &reply.tools;
        }
        StepAnswer::Http(http) => write_http(file, http),
        StepAnswer::Raw(bytes) => line(file, "raw", &text(&String::from_utf8_lossy(bytes))),
    }
    if !step.headers.is_empty() {
        let headers: Vec<_> = step.headers.iter().map(|(name, it)| (name, text(it))).collect();
        line(file, "headers", &inline(&headers));
    }
    if let Some(chunk) = step.timing.chunk {
        line(file, "chunk", &chunk.to_string());
    }
    if !step.timing.pause.is_zero() {
        line(file, "pause", &duration(step.timing.pause));
    }
    if let Some(fault) = &step.fault {
        line(file, "fault", &inline(&fault_fields(fault)));
    }
    if step.closes_early {
        line(file, "closes_early", "true");
    }
    for tool in tools {
        write_tool(file, heading, tool);
    }
}

fn condition(when: &StepCondition) -> Vec<(&'static str, String)> {
    let texts = [
        ("model", &when.model),
        ("contains", &when.contains),
        ("prompt", &when.prompt),
        ("system", &when.system),
        ("source", &when.source),
    ];
    let flags = [("stream", when.stream), ("fast", when.fast)];
    let texts = texts.into_iter().filter_map(|(name, it)| Some((name, text(it.as_ref()?))));
    let flags = flags.into_iter().filter_map(|(name, it)| Some((name, it?.to_string())));
    texts.chain(flags).collect()
}

fn write_reply(file: &mut String, reply: &ScriptedReply, has_fault: bool) {
    if has_fault && *reply == ScriptedReply::interrupted_default() {
        return;
    }
    if let Some(thinking) = &reply.thinking {
        line(file, "thinking", &text(thinking));
    }
    if let Some(words) = &reply.text {
        line(file, "text", &text(words));
    }
    if reply.thinking.is_none() && reply.text.is_none() && reply.tools.is_empty() {
        line(file, "empty", "true");
    }
    if let Some(reason) = &reply.stop_reason {
        line(file, "stop_reason", &text(reason));
    }
    let usage = reply.usage;
    let counts = [
        ("input_tokens", usage.input_tokens),
        ("output_tokens", usage.output_tokens),
        ("cache_creation_input_tokens", usage.cache_creation_input_tokens),
        ("cache_read_input_tokens", usage.cache_read_input_tokens),
    ];
    let counts = counts.into_iter().filter_map(|(name, it)| Some((name, it?.to_string())));
    let counts: Vec<_> = counts.collect();
    if !counts.is_empty() {
        line(file, "usage", &inline(&counts));
    }
    match reply.form.name() {
        "as asked" => {}
        form => line(file, "form", &text(form)),
    }
}

fn write_tool(file: &mut String, heading: &str, tool: &ScriptedToolCall) {
    let _ = writeln!(file, "[[{heading}.tool]]");
    line(file, "name", &text(&tool.name));
    if let Some(id) = &tool.id {
        line(file, "id", &text(id));
    }
    match value(&tool.input) {
        Some(input) => line(file, "input", &input),
        None if tool.input == Value::Null => {}
        None => line(file, "input_json", &text(&tool.input.to_string())),
    }
    if let Some(cut) = tool.cut {
        line(file, "cut", &cut.to_string());
    }
}

fn write_http(file: &mut String, http: &ScriptedHttp) {
    line(file, "status", &http.status.to_string());
    let error = error_in(&http.body);
    let of_error = error.as_ref().map(|error| error_response(http.status, Some(error)));
    if let (Some(error), Some(of_error)) = (&error, of_error)
        && of_error.body == http.body
    {
        if error_response(http.status, None).body != http.body {
            line(file, "error", &inline(&error_fields(error)));
        }
    } else {
        line(file, "body", &text(&http.body));
    }
    if http.content_type != error_response(http.status, None).content_type {
        line(file, "content_type", &text(&http.content_type));
    }
    if let Some(length) = http.content_length {
        line(file, "content_length", &length.to_string());
    }
}

/// The error in a body of the service.
fn error_in(body: &str) -> Option<ScriptedError> {
    let body: Value = serde_json::from_str(body).ok()?;
    let field = |path: &str| body.pointer(path).and_then(Value::as_str).map(str::to_owned);
    Some(ScriptedError {
        kind: field("/error/type")?,
        message: field("/error/message")?,
        code: field("/error/details/error_code"),
    })
}

fn error_fields(error: &ScriptedError) -> Vec<(&'static str, String)> {
    let code = error.code.iter().map(|code| ("code", text(code)));
    [("type", text(&error.kind)), ("message", text(&error.message))]
        .into_iter()
        .chain(code)
        .collect()
}

fn fault_fields(fault: &ScriptedFault) -> Vec<(&'static str, String)> {
    let (kind, own) = match &fault.kind {
        ScriptedFaultKind::Reset => ("reset", None),
        ScriptedFaultKind::Close => ("close", None),
        ScriptedFaultKind::End => ("end", None),
        ScriptedFaultKind::Stall => ("stall", None),
        ScriptedFaultKind::Pings { every } => ("pings", Some(("every", duration(*every)))),
        ScriptedFaultKind::Error(error) => ("error", Some(("error", inline(&error_fields(error))))),
        ScriptedFaultKind::Insert(bytes) => {
            ("insert", Some(("bytes", text(&String::from_utf8_lossy(bytes)))))
        }
    };
    let after = match fault.after {
        FaultPosition::Accept => text("accept"),
        FaultPosition::Request => text("request"),
        FaultPosition::HalfHead => text("half_head"),
        FaultPosition::Headers => text("headers"),
        FaultPosition::Delta => text("delta"),
        FaultPosition::Events(count) => inline(&[("events", count.to_string())]),
        FaultPosition::Bytes(count) => inline(&[("bytes", count.to_string())]),
    };
    let hold = (fault.hold != ScriptedFault::HOLD).then(|| ("hold", duration(fault.hold)));
    [("kind", text(kind)), ("after", after)].into_iter().chain(own).chain(hold).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{builtin, list};

    #[test]
    fn a_written_scenario_is_read_as_the_same_scenario() {
        let mut count = 0;
        for listing in list() {
            let scenario = builtin(&listing.name).expect("it is built in").expect("it is valid");
            let (head, steps) = (vec!["One.".into(), "Two.".into()], vec!["A.".into()]);
            let file = scenario.to_toml(&ScenarioComments { head, steps });
            let read = Scenario::parse(&file, "written.toml")
                .unwrap_or_else(|error| panic!("{error}\n{file}"));
            assert_eq!(read, scenario, "{file}");
            count += 1;
        }
        assert!(count > 60, "only {count}");
    }

    #[test]
    fn every_text_is_read_as_it_was_written() {
        let texts = [
            "",
            "'",
            "\"",
            "\\",
            "a'b\"c",
            "one\ntwo",
            "ends with '\n'",
            "it's\n'''quoted'''",
            "\r\n",
            "\u{7f}\u{0}\u{1b}[1m",
            "tab\there",
            "\u{1f600} \u{85}",
            "\n\nfirst",
        ];
        for one in texts {
            let reply = ScriptedReply { text: Some(one.to_owned()), ..ScriptedReply::default() };
            let tool = ScriptedToolCall {
                name: one.to_owned(),
                input: serde_json::json!({ one: [one, 1.5, u64::MAX, null], "b": { one: true } }),
                id: None,
                cut: None,
            };
            let reply = ScriptedReply { tools: vec![tool], ..reply };
            let scenario = Scenario::new().step(ScriptStep::new(StepAnswer::Reply(reply)));
            let file = scenario.prompt(one).to_toml(&ScenarioComments::default());
            let read =
                Scenario::parse(&file, "t.toml").unwrap_or_else(|error| panic!("{error}\n{file}"));
            let StepAnswer::Reply(reply) = &read.main.steps[0].answer else { panic!("{file}") };
            assert_eq!((reply.text.as_deref(), read.prompt.as_str()), (Some(one), one), "{file}");
            assert_eq!(reply.tools[0].input["b"][one], true, "{file}");
        }
    }
}
