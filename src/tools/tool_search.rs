//! Tool search: definitions of MCP tools that would fill much of the context window are left out of
//! requests until the model searches for them.
//!
//! Found tools are added at the end of the list, which works with every service. The fields with
//! which the Messages API defers definitions would also keep the cache of the messages when a tool
//! is found, but clouds and gateways refuse them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::text::words_joined;
use crate::transcript::{Block, Message, ToolDefinition, fixed_bytes};
use crate::types::ToolSearchMode;

use super::catalog::{BuiltinTool, TOOL_SEARCH};
use super::input::{self, ToolRequest, ToolSearchInput};
use super::offered_name::MCP;
use super::outcome::ToolOutcome;

/// The approximate number of bytes of a definition in one token.
const BYTES_PER_TOKEN: u64 = 4;

/// The longest list of names in the description of the tool, in bytes. Beyond it, servers are
/// listed with the number of their tools.
const NAMES_BYTES_MAX: usize = 8_000;

/// The number of tools that a search finds, unless the call says otherwise.
const RESULTS_DEFAULT: usize = 5;

/// The maximum number of tools that a call may ask for.
const RESULTS_MAX: usize = 50;

/// The maximum length of a description in a result, in characters.
const SUMMARY_CHARS: usize = 200;

/// The deferred tools of one agent.
#[derive(Debug)]
pub struct DeferredTools {
    mode: ToolSearchMode,
    /// True if definitions are deferred. It stays true: earlier requests are in the service's
    /// prompt cache.
    is_deferring: bool,
    /// The names of tools that were found, in the order in which they were found.
    found: Vec<String>,
    /// The definitions of all tools of servers.
    known: Vec<ToolDefinition>,
}

impl DeferredTools {
    /// Creates a state in which nothing is deferred before the first [`Self::select`].
    pub fn new(mode: ToolSearchMode) -> Self {
        Self { mode, is_deferring: false, found: Vec::new(), known: Vec::new() }
    }

