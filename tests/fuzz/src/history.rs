//! Any list of messages can be made one that the service takes, without a word lost.

use super::Tape;
use outlast::transcript::{
    Block, History, Message, RejectedContent, Role, can_repair_rejected, folding, largest_parts,
    repair, repair_history, repair_rejected, strip_thinking, violations,
};
use serde_json::{Value, json};

fn block(tape: &mut Tape<'_>, depth: u8) -> Block {
    let ids = ["a", "b", "a_2", ""];
    let id = (*tape.pick(&ids)).to_owned();
    match tape.below(9) {
        0 | 1 => Block::text(tape.text(20)),
        2 => Block::Thinking { thinking: tape.text(9), signature: tape.text(4) },
        3 => Block::RedactedThinking { data: tape.text(4) },
        4 | 5 => {
            let inputs = [json!({}), json!({ "command": "ls" }), Value::Null, json!("x")];
            let names = ["Bash", "", "mcp.x y"];
            let (name, input) = ((*tape.pick(&names)).to_owned(), tape.pick(&inputs).clone());
            Block::call(id, name, input)
        }
        6 if depth > 0 => {
            let content = (0..tape.below(3)).map(|_| block(tape, depth - 1)).collect();
            Block::ToolResult { tool_use_id: id, content, is_error: tape.below(2) == 1 }
        }
        7 => Block::Image { source: json!({ "type": "base64", "data": tape.text(4) }) },
        _ => Block::Other(json!({ "type": "server_tool_use", "id": id })),
    }
}

fn messages(tape: &mut Tape<'_>) -> Vec<Message> {
    let mut messages = Vec::new();
    while !tape.is_over() && messages.len() < 12 {
        let role = *tape.pick(&[Role::User, Role::Assistant]);
        let content = (0..tape.below(5)).map(|_| block(tape, 2)).collect();
        messages.push(Message { role, content });
    }
    messages
}

pub fn run(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else { return };
    let messages = if mode & 1 == 0 {
        messages(&mut Tape(rest))
    } else {
        let Ok(messages) = serde_json::from_slice::<Vec<Message>>(rest) else { return };
        messages
    };
    let (repaired, repairs) = repair(messages.clone());
    assert_eq!(violations(&repaired), []);
    assert_eq!(repairs.is_empty(), violations(&messages).is_empty());
    let (again, none) = repair(repaired.clone());
    assert_eq!((&again, none.len()), (&repaired, 0));
    let _ = repair_history(messages.clone(), |id| format!("lost {id}"));
    let mut history = History::new(messages.clone(), 100);
    assert!(history.estimate() <= history.upper_bound());
    history.edit(|messages| {
        let folds = folding::foldable(messages);
        folding::apply_folds(messages, folds);
        strip_thinking(messages);
    });
    let _ = largest_parts(&messages, "", &[], history.density(), 5);
    let complaints = [
        RejectedContent::Media,
        RejectedContent::Thinking,
        RejectedContent::Pairs,
        RejectedContent::Block,
    ];
    let complaint = complaints[usize::from(*mode >> 1) % complaints.len()];
    let mut cured = repaired;
    let promised = can_repair_rejected(&cured, None, complaint);
    assert_eq!(repair_rejected(&mut cured, None, complaint).is_some(), promised);
    assert_eq!(violations(&cured), []);
}
