//! Finds tool calls that a model wrote as text: in the syntaxes of several vendors beside prose,
//! and in any syntax where the whole reply, or its end from a tag on, is a call.
//!
//! Code blocks, code spans and quotations do not count, since a call there is an example. A code
//! block at the end of the reply that contains only a call does count.

use super::message::ToolDefinition;
use super::whole_call::{json_call, whole_call, written_call};

/// Markers that begin a call, with the call after them, in lower case. Tags with a namespace, such
/// as `<minimax:tool_call>`, are read without it.
const OPENERS: [&str; 24] = [
    // Hermes, Qwen, GLM, Granite, Nemotron, Jamba, and older Claude.
    "<tool_call>",
    "<tool_calls>",
    "<toolcall>",
    "<tool_use>",
    "<tool_code>",
    "<function_call>",
    "<function_calls>",
    "<tool_name>",
    // Mistral, LM Studio.
    "[tool_calls]",
    "[tool_call]",
    "[tool_request]",
    "[function_call]",
    // Llama, Phi, Granite, InternLM, Cohere, Kimi, gpt-oss.
    "<|python_tag|>",
    "<|tool_call|>",
    "<|tool_calls|>",
    "<|plugin|>",
    "<|start_action|>",
    "<|tool_call_begin|>",
    "<|tool_calls_section_begin|>",
    "commentary to=",
    // DeepSeek.
    "<\u{ff5c}tool\u{2581}call\u{2581}begin\u{ff5c}>",
    "<\u{ff5c}tool\u{2581}calls\u{2581}begin\u{ff5c}>",
    "<\u{ff5c}tool\u{2581}sep\u{ff5c}>",
    REACT,
];

/// The marker of agents that are prompted to call tools in prose (`ReAct`). The input follows on a
/// line of its own.
const REACT: &str = "\naction: ";

/// Tags that name the tool themselves, in lower case: Claude, `MiniMax`; Llama, Qwen.
const NAMING_TAGS: [&str; 8] = [
    "<invoke name=",
    "<function name=",
    "<function_call name=",
    "<tool name=",
    "<tool_call name=",
    "<tool_use name=",
    "<function=",
    "<tool=",
];

/// Languages of fenced code blocks that are calls.
const CALL_LANGUAGES: [&str; 6] =
    ["tool_call", "tool_calls", "tool_code", "tool_use", "function_call", "function_calls"];

/// Languages of fenced code blocks that are calls if they end the reply and contain only a call.
const DATA_LANGUAGES: [&str; 3] = ["", "json", "xml"];

/// Words between the marker of a call and the name of its tool.
const BEFORE_NAME: [&str; 6] = ["print(", "functions.", "function", "default_api.", "(", "["];

/// The length of the part of a call that is searched for its name, in bytes.
const CALL_HEAD: usize = 4_000;

/// Finds a call of one of these tools in the text of a reply, and returns the tool.
pub fn find_call_in_text<'a>(text: &str, tools: &'a [ToolDefinition]) -> Option<&'a str> {
    let offered = |name: &str| {
        let mut names = tools.iter().map(|tool| tool.name.as_str());
        names.find(|tool| tool.eq_ignore_ascii_case(name))
    };
    let mut prose = String::with_capacity(text.len() + 1);
    prose.push('\n');
    let parts = split_code(text);
    if let Some(tool) = last_block(&parts).and_then(|part| call_in_block(part, tools)) {
        return Some(tool);
    }
    for (language, part) in parts {
        match language {
            None => prose.push_str(&without_dsml(&without_quotations(part))),
            Some(language) => {
                let is_call = CALL_LANGUAGES.contains(&language.to_ascii_lowercase().as_str());
                if let Some(tool) = tool_at(part).filter(|_| is_call).and_then(offered) {
                    return Some(tool);
                }
                prose.push('\n');
            }
        }
    }
    // Offsets stay the same.
    let lower = prose.to_ascii_lowercase();
    let of_opener = OPENERS.iter().find_map(|opener| {
        let has_input = *opener != REACT || lower.contains("\naction input:");
        let mut calls = places(&lower, opener).filter(|_| has_input);
        calls.find_map(|at| tool_at(&prose[at + opener.len()..]).and_then(offered))
    });
    let of_tag = || {
        NAMING_TAGS.iter().find_map(|tag| {
            places(&lower, tag)
                .find_map(|at| tool_of_tag(&prose[at + tag.len()..]).and_then(offered))
        })
    };
    of_opener
        .or_else(of_tag)
        .or_else(|| whole_call(text.trim(), tools))
        .or_else(|| last_call(&prose, tools))
}