    /// Returns those of `all` definitions that are sent to models with these context windows: the
    /// built-in tools, then the search, then the tools that were found.
    pub fn select(
        &mut self,
        all: Vec<ToolDefinition>,
        windows: &[u64],
        history: &[Message],
    ) -> Vec<ToolDefinition> {
        let (known, own): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|tool| tool.name.starts_with(MCP));
        // Found tools are also restored for a server that has just connected, and when deferral
        // begins.
        let is_grown = known.iter().any(|tool| self.definition(&tool.name).is_none());
        let was_deferring = self.is_deferring;
        self.known = known;
        let size = fixed_bytes("", &self.known) / BYTES_PER_TOKEN;
        let window = windows.iter().copied().min().unwrap_or_default();
        self.is_deferring |= !self.known.is_empty() && self.mode.defers(size, window);
        if !self.is_deferring {
            return own.into_iter().chain(self.known.iter().cloned()).collect();
        }
        if is_grown || !was_deferring {
            self.restore(history);
        }
        let search = (!self.known.is_empty()).then(|| self.define());
        let found = self.found.iter().filter_map(|name| self.definition(name)).cloned();
        own.into_iter().chain(search).chain(found).collect()
    }

    /// Restores the tools that the conversation has found or called.
    fn restore(&mut self, history: &[Message]) {
        let blocks = history.iter().flat_map(|message| &message.content);
        for (_, name, input) in blocks.filter_map(Block::as_call) {
            if name == TOOL_SEARCH {
                if let Some(input) = parse(input) {
                    self.add(self.matches(&input));
                }
            } else if self.definition(name).is_some() {
                self.add(vec![name.to_owned()]);
            }
        }
    }

    /// Offers a tool from now on that the model has called without a search.
    pub fn record_call(&mut self, name: &str) {
        if self.is_deferring && self.definition(name).is_some() {
            self.add(vec![name.to_owned()]);
        }
    }

    /// Performs a search. The tools that it finds are offered from now on.
    pub fn search(&mut self, input: &ToolSearchInput) -> ToolOutcome {
        let names = self.matches(input);
        if names.is_empty() {
            let servers = self.servers();
            return ToolOutcome::text(format!("No tool matches. {servers}"), Value::Null);
        }
        let mut text = "These tools are offered from your next reply on:".to_owned();
        for tool in names.iter().filter_map(|name| self.definition(name)) {
            let words = words_joined(&tool.description);
            let summary: String = words.chars().take(SUMMARY_CHARS).collect();
            let _ = write!(text, "\n- {}: {summary}", tool.name);
        }
        let detail = json!({ "matches": &names });
        self.add(names);
        ToolOutcome::text(text, detail)
    }

    fn add(&mut self, names: Vec<String>) {
        for name in names {
            if !self.found.contains(&name) {
                self.found.push(name);
            }
        }
    }

    fn definition(&self, name: &str) -> Option<&ToolDefinition> {
        self.known.iter().find(|tool| tool.name == name)
    }

    /// Returns the names of the tools that a search finds, the best first.
    fn matches(&self, input: &ToolSearchInput) -> Vec<String> {
        let most = input.max_results.unwrap_or(RESULTS_DEFAULT).clamp(1, RESULTS_MAX);
        if let Some(names) = input.query.trim().strip_prefix("select:") {
            let wanted = names.split(',').map(str::trim);
            let known = wanted.filter(|name| self.definition(name).is_some());
            return known.map(str::to_owned).collect();
        }
        let words = query_words(&input.query);
        let scored = self.known.iter().map(|tool| (score(tool, &words), &tool.name));
        let mut scored: Vec<(u32, &String)> = scored.filter(|(score, _)| *score > 0).collect();
        scored.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        scored.into_iter().take(most).map(|(_, name)| name.clone()).collect()
    }

    fn define(&self) -> ToolDefinition {
        let tool = BuiltinTool::ToolSearch;
        ToolDefinition {
            name: TOOL_SEARCH.to_owned(),
            description: format!("{} These are there: {}", tool.description(), self.names()),
            input_schema: tool.schema().clone(),
        }
    }

    /// The names of all tools, or of their servers if that would be too long.
    fn names(&self) -> String {
        let names: Vec<&str> = self.known.iter().map(|tool| tool.name.as_str()).collect();
        let names = names.join(", ");
        if names.len() <= NAMES_BYTES_MAX { names } else { self.servers() }
    }

    /// The servers with the number of their tools.
    fn servers(&self) -> String {
        let server = |tool: &ToolDefinition| {
            let rest = tool.name.strip_prefix(MCP).unwrap_or(&tool.name);
            rest.split("__").next().unwrap_or_default().to_owned()
        };
        let servers: BTreeSet<String> = self.known.iter().map(server).collect();
        let lines = servers.iter().map(|name| {
            let count = self.known.iter().filter(|tool| server(tool) == *name).count();
            format!("{MCP}{name} ({count} tools)")
        });
        lines.collect::<Vec<_>>().join(", ")
    }
}

/// A word of a query in lower case, and whether a tool must match it.
type QueryWord = (String, bool);

/// The words of a query, which may be quoted, or be written as a pattern.
fn query_words(query: &str) -> Vec<QueryWord> {
    let words = query.split(|it: char| it.is_whitespace() || "|*()[],;".contains(it));
    let words = words.map(|word| {
        let plain = word.trim_matches(|it: char| !it.is_alphanumeric());
        // A single letter, as that of `c++`, would match nearly every tool.
        let plain = if plain.chars().count() == 1 { word.trim_start_matches('+') } else { plain };
        (plain.to_lowercase(), word.starts_with('+'))
    });
    words.filter(|(word, is_required)| *is_required || !word.is_empty()).collect()
}

