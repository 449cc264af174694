//! Integration of external tools with the built-in ones: definitions, permission, execution.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::transcript::{ToolCall, ToolDefinition};
use crate::types::{CallPermission, ToolPolicy};

use super::catalog::BuiltinTool;
use super::external::{ExternalTools, into_outcome_within};
use super::offered_name::{ExternalInput, ExternalName, MCP, offered_name};
use super::outcome::{GrantSource, ToolOutcome};
use super::permission::Denial;
use super::toolbox::{ToolSet, Toolbox};

impl Toolbox {
    /// Adds a source of external tools.
    #[must_use]
    pub fn with_external_tools(mut self, foreign: Arc<dyn ExternalTools>) -> Self {
        self.foreign = Some(foreign);
        self
    }

    /// The tool definitions for the model, in a fixed order: the built-in tools, then the current
    /// external ones.
    pub fn all_definitions(&self) -> Vec<ToolDefinition> {
        self.definitions().iter().cloned().chain(self.external_definitions()).collect()
    }

    /// The names of these tools, in the same order.
    pub fn all_names(&self) -> Vec<String> {
        let own = self.definitions().iter().map(|tool| tool.name.clone());
        own.chain(self.external_definitions().map(|tool| tool.name)).collect()
    }

    pub(super) fn external_definitions(&self) -> impl Iterator<Item = ToolDefinition> {
        let foreign = self.foreign.iter().flat_map(|foreign| foreign.definitions());
        foreign.filter(|tool| self.may_use_external(&tool.name))
    }

    /// The source of an external tool.
    pub(super) fn source_of(&self, name: &str) -> Option<&Arc<dyn ExternalTools>> {
        let is_theirs = BuiltinTool::named(name).is_none() && self.may_offer_external(name);
        self.foreign.as_ref().filter(|foreign| is_theirs && foreign.has_tool(name))
    }

    /// The error message for a call of an external tool that is unavailable.
    pub(super) fn unavailable_message(&self, name: &str) -> Option<String> {
        let may_be_unavailable = BuiltinTool::named(name).is_none() && self.may_use_external(name);
        self.foreign.as_ref().filter(|_| may_be_unavailable)?.unavailable_reason(name)
    }

    /// True if an external tool may be offered: a sub-agent may be limited to some, by tool or by
    /// server.
    fn may_offer_external(&self, name: &str) -> bool {
        self.only_foreign.iter().all(|only| {
            only.iter().any(|one| {
                let one = offered_name(one);
                let one = one.trim_end_matches('*').trim_end_matches("__");
                one.starts_with(MCP)
                    && name
                        .strip_prefix(one)
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with("__"))
            })
        })
    }

    /// True if tools whose names begin with `prefix` may be offered.
    pub fn may_use_server(&self, prefix: &str) -> bool {
        self.foreign.is_some() && self.may_use_external(prefix.trim_end_matches('_'))
    }

    /// True if an external tool may be offered, and no rule denies it.
    fn may_use_external(&self, name: &str) -> bool {
        self.may_offer_external(name) && self.external_denial(name, None).is_none()
    }

    fn external_denial(&self, name: &str, input: Option<ExternalInput<'_>>) -> Option<Denial> {
        let foreign = self.foreign.as_ref();
        let own = foreign.and_then(|foreign| foreign.own_name(name));
        let names = ExternalName { offered: name, own: own.as_deref() };
        self.tools.permissions.external_denial(names, input).or_else(|| {
            let policy = foreign.and_then(|foreign| foreign.policy(name));
            let is_denied = policy == Some(ToolPolicy::Deny);
            is_denied.then(|| Denial::DeniedByServer { name: name.to_owned() })
        })
    }

    /// Checks the permission for a call of an external tool.
    pub(super) fn check_external(
        &self,
        foreign: &dyn ExternalTools,
        call: &ToolCall,
        source: GrantSource,
    ) -> Result<(), Denial> {
        let permissions = &self.tools.permissions;
        let schema = foreign.input_schema(&call.name);
        let input = ExternalInput { input: &call.input, schema: schema.as_ref() };
        if let Some(why) = self.external_denial(&call.name, Some(input)) {
            return Err(why);
        }
        match foreign.permission_for(call) {
            CallPermission::NotNeeded => {}
            CallPermission::Rule { name, own, server, reads_only } => {
                let tool = ExternalName { offered: &name, own: own.as_deref() };
                permissions.check_external((tool, input), &server, reads_only, source)?;
            }
        }
        // The answer to a prompt satisfies the policy, as it does the ask rules.
        let is_asked = foreign.policy(&call.name) == Some(ToolPolicy::Ask);
        if is_asked && source != GrantSource::Prompt {
            return Err(Denial::AskedByServer { name: call.name.clone() });
        }
        Ok(())
    }
}

impl ToolSet {
    pub(super) async fn run_external(
        &self,
        foreign: &dyn ExternalTools,
        call: &ToolCall,
        cancel: CancellationToken,
    ) -> ToolOutcome {
        let may_use = |prefix: &str| {
            let server = ExternalName::only(prefix.trim_end_matches('_'));
            self.permissions.external_denial(server, None).is_none()
        };
        let brought = foreign.perform(call, &may_use, cancel).await;
        into_outcome_within(brought, self.results.external(), &self.shell.scratch).await
    }
}