/// The data in the code block at the end of a text, if it ends with one.
pub fn last_data_block(text: &str) -> Option<&str> {
    last_block(&split_code(text))
}

fn last_block<'a>(parts: &[(Option<&str>, &'a str)]) -> Option<&'a str> {
    let (language, part) = parts.iter().rev().find(|(_, part)| !part.trim().is_empty())?;
    let language = language.map(str::to_ascii_lowercase)?;
    DATA_LANGUAGES.contains(&language.as_str()).then_some(part.trim())
}

/// The tool of a code block that contains only a call. Code that resembles a call does not count,
/// nor does JSON that names the tool in another field than calls do: it may be an example of the
/// input of a hook, or of a configuration.
fn call_in_block<'a>(part: &str, tools: &'a [ToolDefinition]) -> Option<&'a str> {
    let of_list = || written_call(part, tools).filter(|_| part.starts_with('['));
    json_call(part, tools).filter(|_| part.contains("\"name\"")).or_else(of_list)
}

/// The tool of a call at the end of a text. The call begins with a tag at the beginning of a line,
/// or with a special token.
fn last_call<'a>(prose: &str, tools: &'a [ToolDefinition]) -> Option<&'a str> {
    let lines =
        prose.match_indices('\n').map(|(at, _)| prose[at + 1..].trim_start_matches([' ', '\t']));
    let tags = lines.filter(|line| line.starts_with('<'));
    let tokens = prose.match_indices("<|").map(|(at, _)| &prose[at..]);
    tags.chain(tokens).find_map(|text| whole_call(text.trim_end(), tools))
}

/// The offsets of a marker, except directly after a quotation mark. A tag is also found with a
/// namespace.
fn places<'a>(text: &'a str, marker: &'a str) -> impl Iterator<Item = usize> {
    let (tag, is_tag) = match marker.strip_prefix('<') {
        Some(tag) if tag.starts_with(|letter: char| letter.is_ascii_alphabetic()) => (tag, true),
        Some(_) | None => (marker, false),
    };
    text.match_indices(tag).filter_map(move |(at, _)| {
        let before = &text[..at];
        let before = if is_tag {
            let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            let namespace = before.strip_suffix(':').map(|before| before.trim_end_matches(is_word));
            namespace.unwrap_or(before).strip_suffix('<')?
        } else {
            before
        };
        let is_quoted = before.ends_with(['"', '\'', '\u{201c}', '\u{2018}', '\u{ab}']);
        // The caller adds the length of the marker, including `<`.
        (!is_quoted).then(|| if is_tag { at.saturating_sub(1) } else { at })
    })
}

/// The tool that the call at the beginning of `text` names.
fn tool_at(text: &str) -> Option<&str> {
    let text = &text[..text.floor_char_boundary(CALL_HEAD)];
    let mut rest = text.trim_start();
    while let Some(shorter) = BEFORE_NAME.iter().find_map(|word| rest.strip_prefix(word)) {
        rest = shorter.trim_start();
    }
    if rest.starts_with('{') { name_in_object(rest) } else { Some(leading_name(rest)) }
}

