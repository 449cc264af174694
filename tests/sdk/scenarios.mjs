// The scenarios of the TypeScript SDK.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import path from "node:path";
import { MODEL, Prompts, Shown, prompt, scenario, sdk, until, z } from "./harness.mjs";
import { call, fail, lastResult, say, systemOf, textOf, tool } from "./server.mjs";

const write = (world, name = "a.txt", content = "written") =>
  call("Write", { file_path: world.path(name), content });

/** Runs a query over `Prompts`; `steps` are called with the query after each result, the input ends after them. */
async function conversation(world, first, steps, options = {}) {
  const prompts = new Prompts();
  prompts.send(first);
  const rest = [...steps];
  return world.query(prompts, options, async (message, query) => {
    if (message.type !== "result") return;
    const step = rest.shift();
    if (step) await step(query, prompts);
    else prompts.end();
  });
}

scenario("query_with_a_string_gives_init_answer_and_result", async (world) => {
  world.script(say("Four."));
  const shown = await world.query("What is 2 + 2?");
  const result = shown.good();
  assert.equal(result.result, "Four.");
  assert.equal(shown.messages.at(-1), result);
  assert.deepEqual(shown.texts(), ["Four."]);
  assert.equal(shown.init.model, MODEL);
  assert.equal(shown.init.cwd, world.work);
  assert.equal(result.session_id, shown.init.session_id);
  assert.equal(result.num_turns, 1);
  assert.deepEqual(result.permission_denials, []);
  assert.ok(result.modelUsage[MODEL].inputTokens > 0 && result.total_cost_usd > 0);
  assert.ok(result.modelUsage[MODEL].contextWindow > 0);
  assert.match(textOf(world.requests[0]), /What is 2 \+ 2\?/);
});

scenario("prompts_of_an_iterable_share_one_context", async (world) => {
  world.script(say("Noted."), say("Blue."));
  const again = (query, prompts) => prompts.send("Which colour?");
  const shown = await conversation(world, "My colour is blue.", [again]);
  assert.equal(shown.error, null);
  assert.deepEqual(shown.results.map((result) => result.result), ["Noted.", "Blue."]);
  assert.match(textOf(world.requests[1]), /My colour is blue\./);
});

scenario("an_iterable_that_ends_at_once_is_answered_to_its_last_prompt", async (world) => {
  world.script(say("One."), say("Two."));
  async function* both() { yield prompt("First"); yield prompt("Second"); }
  const shown = await world.query(both());
  assert.equal(shown.error, null);
  assert.equal(shown.results.at(-1).result, "Two.");
});

scenario("interrupt_while_streaming_ends_the_turn_and_not_the_session", async (world) => {
  let begun;
  const started = new Promise((done) => { begun = done; });
  world.script({ ...say("A long answer that never comes to its end."), gate: new Promise(() => {}), begun }, say("Short."));
  const prompts = new Prompts();
  prompts.send("Talk.");
  const query = sdk.query({ prompt: prompts, options: world.options() });
  const shown = new Shown();
  const reading = (async () => {
    for await (const message of query) {
      shown.messages.push(message);
      if (message.type !== "result") continue;
      if (shown.results.length === 1) prompts.send("Be short.");
      else prompts.end();
    }
  })();
  await started;
  await query.interrupt();
  await reading;
  assert.equal(shown.results[0].subtype, "error_during_execution");
  assert.equal(shown.results[1].result, "Short.");
});

scenario("set_model_and_set_permission_mode_hold_from_the_next_turn", async (world) => {
  world.script(say("One."), write(world), say("Two."));
  const change = async (query, prompts) => {
    await query.setModel("claude-opus-5");
    await query.setPermissionMode("acceptEdits");
    prompts.send("Write.");
  };
  const shown = await conversation(world, "Hi", [change]);
  assert.deepEqual(world.requests.map((request) => request.model), [MODEL, "claude-opus-5", "claude-opus-5"]);
  assert.equal(shown.of("system", "init")[1].permissionMode, "acceptEdits");
  assert.equal(world.read("a.txt"), "written");
});

