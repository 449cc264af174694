//! Definitions of tools that the service refuses: each is left out for the rest of the run.

use crate::recovery::ClassifiedFault;

use super::ModelCaller;

impl ModelCaller {
    /// Returns the name of the tool whose definition a refusal names, if requests can do without
    /// it: it is one of an MCP server.
    pub(in super::super) fn refused_tool(&self, fault: &ClassifiedFault) -> Option<String> {
        let mut tools = self.fixed.tools().iter().map(|tool| &tool.name).enumerate();
        let (_, name) = tools
            .find(|(index, name)| name.starts_with("mcp__") && fault.rejects_tool(*index, name))?;
        Some(name.clone())
    }

    /// Leaves the tool that the last refusal names out of all requests. Returns its name.
    pub(in super::super) fn leave_out_refused_tool(&mut self) -> Option<String> {
        let name = self.refused_tool(self.last_failure()?)?;
        self.refused_tools.push(name.clone());
        self.offer_tools(self.fixed.tools().to_vec());
        Some(name)
    }
}