/// The tool in the rest of a tag: `"Bash">`, `Bash>`. `None` if prose follows: then the tag is only
/// mentioned.
fn tool_of_tag(text: &str) -> Option<&str> {
    let name = leading_name(text.trim_start_matches(['"', '\'']));
    let (_, body) = text.split_once('>')?;
    let body = body.trim_start();
    (body.is_empty() || body.starts_with(['<', '{'])).then_some(name)
}

/// The name at the start of a text, such as `Bash`, `functions.Bash:0` or `mcp__files__read`,
/// without a `functions.` before it and a suffix such as `:0`.
fn leading_name(text: &str) -> &str {
    let text = text.strip_prefix("functions.").unwrap_or(text);
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
    &text[..text.find(|letter| !is_part(letter)).unwrap_or(text.len())]
}

/// The value of the first field for a name in an object, which may be truncated.
fn name_in_object(text: &str) -> Option<&str> {
    let fields = ["\"name\"", "\"tool_name\"", "\"tool\"", "\"function\"", "\"action\""];
    let mut found: Vec<usize> =
        fields.iter().flat_map(|field| text.match_indices(field)).map(|(at, _)| at).collect();
    found.sort_unstable();
    found.into_iter().find_map(|at| {
        let value = text[at + 1..].split_once('"')?.1.trim_start().strip_prefix(':')?;
        let name = value.trim_start().strip_prefix('"')?;
        Some(leading_name(name)).filter(|name| !name.is_empty())
    })
}

/// Splits a text at its fenced code blocks: parts with the language of their block, or `None`.
fn split_code(text: &str) -> Vec<(Option<&str>, &str)> {
    let mut parts = Vec::new();
    let (mut language, mut fence, mut begin, mut at) = (None, "", 0, 0);
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        let is_fence = trimmed.starts_with("```") || trimmed.starts_with("~~~");
        let is_end = language.is_some() && trimmed == fence;
        if is_fence && (language.is_none() || is_end) {
            parts.push((language, &text[begin..at]));
            let word = trimmed.trim_start_matches(['`', '~']);
            fence = &trimmed[..trimmed.len() - word.len()];
            // A block that ends on its own line is a code span.
            language = (!is_end && !word.contains('`')).then(|| word.trim());
            begin = at + if language.is_some() || is_end { line.len() } else { 0 };
        }
        at += line.len();
    }
    parts.push((language, &text[begin..]));
    parts
}

/// Removes quoted lines and code spans from a text.
fn without_quotations(text: &str) -> String {
    let mut rest = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with('>') {
            rest.push('\n');
            continue;
        }
        // The last of an odd number of backticks begins no span.
        let pieces: Vec<&str> = line.split('`').collect();
        let spans = (pieces.len() - 1) / 2;
        for (nth, piece) in pieces.into_iter().enumerate() {
            if nth % 2 == 0 || nth > 2 * spans {
                rest.push_str(piece);
            } else {
                rest.push_str(" `` ");
            }
        }
    }
    rest
}

