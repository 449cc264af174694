//! The size report of a request that is too large.

use outlast_core::transcript::{Block, Message, TokenDensity, ToolDefinition, largest_parts};
use serde_json::json;

fn tool(name: &str) -> ToolDefinition {
    ToolDefinition {
        name: name.to_owned(),
        description: "d".repeat(900),
        input_schema: json!({ "type": "object" }),
    }
}

fn dealing(id: &str, command: &str, bytes: usize) -> [Message; 2] {
    let call = Block::call(id, "Bash", json!({ "command": command }));
    let content = vec![Block::text("x".repeat(bytes))];
    let result = Block::ToolResult { tool_use_id: id.to_owned(), content, is_error: false };
    [Message::assistant(vec![call]), Message::user(vec![result])]
}

#[test]
fn the_parts_of_a_request_are_listed_by_size() {
    let mut tools = vec![tool("Bash"), tool("Read")];
    tools.extend((0..300).map(|n| tool(&format!("mcp__big__t{n}"))));
    tools.extend((0..10).map(|n| tool(&format!("mcp__a__t{n}"))));
    let mut messages = vec![Message::user(vec![Block::text("t".repeat(9_000))])];
    messages.extend(dealing("a", "ls", 600));
    messages.extend(dealing("b", "cargo test", 60_000));
    let parts = largest_parts(&messages, &"s".repeat(30_000), &tools, TokenDensity::USUAL, 5);
    let named: Vec<&str> = parts.iter().map(|part| part.what.as_str()).collect();
    let expected = [
        "the definitions of 312 tools (300 from MCP server big)",
        "the result of Bash `cargo test`",
        "the system prompt",
        "the task",
    ];
    assert_eq!(named[..4], expected, "{parts:?}");
    assert_eq!(parts.len(), 5);
    let all = largest_parts(&messages, "", &tools, TokenDensity::USUAL, 9);
    assert!(all.iter().any(|part| part.what == "what the model said in 2 replies"), "{all:?}");
    let tokens: Vec<u64> = parts.iter().map(|part| part.tokens).collect();
    assert!((93_000..110_000).contains(&tokens[0]), "{tokens:?}");
    assert!((20_000..20_200).contains(&tokens[1]), "{tokens:?}");
    assert!((10_000..10_300).contains(&tokens[2]), "{tokens:?}");
    assert!((3_000..3_100).contains(&tokens[3]), "{tokens:?}");
}

#[test]
fn an_image_in_a_result_counts_as_an_image_and_empty_parts_are_omitted() {
    let mut messages = vec![Message::user(vec![Block::text("look")])];
    let [asked, mut answered] = dealing("a", "shot", 1);
    let image = Block::Image { source: json!({ "type": "base64", "data": "QQ==" }) };
    let Block::ToolResult { content, .. } = &mut answered.content[0] else { unreachable!() };
    content.push(image);
    messages.extend([asked, answered]);
    let parts = largest_parts(&messages, " ", &[], TokenDensity::USUAL, 9);
    assert_eq!(parts[0].what, "the result of Bash `shot`");
    assert!(parts[0].tokens >= 5_000, "{parts:?}");
    assert_eq!(parts[1].what, "what the model said in 1 reply");
    assert_eq!(parts.len(), 3, "no system prompt, no tools, no empty message: {parts:?}");
}
