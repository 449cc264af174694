// The options that the GitHub action sets, and its way of reading results: it starts the TypeScript
// SDK, collects the messages up to the first result, and decides from that result.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { scenario, sdk, until } from "./harness.mjs";
import { call, fail, say, textOf } from "./server.mjs";

const MCP_SERVER = fileURLToPath(new URL("../mcp/server.py", import.meta.url));

/** What the action makes of its messages. */
function outputs(messages, { maxTurns, schema }) {
  const result = messages.find((message) => message.type === "result");
  assert.ok(result, `no result in ${JSON.stringify(messages.map((m) => m.subtype ?? m.type))}`);
  const inLimit = !maxTurns || result.num_turns <= maxTurns;
  const isShaped = !schema || Boolean(result.structured_output);
  const isGood = result.subtype === "success" && !result.is_error && inLimit && isShaped;
  return {
    conclusion: isGood ? "success" : "failure",
    session: messages.find((message) => message.subtype === "init")?.session_id,
    execution: JSON.stringify(messages),
    result,
  };
}

/** Runs the action. `prompt` is a text, or the texts of the blocks of one message. */
async function act(world, prompt, { settings = {}, extraArgs = {}, env = {}, ...options } = {}) {
  const home = path.join(world.root, "home");
  fs.mkdirSync(path.join(home, ".claude"), { recursive: true });
  const file = { ...settings, enableAllProjectMcpServers: true };
  fs.writeFileSync(path.join(home, ".claude", "settings.json"), JSON.stringify(file));
  const { CLAUDE_CONFIG_DIR: _unset, ...inherited } = world.options().env;
  async function* blocks() {
    const content = prompt.map((text) => ({ type: "text", text }));
    yield { type: "user", session_id: "", message: { role: "user", content }, parent_tool_use_id: null };
  }
  const query = sdk.query({
    prompt: Array.isArray(prompt) ? blocks() : prompt,
    options: {
      ...world.options(),
      model: undefined,
      settingSources: ["user", "project", "local"],
      systemPrompt: { type: "preset", preset: "claude_code" },
      extraArgs,
      ...options,
      env: {
        ...inherited, CLAUDE_CODE_ENTRYPOINT: "claude-code-github-action", GITHUB_ACTION_INPUTS: "{}",
        GITHUB_ACTIONS: "true", ANTHROPIC_MODEL: "claude-sonnet-5-5", ...env,
      },
    },
  });
  const messages = [];
  try {
    for await (const message of query) {
      messages.push(message);
      if (message.type === "result") break;
    }
  } catch (error) {
    if (!messages.some((message) => message.type === "result")) throw error;
  }
  return outputs(messages, { maxTurns: options.maxTurns, schema: extraArgs["json-schema"] });
}

scenario("action_ends_with_a_conclusion_a_session_and_an_execution_file", async (world) => {
  world.script(call("Bash", { command: "touch made.txt" }), say("Done."));
  const ended = await act(world, "Touch it.", { allowedTools: ["Bash(touch *)", "Read"], maxTurns: 5 });
  assert.equal(ended.conclusion, "success", ended.execution);
  assert.ok(world.exists("made.txt") && ended.session);
  const kinds = JSON.parse(ended.execution).map((message) => message.type);
  assert.deepEqual(kinds, ["system", "assistant", "user", "assistant", "result"]);
  assert.ok(ended.result.total_cost_usd > 0 && ended.result.duration_ms >= 0);
  assert.ok(Object.values(ended.result.modelUsage)[0].contextWindow > 0);
  assert.ok(await until(() => world.running().length === 0, 5_000), "outlast still runs");
});

scenario("action_gives_two_blocks_of_which_the_last_may_call_a_command", async (world) => {
  world.write(".claude/commands/review.md", "---\ndescription: Reviews\n---\nReview the change of $ARGUMENTS.");
  world.script(say("Reviewed."));
  const ended = await act(world, ["This is pull request 7.", "/review main.rs"]);
  assert.equal(ended.conclusion, "success", ended.execution);
  assert.match(textOf(world.requests[0]), /This is pull request 7\./);
  assert.match(textOf(world.requests[0]), /Review the change of main\.rs\./);
});

