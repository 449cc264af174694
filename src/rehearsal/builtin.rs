//! The built-in scenarios.

use super::file::ScenarioError;
use super::scenario::Scenario;

/// One line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioListing {
    pub name: String,
    pub summary: String,
    /// The exit code the run ends with.
    pub exit: Option<i32>,
}

/// Name and text, in recommended order.
const BUILTIN: &[(&str, &str)] = &[
    ("hello", include_str!("scenarios/hello.toml")),
    ("fix-a-bug", include_str!("scenarios/fix-a-bug.toml")),
    ("outage", include_str!("scenarios/outage.toml")),
    ("overload-fallback", include_str!("scenarios/overload-fallback.toml")),
    ("provider-outage", include_str!("scenarios/provider-outage.toml")),
    ("fallback-quota", include_str!("scenarios/fallback-quota.toml")),
    ("fallback-missing", include_str!("scenarios/fallback-missing.toml")),
    ("fallback-return", include_str!("scenarios/fallback-return.toml")),
    ("fallback-return-fails", include_str!("scenarios/fallback-return-fails.toml")),
    ("fast-wait", include_str!("scenarios/fast-wait.toml")),
    ("fast-cool-down", include_str!("scenarios/fast-cool-down.toml")),
    ("fast-denied", include_str!("scenarios/fast-denied.toml")),
    ("login-renewal", include_str!("scenarios/login-renewal.toml")),
    ("key-rotation", include_str!("scenarios/key-rotation.toml")),
    ("cloud-outage", include_str!("scenarios/cloud-outage.toml")),
    ("cloud-throttle", include_str!("scenarios/cloud-throttle.toml")),
    ("cloud-token", include_str!("scenarios/cloud-token.toml")),
    ("rate-limit", include_str!("scenarios/rate-limit.toml")),
    ("truncation", include_str!("scenarios/truncation.toml")),
    ("long-outage", include_str!("scenarios/long-outage.toml")),
    ("hopeless", include_str!("scenarios/hopeless.toml")),
    ("quota", include_str!("scenarios/quota.toml")),
    ("endless", include_str!("scenarios/endless.toml")),
    ("budget", include_str!("scenarios/budget.toml")),
    ("deadline", include_str!("scenarios/deadline.toml")),
    ("bad-key", include_str!("scenarios/bad-key.toml")),
    ("empty", include_str!("scenarios/empty.toml")),
    ("unfinished", include_str!("scenarios/unfinished.toml")),
    ("interrupted-streams", include_str!("scenarios/interrupted-streams.toml")),
    ("bad-arguments", include_str!("scenarios/bad-arguments.toml")),
    ("wrong-rejections", include_str!("scenarios/wrong-rejections.toml")),
    ("refusal", include_str!("scenarios/refusal.toml")),
    ("auto-compact", include_str!("scenarios/auto-compact.toml")),
    ("compaction-fails", include_str!("scenarios/compaction-fails.toml")),
    ("overflow", include_str!("scenarios/overflow.toml")),
    ("reactive-compact", include_str!("scenarios/reactive-compact.toml")),
    ("compaction-overflow", include_str!("scenarios/compaction-overflow.toml")),
    ("thrash", include_str!("scenarios/thrash.toml")),
    ("blocking-limit", include_str!("scenarios/blocking-limit.toml")),
    ("image-too-large", include_str!("scenarios/image-too-large.toml")),
    ("pdf-too-large", include_str!("scenarios/pdf-too-large.toml")),
    ("unreadable-block", include_str!("scenarios/unreadable-block.toml")),
    ("foreign-thinking", include_str!("scenarios/foreign-thinking.toml")),
    ("requirement", include_str!("scenarios/requirement.toml")),
    ("requirement-failed", include_str!("scenarios/requirement-failed.toml")),
    ("hook-crashes", include_str!("scenarios/hook-crashes.toml")),
    ("hook-hangs", include_str!("scenarios/hook-hangs.toml")),
    ("stop-hook-blocks", include_str!("scenarios/stop-hook-blocks.toml")),
    ("structured-output", include_str!("scenarios/structured-output.toml")),
    ("structured-exhausted", include_str!("scenarios/structured-exhausted.toml")),
    ("background-build", include_str!("scenarios/background-build.toml")),
    ("background-server", include_str!("scenarios/background-server.toml")),
    ("mcp-dies", include_str!("scenarios/mcp-dies.toml")),
    ("mcp-hangs", include_str!("scenarios/mcp-hangs.toml")),
    ("web-private", include_str!("scenarios/web-private.toml")),
    ("agent-fails", include_str!("scenarios/agent-fails.toml")),
    ("agent-denied", include_str!("scenarios/agent-denied.toml")),
    ("agents-overload", include_str!("scenarios/agents-overload.toml")),
    ("agents-endless", include_str!("scenarios/agents-endless.toml")),
    ("loop", include_str!("scenarios/loop.toml")),
    ("polling", include_str!("scenarios/polling.toml")),
    ("gateway-overload", include_str!("scenarios/gateway-overload.toml")),
    ("gateway-throttle", include_str!("scenarios/gateway-throttle.toml")),
    ("gateway-llamacpp", include_str!("scenarios/gateway-llamacpp.toml")),
    ("gateway-vllm", include_str!("scenarios/gateway-vllm.toml")),
];

/// The built-in scenario of that name. `None` when there is none.
///
/// # Errors
/// Never in a release: a test parses all scenarios.
pub fn builtin(name: &str) -> Option<Result<Scenario, ScenarioError>> {
    let (name, text) = BUILTIN.iter().find(|(known, _)| *known == name)?;
    Some(Scenario::parse(text, &format!("{name}.toml")))
}

/// All built-in scenarios.
pub fn list() -> Vec<ScenarioListing> {
    let scenarios = BUILTIN.iter().filter_map(|(name, _)| builtin(name)?.ok());
    scenarios
        .map(|scenario| ScenarioListing {
            name: scenario.name,
            summary: scenario.summary,
            exit: scenario.expect.exit,
        })
        .collect()
}