scenario("information_of_the_session_is_answered", async (world) => {
  world.write(".claude/commands/greet.md", "---\ndescription: Greets\n---\nSay hello.");
  world.script(say("Hello."));
  const seen = {};
  const ask = async (query, prompts) => {
    seen.commands = await query.supportedCommands();
    seen.models = await query.supportedModels();
    seen.account = await query.accountInfo();
    seen.servers = await query.mcpServerStatus();
    prompts.end();
  };
  await conversation(world, "Hi", [ask], { settingSources: ["project"] });
  assert.ok(seen.commands.some((command) => command.name === "greet"), JSON.stringify(seen.commands));
  assert.ok(Array.isArray(seen.models) && typeof seen.account === "object");
  assert.deepEqual(seen.servers, []);
});

scenario("canUseTool_allows_with_changed_input_and_denies", async (world) => {
  world.script(write(world, "a.txt"), write(world, "b.txt"), say("Done."));
  const asked = [];
  const canUseTool = async (name, input, { signal, toolUseID }) => {
    asked.push([name, typeof toolUseID, signal.aborted]);
    return input.file_path.endsWith("a.txt")
      ? { behavior: "allow", updatedInput: { ...input, content: "changed" } }
      : { behavior: "deny", message: "Not on a Friday." };
  };
  const shown = await world.query("Write both.", { canUseTool });
  assert.deepEqual(asked, [["Write", "string", false], ["Write", "string", false]]);
  assert.equal(world.read("a.txt"), "changed");
  assert.ok(!world.exists("b.txt"));
  assert.match(lastResult(world.requests[2]), /Not on a Friday\./);
  assert.deepEqual(shown.good().permission_denials.map((denial) => denial.tool_name), ["Write"]);
});

scenario("canUseTool_denies_and_interrupts", async (world) => {
  world.script(write(world));
  const canUseTool = async () => ({ behavior: "deny", message: "Stop.", interrupt: true });
  const shown = await world.query("Write.", { canUseTool });
  assert.equal(shown.result.subtype, "error_during_execution");
  assert.equal(world.requests.length, 1);
});

scenario("hooks_deny_change_and_add_context", async (world) => {
  world.script(call("Bash", { command: "echo one" }), write(world), say("Done."));
  const events = [];
  const note = async (input) => { events.push(input.hook_event_name); return {}; };
  const deny = async (input) => ({
    hookSpecificOutput: { hookEventName: "PreToolUse", permissionDecision: "deny", permissionDecisionReason: `No ${input.tool_name}.` },
  });
  const context = async () => ({ hookSpecificOutput: { hookEventName: "PostToolUse", additionalContext: "It is Sunday." } });
  const hooks = {
    UserPromptSubmit: [{ hooks: [note] }], PreToolUse: [{ matcher: "Write", hooks: [deny] }],
    PostToolUse: [{ hooks: [note, context] }], Stop: [{ hooks: [note] }],
  };
  (await world.query("Work.", { hooks, permissionMode: "acceptEdits" })).good();
  assert.deepEqual(events, ["UserPromptSubmit", "PostToolUse", "Stop"]);
  assert.match(JSON.stringify(world.requests[1].messages), /It is Sunday\./);
  assert.match(lastResult(world.requests[2]), /No Write\./);
  assert.ok(!world.exists("a.txt"));
});

scenario("tools_of_the_host_are_called", async (world) => {
  const calls = [];
  const add = sdk.tool("add", "Adds", { a: z.number(), b: z.number() }, async ({ a, b }) => {
    calls.push([a, b]);
    return { content: [{ type: "text", text: `Sum: ${a + b}` }] };
  });
  const refuse = sdk.tool("refuse", "Fails", {}, async () => ({ content: [{ type: "text", text: "never" }], isError: true }));
  const calc = sdk.createSdkMcpServer({ name: "calc", version: "1.0.0", tools: [add, refuse] });
  world.script({ blocks: [tool("mcp__calc__add", { a: 2, b: 3 }), tool("mcp__calc__refuse", {})] }, say("Five."));
  const shown = await world.query("Add.", { mcpServers: { calc }, allowedTools: ["mcp__calc__add", "mcp__calc__refuse"] });
  shown.good();
  assert.deepEqual(calls, [[2, 3]]);
  assert.match(lastResult(world.requests[1]), /Sum: 5/);
  assert.deepEqual(shown.toolResults().map((result) => result.is_error ?? false), [false, true]);
  assert.deepEqual(shown.init.mcp_servers.map((server) => [server.name, server.status]), [["calc", "connected"]]);
});