/// Removes the prefix that newer `DeepSeek` models write in their tags: `DSML` between bars, such
/// as in `<|DSML|invoke name="Bash">`, mostly with fullwidth bars.
fn without_dsml(text: &str) -> String {
    let mut pieces = text.split('<');
    let mut rest = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (slash, tag) = piece.strip_prefix('/').map_or(("", piece), |tag| ("/", tag));
        let is_bar = |letter| matches!(letter, '|' | '\u{ff5c}');
        let name = tag.trim_start_matches(is_bar).strip_prefix("DSML");
        let name = name.filter(|name| tag.starts_with(is_bar) && name.starts_with(is_bar));
        rest.extend(["<", slash, name.map_or(tag, |name| name.trim_start_matches(is_bar))]);
    }
    rest
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{ToolDefinition, find_call_in_text};

    fn tools() -> Vec<ToolDefinition> {
        let tool = |name: &str, fields: &[&str], required: &str| {
            let properties: serde_json::Map<_, _> =
                fields.iter().map(|field| ((*field).to_owned(), json!({}))).collect();
            let input_schema = json!({ "properties": properties, "required": [required] });
            ToolDefinition { name: name.to_owned(), description: String::new(), input_schema }
        };
        vec![
            tool("Bash", &["command", "description"], "command"),
            tool("Read", &["file_path", "limit"], "file_path"),
            tool("mcp__files__list", &["path"], "path"),
        ]
    }

    #[test]
    fn a_call_in_the_syntax_of_any_vendor_is_found() {
        let tools = tools();
        let calls = [
            "<function_calls>\n<invoke name=\"Bash\">\n<parameter name=\"command\">make</parameter>",
            "I run the tests.<invoke name=\"Bash\"><parameter name=\"command\">make</parameter></invoke>",
            "<minimax:tool_call>\n<invoke name=\"Bash\">\n<parameter name=\"command\">ls</parameter>",
            "<function_calls><invoke><tool_name>Bash</tool_name><parameters>",
            "<tool_call>\n{\"name\": \"Bash\", \"arguments\": {\"command\": \"ls\"}}\n</tool_call>",
            "<tool_call>{\"arguments\": {\"command\": \"ls\"}, \"name\": \"Bash\"}",
            "<tool_call>Bash\n<arg_key>command</arg_key>\n<arg_value>ls</arg_value></tool_call>",
            "<tool_call>\n<function=Bash>\n<parameter=command>\nls\n</parameter>",
            "<function=Bash>{\"command\": \"ls\"}</function>",
            "<TOOLCALL>[{\"name\": \"Bash\", \"arguments\": {}}]</TOOLCALL>",
            "<tool_calls>[{\"name\": \"bash\", \"arguments\": {}}]</tool_calls>",
            "Let me look.\n```tool_call\n{\"name\": \"Bash\", \"arguments\": {}}\n```\n",
            "```tool_code\nprint(default_api.Bash(command=\"ls\"))\n```",
            "<invoke name=\"Bash\">\n```json\n{\"command\": \"ls\"}\n```\n",
            "[TOOL_CALLS][{\"name\": \"Bash\", \"arguments\": {\"command\": \"ls\"}}]",
            "[TOOL_CALLS]Bash[ARGS]{\"command\": \"ls\"}",
            "[TOOL_REQUEST]{\"name\": \"Bash\", \"arguments\": {}}[END_TOOL_REQUEST]",
            "<|python_tag|>{\"name\": \"Bash\", \"parameters\": {}}",
            "<|python_tag|>Bash.call(command=\"ls\")",
            "<|tool_call|>[{\"name\": \"Bash\", \"arguments\": {}}]<|/tool_call|>",
            "<|action_start|><|plugin|>{\"name\": \"Bash\", \"parameters\": {}}<|action_end|>",
            "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"Bash\", \"parameters\": {}}]",
            "<|tool_call_begin|>functions.Bash:0<|tool_call_argument_begin|>{}",
            "<|channel|>commentary to=functions.Bash <|constrain|>json<|message|>{}",
            "<\u{ff5c}tool\u{2581}call\u{2581}begin\u{ff5c}>function<\u{ff5c}tool\u{2581}sep\u{ff5c}>Bash\n```json\n{}\n```",
            "<\u{ff5c}DSML\u{ff5c}function_calls>\n<\u{ff5c}DSML\u{ff5c}invoke name=\"Bash\">\n<\u{ff5c}DSML\u{ff5c}parameter name=\"command\" string=\"true\">ls</\u{ff5c}DSML\u{ff5c}parameter>",
            "<\u{ff5c}DSML\u{ff5c}tool_calls>\n<\u{ff5c}DSML\u{ff5c}invoke name=\"Bash\">\n</\u{ff5c}DSML\u{ff5c}invoke>",
            "<\u{ff5c}\u{ff5c}DSML\u{ff5c}\u{ff5c}invoke name=\"Bash\">\n<\u{ff5c}\u{ff5c}DSML\u{ff5c}\u{ff5c}parameter name=\"command\">",
            "<|DSML|invoke name=\"Bash\">\n<|DSML|parameter name=\"command\">",
            "Thought: I list.\nAction: Bash\nAction Input: {\"command\": \"ls\"}",
            "{\"name\": \"Bash\", \"parameters\": {\"command\": \"ls\"}}",
            "{\"type\": \"tool_use\", \"id\": \"1\", \"name\": \"Bash\", \"input\": {}}",
            "[Bash(command=\"ls -l\")]",
            "```json\n{\"name\": \"Bash\", \"arguments\": {\"command\": \"ls\"}}\n```",
            "```\n{\"name\": \"Bash\", \"arguments\": {}}\n```\n",
            "I list them.\n\n```json\n{\n  \"name\": \"Bash\",\n  \"arguments\": {}\n}\n```",
            "```json\n{\"name\": \"x\"}\n```\n```json\n{\"name\": \"Bash\", \"input\": {}}\n```",
            "```xml\n<tool_call>\n{\"name\": \"Bash\", \"arguments\": {}}\n</tool_call>\n```",
            "```json\n{\"name\": \"Bash\", \"arguments\": {}}",
            "{\"type\": \"function\", \"function\": {\"name\": \"Bash\", \"arguments\": \"{\\\"command\\\": \\\"ls\\\"}\"}}",
            "{\"role\": \"assistant\", \"content\": \"I list.\", \"tool_calls\": [{\"id\": \"c1\", \"type\": \"function\", \"function\": {\"name\": \"Bash\", \"arguments\": \"{}\"}}]}",
            "{\"tool\": \"Bash\", \"input\": {\"command\": \"ls\"}}",
            "{\"thought\": \"I list.\", \"action\": \"Bash\", \"action_input\": {\"cmd\": \"ls\"}}",
            "{\"tool\": \"Bash\", \"command\": \"ls\", \"description\": \"list\"}",
            "{\"Bash\": {\"command\": \"ls\"}}",
            "{\"recipient_name\": \"functions.Bash\", \"parameters\": {\"command\": \"ls\"}}",
            "<tools>\n{\"name\": \"Bash\", \"arguments\": {}}\n</tools>",
            "Let me list.\n<tools>\n{\"name\": \"Bash\", \"arguments\": {}}\n</tools>",
            "{\"name\": \"Bash\", \"arguments\": {}}\n{\"name\": \"Read\", \"arguments\": {}}",
            "function call{\"name\": \"Bash\", \"arguments\": {}}<|message_sep|>",
            "<|start|>assistant<|channel|>analysis to=functions.Bash code<|message|>{\"command\":\"ls\"}",
            "analysis to=functions.Bash json\n{\"command\":\"ls\"}",
            "<|channel|>analysis<|message|>I list.<|end|><|start|>assistant<|channel|>final to=Bash<|message|>{\"command\":\"ls\"}<|call|>",
            "<Bash>\n<command>ls</command>\n</Bash>",
            "I list the files.\n\n<Bash>\n  <command>ls</command>\n</Bash>\n",
            "<longcat_tool_call>Bash\n<longcat_arg_key>command</longcat_arg_key>\n<longcat_arg_value>ls</longcat_arg_value>\n</longcat_tool_call>",
            "Bash\n<arg_key>command</arg_key>\n<arg_value>ls</arg_value>",
            "<start_function_call>call:Bash{command:<escape>ls<escape>}<end_function_call>",
            "call:Bash{\"command\":\"ls\"}",
            ">>>Bash\n{\"command\": \"ls\"}",
            "Bash\n```json\n{\"command\": \"ls\"}\n```",
            "Bash(command=\"ls\")",
            "[Tool call: Bash({\"command\": \"ls\"})]",
            "<some_new_tag>Bash<sep>{\"command\": \"ls\"}</some_new_tag>",
        ];
        for call in calls {
            assert_eq!(find_call_in_text(call, &tools), Some("Bash"), "{call}");
        }
        let other = "<invoke name=\"mcp__files__list\"></invoke>";
        assert_eq!(find_call_in_text(other, &tools), Some("mcp__files__list"));
    }

    #[test]
    fn an_example_or_another_tool_is_not_a_call() {
        let tools = tools();
        let texts = [
            "All tests pass.",
            "Example:\n```xml\n<invoke name=\"Bash\">\n<parameter name=\"command\">ls</parameter>\n```",
            "~~~\n<tool_call>{\"name\": \"Bash\"}</tool_call>\n~~~\nThat is the form.",
            "```\n<invoke name=\"Bash\"><parameter name=\"command\">",
            "The form `<invoke name=\"Bash\"></invoke>` is old.",
            "The model wrote \"<tool_call>{\"name\": \"Bash\"}\".",
            "> <invoke name=\"Bash\"></invoke>\n\nThat was in the log.",
            "Each <invoke name=\"Bash\"> tag names a tool.",
            "Each <\u{ff5c}DSML\u{ff5c}invoke name=\"Bash\"> tag names a tool.",
            "`<\u{ff5c}DSML\u{ff5c}invoke name=\"Bash\">` is its form.",
            "<invoke name=\"deploy\"><parameter name=\"to\">prod</parameter></invoke>",
            "<tool_call>{\"name\": \"search\", \"arguments\": {}}</tool_call>",
            "{\"name\": \"Bash\", \"version\": \"5.2\"}",
            "[Bash](https://www.gnu.org/software/bash/)",
            "It is:\n```json\n{\"name\": \"Bash\", \"arguments\": {}}\n```\nSave it.",
            "It is:\n```json\n{\"name\": \"Bash\", \"arguments\": {}, \"version\": 1}\n```",
            "It is:\n```json\n{\"name\": \"app\", \"arguments\": {}}\n```",
            "It is:\n```python\n{\"name\": \"Bash\", \"arguments\": {}}\n```",
            "The next action: Bash is to be updated.",
            "{\"name\": \"Bash\", \"description\": \"Runs commands\"}",
            "[{\"name\": \"Bash\", \"parameters\": {\"type\": \"object\", \"properties\": {}}}]",
            "{\"tools\": [{\"name\": \"Bash\", \"calls\": 3}]}",
            "{\"used\": [\"Bash\", \"Read\"]}",
            "{\"Bash\": {\"calls\": 3}, \"Read\": {\"calls\": 1}}",
            "{\"Read\": {\"allowed\": true}}",
            "{\"action\": \"none\", \"input\": {\"command\": \"ls\"}}",
            "Functionary writes >>>Bash\n{\"command\": \"ls\"}",
            "Cline writes <Bash><command>ls</command></Bash>",
            "Cline writes <Bash>\n<command>ls</command>\n</Bash> for a call.",
            "<Bash>\n<command>ls</command>\n</Bash>\n\nThis is the form of a call.",
            "The form is `<Bash><command>ls</command></Bash>`",
            "A call is:\n```xml\n<Bash>\n<command>ls</command>\n</Bash>\n```",
            "A call is:\n```\ncall:Bash{\"command\":\"ls\"}\n```",
            "The tool to=functions.Bash is named so in harmony.",
            "Bash(git status:*)",
            "Bash(command: string)",
            "Bash (the command is in the log)",
            "Use: Bash(command=\"ls\")",
            "<p>The call Bash(command=\"ls\") lists files.</p>",
            "<Read>\n<me/>\n</Read>",
            "- Bash: `command`",
            "Bash: command (text), description (text)",
            "[Bash]: https://example.com/command=ls>",
        ];
        for text in texts {
            assert_eq!(find_call_in_text(text, &tools), None, "{text}");
        }
    }
}
