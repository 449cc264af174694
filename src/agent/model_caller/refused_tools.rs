//! Definitions of tools that the service refuses: each is left out for the rest of the run.

use crate::recovery::ClassifiedFault;

use super::ModelCaller;

impl ModelCaller {
    /// Returns the names of the tools whose definitions a refusal names, if requests can do
    /// without them: those of MCP servers.
    pub(in super::super) fn refused_tools(&self, fault: &ClassifiedFault) -> Vec<String> {
        let tools = self.fixed.tools().iter().map(|tool| &tool.name).enumerate();
        let named = tools
            .filter(|(index, name)| name.starts_with("mcp__") && fault.rejects_tool(*index, name));
        named.map(|(_, name)| name.clone()).collect()
    }

    /// Leaves the tools that the last refusal names out of all requests. Returns their names.
    pub(in super::super) fn leave_out_refused_tools(&mut self) -> Vec<String> {
        let names = self.last_failure().map_or_else(Vec::new, |fault| self.refused_tools(fault));
        if !names.is_empty() {
            self.refused_tools.extend_from_slice(&names);
            self.offer_tools(self.fixed.tools().to_vec());
        }
        names
    }
}
