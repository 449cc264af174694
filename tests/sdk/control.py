"""Control requests that a client sends while its session goes on."""

import os

from claude_agent_sdk import ClaudeSDKClient, HookMatcher, create_sdk_mcp_server

from extensions import add
from harness import collect, of, raises, scenario, text, tool_results, tools

# Writes its id to a file once it runs, and never ends.
ENDLESS = "echo $$ > pid; exec sleep 3600"


async def next_of(kind, messages):
    """The next message of a class."""
    async for message in messages:
        if type(message).__name__ == kind:
            return message
    raise AssertionError(f"there is no {kind}")


@scenario
async def a_background_command_is_stopped_by_its_task_id(world):
    endless = ("Bash", {"command": ENDLESS, "run_in_background": True})
    waits = ("Bash", {"command": "until test -s pid; do sleep 0.05; done"})
    model = await world.model(tools(endless), tools(waits), text("slow " * 100, chunk=900, pause="1h"))
    async with ClaudeSDKClient(world.options(model, permission_mode="bypassPermissions")) as client:
        await client.query("go")
        messages = client.receive_messages()
        started = await next_of("TaskStartedMessage", messages)
        # The results of both calls: the command runs.
        for _ in range(2):
            await next_of("UserMessage", messages)
        pid = int((world.work / "pid").read_text())
        async with raises(Exception, "bash_99"):
            await client.stop_task("bash_99")
        await client.stop_task(started.task_id)
        ended = await next_of("TaskNotificationMessage", messages)
        assert (ended.task_id, ended.status) == (started.task_id, "stopped")
        assert not os.path.exists(f"/proc/{pid}"), "the command still runs"
        async with raises(Exception, started.task_id):
            await client.stop_task(started.task_id)
        await client.interrupt()
        await next_of("ResultMessage", messages)


@scenario
async def a_background_agent_is_stopped_by_its_task_id(world):
    slow = text("slow " * 100, chunk=900, pause="1h")
    asked = {"description": "look", "prompt": "look around", "subagent_type": "general-purpose"}
    model = await world.model(tools(("Agent", {**asked, "run_in_background": True})), slow, slow)
    async with ClaudeSDKClient(world.options(model)) as client:
        await client.query("go")
        messages = client.receive_messages()
        started = await next_of("TaskStartedMessage", messages)
        await client.stop_task(started.task_id)
        ended = await next_of("TaskNotificationMessage", messages)
        assert (ended.task_id, ended.status) == (started.task_id, "stopped")
        await client.interrupt()
        await next_of("ResultMessage", messages)


@scenario
async def a_turn_that_a_background_agent_wakes_has_two_results(world):
    asked = {"description": "look", "prompt": "look around", "subagent_type": "general-purpose"}
    seen = []

    async def hook(given, _id, _context):
        seen.append(given["tool_name"])
        return {}

    write = ("Write", {"file_path": str(world.work / "out.txt"), "content": "an owl"})
    main = {"when": {"source": "main"}}
    messages = await world.ask(
        [
            tools(("Agent", {**asked, "run_in_background": True}), **main),
            text("an owl", when={"source": "agent:*"}),
            text("started", **main),
            tools(write, **main),
            text("written", **main),
        ],
        hooks={"PreToolUse": [HookMatcher(matcher="Write", hooks=[hook])]},
        permission_mode="acceptEdits",
    )
    first, last = of("ResultMessage", messages)
    assert (first.result, first.is_error) == ("started", False)
    assert (last.result, last.is_error) == ("written", False)
    assert first.num_turns < last.num_turns and first.total_cost_usd < last.total_cost_usd
    kinds = [getattr(message, "subtype", "") for message in messages]
    assert kinds.count("init") == 2, "each part begins with an init message"
    assert messages.index(first) < len(kinds) - 1 - kinds[::-1].index("init")
    # The host was asked about the call that came after the first result.
    assert seen == ["Write"]
    assert (world.work / "out.txt").read_text() == "an owl"


