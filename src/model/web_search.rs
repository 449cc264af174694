//! The search tool of the service.

use serde_json::{Value, json};

use super::prices::{Thinking, thinking};
use super::service::ServiceKind;

/// The version of the tool that all models and Vertex AI support.
const BASIC: &str = "web_search_20250305";

/// The latest version of the tool. Its filter by code is off: only the model itself calls the tool.
const LATEST: &str = "web_search_20260318";

/// One search of the web.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebSearch {
    /// Domains that all results must come from, if there are any.
    pub allowed_domains: Vec<String>,
    /// Domains that no result may come from.
    pub blocked_domains: Vec<String>,
}

impl WebSearch {
    /// Maximum number of searches by the model for one request.
    pub const SEARCHES_MAX: u32 = 1;

    /// Maximum number of tokens that the results of a search add to the input.
    pub const RESULT_TOKENS_MAX: u64 = 50_000;

    /// The definition of the tool for `model`.
    pub(super) fn tool(&self, model: &str) -> Value {
        let mut tool = json!({
            "type": BASIC,
            "name": "web_search",
            "max_uses": Self::SEARCHES_MAX,
        });
        if thinking(model) != Thinking::Budget {
            tool["type"] = LATEST.into();
            tool["allowed_callers"] = json!(["direct"]);
        }
        let lists = [
            ("allowed_domains", &self.allowed_domains),
            ("blocked_domains", &self.blocked_domains),
        ];
        for (field, domains) in lists.into_iter().filter(|(_, domains)| !domains.is_empty()) {
            tool[field] = json!(domains);
        }
        tool
    }
}

impl ServiceKind {
    /// True if the service has a search tool.
    pub fn has_web_search(&self) -> bool {
        match self {
            Self::Messages | Self::Vertex { .. } | Self::Foundry { .. } => true,
            Self::Bedrock { .. } => false,
        }
    }
}

/// Replaces the search tool by the version that every service with one has.
pub(super) fn use_basic_version(tool: &mut Value) {
    if let Some(fields) = tool.as_object_mut() {
        fields.insert("type".to_owned(), BASIC.into());
        fields.shift_remove("allowed_callers");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_model_gets_the_latest_version_that_it_has() {
        let search =
            WebSearch { blocked_domains: vec!["a.example".to_owned()], ..WebSearch::default() };
        let latest = json!({
            "type": LATEST, "name": "web_search", "max_uses": 1, "allowed_callers": ["direct"],
            "blocked_domains": ["a.example"],
        });
        let basic = json!({
            "type": BASIC, "name": "web_search", "max_uses": 1, "blocked_domains": ["a.example"],
        });
        for (model, tool) in [
            ("claude-opus-5-5", &latest),
            ("claude-fable-5-1", &latest),
            ("claude-sonnet-4-5", &basic),
            ("claude-opus-4-1", &basic),
        ] {
            assert_eq!(search.tool(model), *tool, "{model}");
            let mut replaced = search.tool(model);
            use_basic_version(&mut replaced);
            assert_eq!(replaced, basic, "{model}");
        }
    }
}