scenario("action_reads_memory_settings_and_servers_of_the_repository", async (world) => {
  world.write("CLAUDE.md", "Use tabs in this project.");
  world.write(".mcp.json", JSON.stringify({ mcpServers: { tools: { command: "python3", args: [MCP_SERVER] } } }));
  world.script(call("mcp__tools__echo", { text: "heard" }), say("Done."));
  const settings = { permissions: { allow: ["mcp__tools__echo"] }, env: { FROM_SETTINGS: "1" } };
  const ended = await act(world, "Echo.", { settings });
  assert.equal(ended.conclusion, "success", ended.execution);
  assert.match(JSON.stringify(world.requests[0]), /Use tabs in this project\./);
  assert.match(JSON.stringify(world.requests[1].messages.at(-1)), /heard/);
});

scenario("action_passes_servers_in_its_arguments", async (world) => {
  const config = { mcpServers: { given: { command: "python3", args: [MCP_SERVER] } } };
  world.script(call("mcp__given__echo", { text: "heard" }), say("Done."));
  const extraArgs = { "mcp-config": JSON.stringify(config) };
  const ended = await act(world, "Echo.", { extraArgs, allowedTools: ["mcp__given__echo"] });
  assert.equal(ended.conclusion, "success", ended.execution);
  assert.deepEqual(JSON.parse(ended.execution)[0].mcp_servers.map((server) => server.status), ["connected"]);
});

scenario("action_returns_a_structured_answer", async (world) => {
  const schema = { type: "object", properties: { tests: { type: "integer" } }, required: ["tests"] };
  world.script(call("StructuredOutput", { tests: 12 }));
  const ended = await act(world, "Count.", { extraArgs: { "json-schema": JSON.stringify(schema) } });
  assert.equal(ended.conclusion, "success", ended.execution);
  assert.deepEqual(ended.result.structured_output, { tests: 12 });
});

scenario("action_fails_where_the_structured_answer_never_comes", async (world) => {
  const schema = { type: "object", properties: { tests: { type: "integer" } }, required: ["tests"] };
  world.script({ ...say("Twelve."), repeat: true });
  const ended = await act(world, "Count.", { extraArgs: { "json-schema": JSON.stringify(schema) } });
  assert.equal(ended.conclusion, "failure");
  assert.equal(ended.result.subtype, "error_max_structured_output_retries");
});

scenario("action_fails_at_the_turn_limit_with_a_result", async (world) => {
  world.script(call("Bash", { command: "ls" }));
  const ended = await act(world, "Work.", { maxTurns: 1 });
  assert.equal(ended.conclusion, "failure");
  assert.equal(ended.result.subtype, "error_max_turns");
});

scenario("action_reports_what_was_denied", async (world) => {
  world.script(call("Write", { file_path: "a.txt", content: "x" }), say("Denied."));
  const ended = await act(world, "Write.", { disallowedTools: ["WebFetch"] });
  assert.equal(ended.conclusion, "success", ended.execution);
  assert.deepEqual(ended.result.permission_denials.map((denial) => denial.tool_name), ["Write"]);
});

scenario("action_fails_with_the_error_of_the_service", async (world) => {
  world.script({ ...fail(401, "authentication_error", "invalid x-api-key"), repeat: true });
  const ended = await act(world, "Hi.");
  assert.equal(ended.conclusion, "failure");
  assert.match(ended.result.result, /invalid x-api-key/);
});

scenario("action_falls_back_and_appends_to_the_system_prompt", async (world) => {
  const busy = { ...fail(529, "overloaded_error", "Overloaded"), when: (request) => request.model !== "claude-haiku-4-5" };
  world.script(busy, busy, busy, say("From the other model."));
  const systemPrompt = { type: "preset", preset: "claude_code", append: "Answer in English." };
  const env = { CLAUDE_CODE_MAX_RETRIES: "3" };
  const ended = await act(world, "Hi.", { fallbackModel: "claude-haiku-4-5", systemPrompt, env });
  assert.equal(ended.conclusion, "success", ended.execution);
  assert.match(JSON.stringify(world.requests.at(-1).system), /Answer in English\./);
});