def tokens_of(usage, name):
    [tokens] = [part["tokens"] for part in usage["categories"] if part["name"] == name]
    return tokens


@scenario
async def the_context_is_measured_before_between_and_during_turns(world):
    (world.work / "CLAUDE.md").write_text("Be kind to herons. " * 20)
    server = create_sdk_mcp_server(name="calc", tools=[add])
    slow = text("slow " * 100, chunk=900, pause="1h")
    used = {"input_tokens": 5000, "output_tokens": 600}
    model = await world.model(text("word " * 500, usage=used), slow)
    options = world.options(model, mcp_servers={"calc": server}, include_partial_messages=True)
    async with ClaudeSDKClient(options) as client:
        before = await client.get_context_usage()
        await client.query("many words")
        await collect(client.receive_response())
        between = await client.get_context_usage()
        await client.query("more of them: " + "heron " * 2000)
        await next_of("StreamEvent", client.receive_messages())
        during = await client.get_context_usage()
        await client.interrupt()
        await collect(client.receive_response())
    for usage in [before, between, during]:
        assert usage["rawMaxTokens"] >= usage["maxTokens"] > usage["totalTokens"] > 0
        assert usage["autoCompactThreshold"] == usage["maxTokens"] and usage["isAutoCompactEnabled"]
        assert usage["totalTokens"] == sum(
            part["tokens"] for part in usage["categories"] if part["name"] != "Free space")
        [file] = usage["memoryFiles"]
        assert file["path"].endswith("CLAUDE.md") and file["type"] == "Project" and file["tokens"] > 50
        [found] = usage["mcpTools"]
        assert (found["name"], found["serverName"]) == ("mcp__calc__add", "calc")
        assert "general-purpose" in [kind["agentType"] for kind in usage["agents"]]
        assert usage["gridRows"] == [] and usage["model"]
    sizes = [tokens_of(usage, "Messages") for usage in [before, between, during]]
    assert sizes[0] == 0 < sizes[1] and sizes[1] + 1500 < sizes[2], sizes
    assert before["apiUsage"] is None and between["apiUsage"]["output_tokens"] == 600
    assert during["apiUsage"] == between["apiUsage"]


@scenario
async def a_server_of_the_host_is_disabled_and_connected_again(world):
    server = create_sdk_mcp_server(name="calc", tools=[add])
    call = tools(("mcp__calc__add", {"a": 2, "b": 3}))
    model = await world.model(text("no tool"), call, text("5"))
    options = world.options(
        model, mcp_servers={"calc": server}, allowed_tools=["mcp__calc__add"])
    async with ClaudeSDKClient(options) as client:
        async def status():
            [found] = (await client.get_mcp_status())["mcpServers"]
            return found["status"]

        assert await status() == "connected"
        await client.toggle_mcp_server("calc", False)
        assert await status() == "disabled"
        async with raises(Exception, "disabled"):
            await client.reconnect_mcp_server("calc")
        await client.query("go")
        await collect(client.receive_response())
        await client.toggle_mcp_server("calc", True)
        await client.reconnect_mcp_server("calc")
        assert await status() == "connected"
        await client.query("add")
        assert "sum 5" in str(tool_results(await collect(client.receive_response()))[0].content)
    requests = await model.requests()
    offered = ["mcp__calc__add" in str(request["tools"]) for request in requests]
    assert offered == [False, True, True], offered


@scenario
async def files_are_rewound_to_a_message(world):
    made = world.work / "made.txt"
    write = ("Write", {"file_path": str(made), "content": "made"})
    model = await world.model(tools(write), text("done"))
    options = world.options(
        model, permission_mode="acceptEdits", enable_file_checkpointing=True,
        extra_args={"replay-user-messages": None})
    async with ClaudeSDKClient(options) as client:
        await client.query("write")
        messages = await collect(client.receive_response())
        prompt = next(item for item in messages if type(item).__name__ == "UserMessage" and item.uuid)
        assert made.read_text() == "made"
        await client.rewind_files(prompt.uuid)
        assert not made.exists()