/// Scores how well a tool matches the words of a query; 0: not at all.
fn score(tool: &ToolDefinition, words: &[QueryWord]) -> u32 {
    let (name, description) = (tool.name.to_lowercase(), tool.description.to_lowercase());
    let parts: Vec<&str> = name.split(['_', '-', '.']).filter(|part| !part.is_empty()).collect();
    let mut total = 0;
    for (word, is_required) in words {
        let found = if word.is_empty() {
            0
        } else if parts.contains(&word.as_str()) {
            10
        } else if name.contains(word.as_str()) {
            5
        } else {
            u32::from(description.contains(word.as_str())) * 2
        };
        if *is_required && found == 0 {
            return 0;
        }
        total += found;
    }
    total
}

/// Parses the input of a recorded search.
fn parse(input: &Value) -> Option<ToolSearchInput> {
    let parsed = input::parse(BuiltinTool::ToolSearch, &mut input.clone(), str::to_owned).ok()?;
    let ToolRequest::ToolSearch(search) = parsed.request else { return None };
    Some(search)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, description: &str) -> ToolDefinition {
        ToolDefinition {
            name: name.to_owned(),
            description: description.to_owned(),
            input_schema: json!({ "type": "object" }),
        }
    }

    fn all() -> Vec<ToolDefinition> {
        vec![
            tool("Bash", "Runs a command"),
            tool("mcp__git_hub__create_issue", "Opens a ticket"),
            tool("mcp__git_hub__list_issues", "Lists tickets of a repository"),
            tool("mcp__mail__send", "Sends a message, for example on an issue"),
        ]
    }

    fn names(tools: &[ToolDefinition]) -> Vec<&str> {
        tools.iter().map(|tool| tool.name.as_str()).collect()
    }

    fn deferring() -> DeferredTools {
        let mut tools = DeferredTools::new(ToolSearchMode::On);
        tools.select(all(), &[1_000_000], &[]);
        tools
    }

    fn query(input: &Value) -> ToolSearchInput {
        parse(input).expect("a query")
    }

    #[test]
    fn definitions_are_deferred_as_the_setting_says() {
        let tokens = fixed_bytes("", &all()[1..]) / BYTES_PER_TOKEN;
        let just_above = tokens * 10 + 10;
        for (mode, window, defers) in [
            (ToolSearchMode::Off, 10, false),
            (ToolSearchMode::On, 1_000_000, true),
            (ToolSearchMode::Auto(10), tokens * 10 - 10, true),
            (ToolSearchMode::Auto(10), just_above, false),
            (ToolSearchMode::Auto(5), just_above, true),
            (ToolSearchMode::Auto(0), 1_000_000, true),
            (ToolSearchMode::Auto(100), tokens, false),
        ] {
            let sent = DeferredTools::new(mode).select(all(), &[window, 2_000_000], &[]);
            let all = all();
            let expected = if defers { vec!["Bash", TOOL_SEARCH] } else { names(&all) };
            assert_eq!(names(&sent), expected, "{mode:?} {window}");
        }
        let without =
            DeferredTools::new(ToolSearchMode::On).select(all()[..1].to_vec(), &[10], &[]);
        assert_eq!(names(&without), ["Bash"], "there is nothing to search");
    }

    #[test]
    fn found_tools_are_added_at_the_end_and_stay() {
        let mut tools = deferring();
        let before = tools.select(all(), &[1_000_000], &[]);
        assert!(!tools.search(&query(&json!({ "query": "mail" }))).is_error);
        tools.record_call("mcp__git_hub__list_issues");
        tools.record_call("mcp__git_hub__no_such_tool");
        let after = tools.select(all(), &[1_000_000], &[]);
        assert_eq!(after[..before.len()], before[..], "the prefix is the same");
        let found = ["mcp__mail__send", "mcp__git_hub__list_issues"];
        assert_eq!(names(&after)[before.len()..], found);
        let gone = tools.select(all()[..3].to_vec(), &[1_000_000], &[]);
        assert!(!names(&gone).contains(&"mcp__mail__send"), "its server is gone");
    }

    #[test]
    fn queries_name_tools_or_describe_them() {
        for (words, found) in [
            (
                "issue",
                &["mcp__git_hub__create_issue", "mcp__git_hub__list_issues", "mcp__mail__send"][..],
            ),
            ("ISSUE +mail", &["mcp__mail__send"]),
            ("tickets", &["mcp__git_hub__list_issues"]),
            ("\"tickets\"?", &["mcp__git_hub__list_issues"]),
            ("mcp__mail__*", &["mcp__mail__send"]),
            ("list.*repos|sends?", &["mcp__git_hub__list_issues", "mcp__mail__send"]),
            ("+\"mail\", issue", &["mcp__mail__send"]),
            ("+tickets +send", &[]),
            ("c++", &[]),
            (
                "select:mcp__mail__send, mcp__x__y,mcp__git_hub__create_issue",
                &["mcp__mail__send", "mcp__git_hub__create_issue"],
            ),
            ("+", &[]),
        ] {
            assert_eq!(deferring().matches(&query(&json!({ "query": words }))), found, "{words}");
        }
        let one = query(&json!({ "query": "issue", "max_results": 1 }));
        assert_eq!(deferring().matches(&one).len(), 1);
        let list = query(&json!({ "queries": ["tickets", "send"] }));
        assert_eq!(deferring().matches(&list).len(), 2);
        assert!(parse(&json!({})).is_none());
        let none = deferring().search(&query(&json!({ "query": "weather" }))).visible_text();
        assert!(none.contains("mcp__git_hub (2 tools), mcp__mail (1 tools)"), "{none}");
    }

    #[test]
    fn a_resumed_session_finds_again_what_it_had() {
        let call = |name: &str, input: Value| Block::call("a", name, input);
        let history = [Message::assistant(vec![
            call(TOOL_SEARCH, json!({ "query": "select:mcp__mail__send" })),
            call("mcp__git_hub__create_issue", json!({})),
            call("Bash", json!({})),
        ])];
        let mut tools = DeferredTools::new(ToolSearchMode::On);
        let sent = tools.select(all(), &[1_000_000], &history);
        let found = ["Bash", TOOL_SEARCH, "mcp__mail__send", "mcp__git_hub__create_issue"];
        assert_eq!(names(&sent), found);
    }

    #[test]
    fn what_was_found_is_offered_again_when_a_server_connects_or_deferral_begins() {
        let call = |name: &str, input: Value| Block::call("a", name, input);
        let history = [Message::assistant(vec![
            call(TOOL_SEARCH, json!({ "query": "select:mcp__mail__send" })),
            call("mcp__git_hub__create_issue", json!({})),
        ])];
        let found = ["Bash", TOOL_SEARCH, "mcp__mail__send", "mcp__git_hub__create_issue"];

        let mut connecting = DeferredTools::new(ToolSearchMode::On);
        let sent = connecting.select(all()[..3].to_vec(), &[1_000_000], &history);
        assert_eq!(names(&sent), ["Bash", TOOL_SEARCH, "mcp__git_hub__create_issue"]);
        let sent = connecting.select(all(), &[1_000_000], &history);
        assert_eq!(names(&sent).len(), found.len(), "{:?}", names(&sent));
        assert!(names(&sent).contains(&"mcp__mail__send"));

        let mut switched = DeferredTools::new(ToolSearchMode::Auto(10));
        let sent = switched.select(all(), &[1_000_000], &history);
        assert_eq!(names(&sent), names(&all()), "nothing is deferred");
        assert_eq!(names(&switched.select(all(), &[10], &history)), found);
    }

    #[test]
    fn a_long_list_of_names_becomes_a_list_of_servers() {
        let many = (0..400).map(|at| tool(&format!("mcp__big__a_tool_with_number_{at}"), ""));
        let mut tools = DeferredTools::new(ToolSearchMode::On);
        let sent = tools.select(many.collect(), &[1_000_000], &[]);
        assert!(sent[0].description.ends_with("mcp__big (400 tools)"), "{}", sent[0].description);
        assert!(deferring().define().description.contains("mcp__mail__send"));
    }
}
