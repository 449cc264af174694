//! Converts calls to the form that hooks, rules and the tools see: the exact name of the tool, an
//! input of the types that it takes, an absolute path.

use crate::transcript::ToolCall;

use super::catalog::{AGENT, BuiltinTool, TASK, built_in_names, is_agent_tool};
use super::coercion::coerce;
use super::toolbox::Toolbox;

impl Toolbox {
    /// Returns the call with the exact name of its tool: some models write `bash` for `Bash`.
    #[must_use]
    pub fn with_exact_name(&self, call: ToolCall) -> ToolCall {
        let name = call.name.as_str();
        let own = self.definitions.iter().map(|tool| tool.name.as_str());
        let mut known = own.chain(built_in_names()).chain([AGENT, TASK]);
        let is_exact = is_agent_tool(name)
            || known.clone().any(|tool| tool == name)
            || self.source_of(name).is_some();
        let meant = known.find(|tool| tool.eq_ignore_ascii_case(name));
        match meant.filter(|_| !is_exact) {
            Some(meant) => ToolCall { name: meant.to_owned(), ..call },
            None => call,
        }
    }

    /// Returns the call with the exact name of its tool, with the types of its input repaired, and
    /// with its path, explicit or implied, made absolute, independent of later changes of the
    /// working directory. Invalid parts of the input are left as they are.
    #[must_use]
    pub fn normalized(&self, call: &ToolCall) -> ToolCall {
        let mut call = self.with_exact_name(call.clone());
        let schema = match BuiltinTool::named(&call.name) {
            Some(tool) => Some(tool.schema()),
            None => self.source_of(&call.name).and_then(|source| source.input_schema(&call.name)),
        };
        if let Some(schema) = schema {
            coerce(&mut call.input, &schema);
        }
        let absolute = self
            .tools
            .with_path(&call, |tools, path| Some(tools.places.absolute(path, &tools.shell.cwd())));
        absolute.unwrap_or(call)
    }
}
