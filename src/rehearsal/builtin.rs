//! The built-in scenarios.

use serde::Serialize;

use super::file::ScenarioError;
use super::scenario::Scenario;

/// One line of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ScenarioListing {
    /// The name by which it is chosen.
    pub name: String,
    /// The subject of its group.
    pub group: &'static str,
    /// One sentence on what happens.
    pub summary: String,
    /// The exit code the run ends with.
    #[serde(rename = "exit_code")]
    pub exit: Option<i32>,
}

/// Scenarios about one subject.
struct ScenarioGroup {
    title: &'static str,
    /// The name and the file of each, in recommended order.
    scenarios: &'static [(&'static str, &'static str)],
}

macro_rules! group {
    ($title:literal: $($name:literal)*) => {
        ScenarioGroup {
            title: $title,
            scenarios: &[$(($name, include_str!(concat!("scenarios/", $name, ".toml")))),*],
        }
    };
}

/// Every built-in scenario, in recommended order.
const GROUPS: &[ScenarioGroup] = &[
    group!("First steps": "hello" "fix-a-bug" "outage"),
    group!(
        "Outages, overloads and rate limits": "rate-limit" "long-outage" "hopeless" "quota"
        "gateway-overload" "gateway-throttle"
    ),
    group!(
        "Other models and fast mode": "overload-fallback" "provider-outage" "fallback-quota"
        "fallback-missing" "fallback-return" "fallback-return-fails" "fast-wait"
        "fast-cool-down" "fast-denied"
    ),
    group!("Credentials": "login-renewal" "key-rotation" "bad-key"),
    group!("Amazon Bedrock and Google Vertex AI": "cloud-outage" "cloud-throttle" "cloud-token"),
    group!(
        "Broken and incomplete replies": "interrupted-streams" "truncation" "bad-arguments"
        "empty" "unfinished" "refusal" "wrong-rejections"
    ),
    group!(
        "Context window, images and documents": "auto-compact" "compaction-fails" "overflow"
        "reactive-compact" "compaction-overflow" "thrash" "blocking-limit" "image-too-large"
        "pdf-too-large" "unreadable-block" "foreign-thinking" "gateway-llamacpp" "gateway-vllm"
    ),
    group!("Limits and loops": "endless" "budget" "deadline" "loop" "polling"),
    group!(
        "Acceptance of the answer": "requirement" "requirement-failed" "structured-output"
        "structured-exhausted"
    ),
    group!("Hooks": "hook-crashes" "hook-hangs" "stop-hook-blocks"),
    group!("Tools and MCP servers": "mcp-dies" "mcp-hangs" "web-private"),
    group!(
        "Background work and sub-agents": "background-build" "background-server" "agent-fails"
        "agent-denied" "agents-overload" "agents-endless"
    ),
];

/// The file of the built-in scenario of that name. `None` if there is none.
pub fn builtin_text(name: &str) -> Option<&'static str> {
    let mut scenarios = GROUPS.iter().flat_map(|group| group.scenarios);
    scenarios.find(|(own, _)| *own == name).map(|(_, text)| *text)
}

/// The built-in scenario of that name. `None` if there is none.
///
/// # Errors
/// Its file is invalid, which does not happen in a release: a test parses all scenarios.
pub fn builtin(name: &str) -> Option<Result<Scenario, ScenarioError>> {
    Some(Scenario::parse(builtin_text(name)?, &format!("{name}.toml")))
}

/// The names of all built-in scenarios.
pub fn names() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().flat_map(|group| group.scenarios).map(|(name, _)| *name)
}

/// All built-in scenarios. Those of a group follow each other.
pub fn list() -> Vec<ScenarioListing> {
    let all =
        GROUPS.iter().flat_map(|group| group.scenarios.iter().map(|(name, _)| (group.title, name)));
    all.filter_map(|(group, name)| Some((group, builtin(name)?.ok()?)))
        .map(|(group, scenario)| ScenarioListing {
            group,
            name: scenario.name,
            summary: scenario.summary,
            exit: scenario.expect.exit,
        })
        .collect()
}
