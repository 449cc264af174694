//! Any JSON as the input of any tool: admitted or refused with words for the model.

use std::cell::OnceCell;

use super::{Tape, toolbox};
use outlast::tools::{AnswerSchema, PermissionMode, ToolRefusal, Toolbox};
use outlast::transcript::ToolCall;
use serde_json::Value;

const NAMES: [&str; 9] =
    ["Bash", "Read", "Write", "Edit", "Glob", "Grep", "TodoWrite", "bash", "mcp__x__y"];

thread_local! {
    static TOOLS: OnceCell<Toolbox> = const { OnceCell::new() };
}

pub fn run(data: &[u8]) {
    let mut tape = Tape(data);
    let name = (*tape.pick(&NAMES)).to_owned();
    let nests = tape.below(4) == 0;
    let mut shape = Tape(tape.take(3));
    let Ok(mut input) = serde_json::from_slice::<Value>(tape.0) else { return };
    if input.to_string().len() < 2_000 {
        let _ = AnswerSchema::new(input.clone());
    }
    let texts = input.as_object_mut().into_iter().flat_map(|members| members.values_mut());
    for value in texts.filter(|value| nests && value.is_string()) {
        *value = shape.nested(value.as_str().unwrap_or_default()).into();
    }
    let call = ToolCall { id: "toolu_1".to_owned(), name, input };
    TOOLS.with(|tools| {
        let tools = tools.get_or_init(|| toolbox(PermissionMode::AcceptEdits, &[], &[]));
        if let Err(ToolRefusal::Invalid(outcome) | ToolRefusal::Denied { outcome, .. }) =
            tools.admit(&call)
        {
            assert!(outcome.is_error && !outcome.content.is_empty(), "{outcome:?}");
        }
    });
}