scenario("onElicitation_answers_questions_of_servers_and_without_it_they_are_declined", async (world) => {
  const quiz = { command: "python3", args: ["-S", path.resolve("tests/mcp/server.py")] };
  const options = { mcpServers: { quiz }, allowedTools: ["mcp__quiz"] };
  const asks = { blocks: [tool("mcp__quiz__ask", { text: "elicitation/create" })] };
  world.script(asks, say("Done."), asks, say("Done."));
  const asked = [];
  const onElicitation = async (request, { signal, requestId }) => {
    asked.push([request, signal.aborted, typeof requestId]);
    return { action: "accept", content: { name: "Ada" } };
  };
  (await world.query("Ask.", { ...options, onElicitation })).good();
  assert.match(lastResult(world.requests[1]), /Ada/);
  const [[request, ...rest]] = asked;
  assert.deepEqual(rest, [false, "string"]);
  assert.deepEqual([request.serverName, request.message, request.mode], ["quiz", "Sure?", "form"]);
  assert.deepEqual([request.title, request.displayName, request.description], ["A question", "Tester", "Of the test"]);
  assert.ok(request.requestedSchema.properties.name);
  (await world.query("Ask.", options)).good();
  assert.match(lastResult(world.requests[3]), /decline/);
});

scenario("system_prompts_are_a_text_a_preset_and_an_appended_text", async (world) => {
  world.script(say("1"), say("2"), say("3"), say("4"));
  const preset = { type: "preset", preset: "claude_code" };
  for (const systemPrompt of [undefined, "You are a pirate.", preset, { ...preset, append: "Be a pirate." }]) {
    (await world.query("Hi", { systemPrompt })).good();
  }
  const [none, text, whole, appended] = world.requests.map(systemOf);
  assert.match(text, /You are a pirate\./);
  assert.match(appended, /Be a pirate\./);
  assert.ok(none.length < whole.length && whole.length < appended.length);
});

scenario("a_structured_answer_is_validated_and_returned", async (world) => {
  const schema = { type: "object", properties: { age: { type: "integer" } }, required: ["age"] };
  world.script(call("StructuredOutput", { age: "many" }), call("StructuredOutput", { age: 36 }));
  const shown = await world.query("How old?", { outputFormat: { type: "json_schema", schema } });
  assert.deepEqual(shown.good().structured_output, { age: 36 });
});

scenario("partial_messages_are_the_events_of_the_service", async (world) => {
  const words = "A sentence that is long enough to be sent in several pieces.";
  world.script(say(words));
  const shown = await world.query("Talk.", { includePartialMessages: true });
  shown.good();
  const deltas = shown.of("stream_event").map((m) => m.event).filter((e) => e.type === "content_block_delta");
  assert.ok(deltas.length >= 2);
  assert.equal(deltas.map((event) => event.delta.text).join(""), words);
});

scenario("max_turns_is_an_error_result", async (world) => {
  world.script(call("Bash", { command: "ls" }));
  const shown = await world.query("Work.", { maxTurns: 1 });
  assert.equal(shown.result.subtype, "error_max_turns");
  assert.ok(shown.result.is_error && shown.result.errors.length > 0);
  assert.ok(shown.result.num_turns <= 1, "the GitHub action compares it with the limit");
});

scenario("a_bad_request_is_a_result_in_the_words_of_the_sdk", async (world) => {
  world.script(fail(400, "invalid_request_error", "the temperature is odd"));
  const shown = await world.query("Hi");
  assert.equal(shown.result.is_error, true);
  assert.equal(shown.result.api_error_status, 400);
  assert.match(shown.result.result, /the temperature is odd/);
});

scenario("agents_of_the_host_run_with_their_tools_and_model", async (world) => {
  const inner = (request) => systemOf(request).includes("You review code.");
  const outer = (request) => !inner(request);
  const start = { description: "Review", prompt: "Review it.", subagent_type: "reviewer", run_in_background: false };
  world.script(call("Agent", start, { when: outer }), say("Fine.", { when: inner }), say("Reviewed.", { when: outer }));
  const reviewer = { description: "Reviews", prompt: "You review code.", tools: ["Read"], model: "claude-haiku-4-5" };
  const shown = await world.query("Review.", { agents: { reviewer } });
  assert.equal(shown.good().result, "Reviewed.");
  const request = world.requests.find(inner);
  assert.equal(request.model, "claude-haiku-4-5");
  assert.deepEqual(request.tools.map((entry) => entry.name), ["Read"]);
});

scenario("resume_and_fork_continue_a_session", async (world) => {
  world.script(say("Noted."), say("Blue."), say("Forked."));
  const session = (await world.query("My colour is blue.")).good().session_id;
  const resumed = (await world.query("Which?", { resume: session })).good();
  const forked = (await world.query("Fork.", { resume: session, forkSession: true })).good();
  assert.equal(resumed.session_id, session);
  assert.notEqual(forked.session_id, session);
  assert.match(textOf(world.requests[2]), /My colour is blue\./);
});

scenario("an_unknown_session_is_an_error_and_not_a_new_session", async (world) => {
  const unknown = randomUUID();
  const shown = await world.query("Go on.", { resume: unknown });
  assert.ok(shown.error ?? shown.results[0]?.is_error, "an error is shown");
  assert.equal(world.requests.length, 0);
});

scenario("sessions_are_listed_and_their_messages_read", async (world) => {
  world.script(say("Noted."));
  const session = (await world.query("My colour is blue.")).good().session_id;
  const before = process.env.CLAUDE_CONFIG_DIR;
  process.env.CLAUDE_CONFIG_DIR = world.config;
  // The folder is read before the first wait, so that scenarios at the same time do not disturb.
  const [listing, reading] = [sdk.listSessions({ dir: world.work }), sdk.getSessionMessages(session, { dir: world.work })];
  if (before === undefined) delete process.env.CLAUDE_CONFIG_DIR;
  else process.env.CLAUDE_CONFIG_DIR = before;
  const [listed, messages] = await Promise.all([listing, reading]);
  assert.deepEqual(listed.map((info) => info.sessionId), [session]);
  assert.deepEqual(messages.map((message) => message.type), ["user", "assistant"]);
});

scenario("abort_ends_the_process_and_its_command", async (world) => {
  world.script(call("Bash", { command: "touch begun; exec sleep 600" }));
  const abortController = new AbortController();
  const running = world.query("Sleep.", { abortController, allowedTools: ["Bash"] });
  assert.ok(await until(() => world.exists("begun")));
  abortController.abort();
  const shown = await running;
  assert.ok(shown.error, "the query raises");
  assert.ok(await until(() => world.running().length === 0, 8_000), "outlast still runs");
});

scenario("close_while_idle_ends_the_process", async (world) => {
  world.script(say("Hello."));
  const prompts = new Prompts();
  prompts.send("Hi");
  for await (const message of sdk.query({ prompt: prompts, options: world.options() })) {
    if (message.type === "result") break;
  }
  assert.ok(await until(() => world.running().length === 0, 5_000), "outlast still runs");
});

scenario("a_clean_run_prints_nothing_on_standard_error", async (world) => {
  let lines = "";
  world.script(call("Bash", { command: "ls" }), say("Done."));
  (await world.query("Work.", { stderr: (data) => { lines += data; } })).good();
  assert.equal(lines, "");
});

scenario("allowed_and_disallowed_tools_are_lists", async (world) => {
  world.script(call("Bash", { command: "touch a.txt" }), write(world, "b.txt"), say("Done."));
  const lists = { allowedTools: ["Bash(touch *)", "Read"], disallowedTools: ["WebFetch", "WebSearch"] };
  const shown = await world.query("Work.", lists);
  assert.deepEqual(shown.good().permission_denials.map((denial) => denial.tool_name), ["Write"]);
  assert.ok(world.exists("a.txt") && !world.exists("b.txt"));
  assert.ok(!world.requests[0].tools.some((entry) => entry.name.startsWith("Web")));
});
