"""Hooks that run in the host, and MCP servers in the host and beside it."""

import asyncio
import json
import sys

from claude_agent_sdk import ClaudeSDKClient, HookMatcher, create_sdk_mcp_server, query, tool

from harness import blocks, collect, of, result, scenario, text, tool_results, tools

BASH = ("Bash", {"command": "echo ran > ran.txt"})


@tool("add", "Adds two numbers", {"a": float, "b": float})
async def add(given):
    return {"content": [{"type": "text", "text": f"sum {given['a'] + given['b']}"}]}


@tool("fail", "Always fails", {})
async def fail(_given):
    return {"content": [{"type": "text", "text": "out of order"}], "is_error": True}


@tool("picture", "Shows a picture", {})
async def picture(_given):
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    return {"content": [{"type": "image", "data": pixel, "mimeType": "image/png"}]}


def hook(output, seen=None):
    async def callback(given, tool_use_id, _context):
        if seen is not None:
            seen.append((given, tool_use_id))
        return output

    return callback


def before_tools(**fields):
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **fields}}


@scenario
async def a_tool_of_the_host_is_called(world):
    server = create_sdk_mcp_server(name="calc", version="1.2.3", tools=[add])
    steps = [tools(("mcp__calc__add", {"a": 2, "b": 3})), text("5")]
    messages = await world.ask(steps, mcp_servers={"calc": server}, allowed_tools=["mcp__calc__add"])
    assert "sum 5" in str(tool_results(messages)[0].content)
    assert {"name": "calc", "status": "connected"} in messages[0].data["mcp_servers"]
    assert "mcp__calc__add" in messages[0].data["tools"]


@scenario
async def tools_of_the_host_that_only_read_run_in_parallel(world):
    both = asyncio.Barrier(2)

    @tool("meet", "Waits for the other call", {}, annotations={"readOnlyHint": True})
    async def meet(_given):
        await both.wait()
        return {"content": [{"type": "text", "text": "met"}]}

    server = create_sdk_mcp_server(name="host", tools=[meet])
    calls = tools(("mcp__host__meet", {}), ("mcp__host__meet", {}))
    messages = await world.ask([calls, text("Done.")], mcp_servers={"host": server},
                               allowed_tools=["mcp__host__meet"])
    said = [(block.is_error, str(block.content)) for block in tool_results(messages)]
    assert len(said) == 2 and all(not failed and "met" in words for failed, words in said), said


@scenario
async def a_tool_of_the_host_needs_permission(world):
    server = create_sdk_mcp_server(name="calc", tools=[add])
    steps = [tools(("mcp__calc__add", {"a": 2, "b": 3})), text("Not allowed.")]
    messages = await world.ask(steps, mcp_servers={"calc": server})
    assert result(messages).permission_denials[0]["tool_name"] == "mcp__calc__add"
    assert tool_results(messages)[0].is_error


@scenario
async def two_servers_of_the_host_work_side_by_side(world):
    servers = {name: create_sdk_mcp_server(name=name, tools=[add]) for name in ["one", "two"]}
    calls = [(f"mcp__{name}__add", {"a": 1, "b": at}) for at, name in enumerate(servers)]
    messages = await world.ask(
        [tools(*calls), text("Both.")], mcp_servers=servers,
        allowed_tools=["mcp__one__add", "mcp__two__add"],
    )
    said = [str(block.content) for block in tool_results(messages)]
    assert "sum 1" in said[0] and "sum 2" in said[1], said


@scenario
async def an_error_of_a_tool_of_the_host_is_an_error_for_the_model(world):
    server = create_sdk_mcp_server(name="shed", tools=[fail])
    messages = await world.ask(
        [tools(("mcp__shed__fail", {})), text("It failed.")],
        mcp_servers={"shed": server}, allowed_tools=["mcp__shed__fail"],
    )
    [block] = tool_results(messages)
    assert block.is_error and "out of order" in str(block.content)


@scenario
async def an_image_of_a_tool_of_the_host_reaches_the_model(world):
    server = create_sdk_mcp_server(name="shed", tools=[picture])
    await world.ask(
        [tools(("mcp__shed__picture", {})), text("A pixel.")],
        mcp_servers={"shed": server}, allowed_tools=["mcp__shed__picture"],
    )
    requests = await world.models[0].requests()
    assert '"type": "image"' in json.dumps(requests[1]["messages"])


@scenario
async def the_status_of_servers_has_their_own_names(world):
    server = create_sdk_mcp_server(name="calc", version="1.2.3", tools=[add])
    model = await world.model(text("unused"))
    async with ClaudeSDKClient(world.options(model, mcp_servers={"calc": server})) as client:
        status = await client.get_mcp_status()
    [calc] = status["mcpServers"]
    assert (calc["name"], calc["status"]) == ("calc", "connected"), calc
    assert calc["serverInfo"] == {"name": "calc", "version": "1.2.3"}, calc
    assert [tool["name"] for tool in calc["tools"]] == ["add"]


@scenario
async def a_server_that_is_a_program_lives_through_all_turns(world):
    program = world.folder / "server.py"
    program.write_text(
        "from mcp.server.mcpserver import MCPServer\n"
        "server = MCPServer('counter')\n"
        "count = 0\n\n"
        "@server.tool()\n"
        "def next_number() -> str:\n"
        '    """The next number"""\n'
        "    global count\n"
        "    count += 1\n"
        '    return f"number {count}"\n\n'
        "server.run()\n"
    )
    call = tools(("mcp__counter__next_number", {}))
    model = await world.model(call, text("1"), call, text("2"))
    server = {"type": "stdio", "command": sys.executable, "args": [str(program)]}
    options = world.options(
        model, mcp_servers={"counter": server}, allowed_tools=["mcp__counter__next_number"],
    )
    said = []
    async with ClaudeSDKClient(options) as client:
        for prompt in ["one", "two"]:
            await client.query(prompt)
            said += [str(block.content) for block in tool_results(await collect(client.receive_response()))]
    assert "number 1" in said[0] and "number 2" in said[1], said


@scenario
async def a_hook_denies_a_tool_call(world):
    deny = before_tools(permissionDecision="deny", permissionDecisionReason="not on a Sunday")
    matcher = HookMatcher(matcher="Bash", hooks=[hook(deny)])
    messages = await world.ask([tools(BASH), text("Denied.")], hooks={"PreToolUse": [matcher]},
                               permission_mode="bypassPermissions")
    [block] = tool_results(messages)
    assert block.is_error and "not on a Sunday" in str(block.content)
    assert not (world.work / "ran.txt").exists()
    assert result(messages).permission_denials[0]["tool_name"] == "Bash"


@scenario
async def a_hook_allows_a_call_that_no_rule_allows(world):
    allow = before_tools(permissionDecision="allow", permissionDecisionReason="fine")
    messages = await world.ask([tools(BASH), text("Done.")],
                               hooks={"PreToolUse": [HookMatcher(hooks=[hook(allow)])]})
    assert not tool_results(messages)[0].is_error
    assert (world.work / "ran.txt").exists()


@scenario
async def a_hook_changes_the_input_of_a_call(world):
    change = before_tools(permissionDecision="allow", updatedInput={"command": "echo other"})
    messages = await world.ask([tools(BASH), text("Done.")],
                               hooks={"PreToolUse": [HookMatcher(matcher="Bash", hooks=[hook(change)])]})
    assert "other" in str(tool_results(messages)[0].content)
    assert not (world.work / "ran.txt").exists()


@scenario
async def a_hook_sees_the_call_and_its_result(world):
    before, after = [], []
    hooks = {"PreToolUse": [HookMatcher(matcher="Bash", hooks=[hook({}, before)])],
             "PostToolUse": [HookMatcher(matcher="Bash", hooks=[hook({}, after)])]}
    messages = await world.ask([tools(("Bash", {"command": "echo seen"})), text("Done.")], hooks=hooks,
                               permission_mode="bypassPermissions")
    [(given, call)], [(done, same)] = before, after
    assert (given["hook_event_name"], given["tool_name"]) == ("PreToolUse", "Bash")
    assert given["tool_input"]["command"] == "echo seen" and given["cwd"] == str(world.work)
    assert given["session_id"] == result(messages).session_id
    assert call == same == blocks("ToolUseBlock", messages)[0].id
    assert "seen" in json.dumps(done["tool_response"])


@scenario
async def a_matcher_chooses_the_tools_of_a_hook(world):
    seen = []
    (world.work / "a.txt").write_text("a")
    await world.ask(
        [tools(("Read", {"file_path": "a.txt"})), text("Read.")],
        hooks={"PreToolUse": [HookMatcher(matcher="Bash", hooks=[hook({}, seen)])]},
    )
    assert seen == []


@scenario
async def context_of_a_hook_reaches_the_model(world):
    context = {"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "The tide is out."}}
    await world.ask([tools(("Bash", {"command": "echo x"})), text("Done.")],
                    hooks={"PostToolUse": [HookMatcher(hooks=[hook(context)])]},
                    permission_mode="bypassPermissions")
    requests = await world.models[0].requests()
    assert "The tide is out." in json.dumps(requests[1]["messages"])


@scenario
async def a_prompt_hook_adds_context(world):
    context = {"hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": "Wind: north."}}
    await world.ask([text("Noted.")], hooks={"UserPromptSubmit": [HookMatcher(hooks=[hook(context)])]})
    [request] = await world.models[0].requests()
    assert "Wind: north." in json.dumps(request["messages"])


def decides(decision, seen):
    """A hook that decides so about Bash, and what it was asked."""
    answer = before_tools(permissionDecision=decision, permissionDecisionReason="Wait.")
    return {"PreToolUse": [HookMatcher(matcher="Bash", hooks=[hook(answer, seen)])]}


async def deferred(world):
    """The result of a turn whose call of Bash was deferred."""
    options = {"allowed_tools": ["Bash"], "hooks": decides("defer", [])}
    end = result(await world.ask([tools(BASH), text("never")], **options))
    assert (end.is_error, end.stop_reason) == (False, "tool_deferred")
    assert end.deferred_tool_use.name == "Bash" and not (world.work / "ran.txt").exists()
    return end


@scenario
async def a_deferred_call_is_decided_on_when_the_session_is_resumed(world):
    for decision, ran in [("deny", False), ("allow", True)]:
        first, seen = await deferred(world), []
        model = await world.model(text("Decided."))
        options = world.options(model, resume=first.session_id, hooks=decides(decision, seen))
        async with ClaudeSDKClient(options) as client:
            end = result(await collect(client.receive_response()))
        assert (end.is_error, end.result) == (False, "Decided.")
        assert [name for _, name in seen] == [first.deferred_tool_use.id], (decision, seen, first)
        assert (world.work / "ran.txt").exists() == ran, decision
        [request] = await model.requests()
        assert request["messages"][-1]["content"][0]["tool_use_id"] == first.deferred_tool_use.id


@scenario
async def a_deferred_call_is_denied_where_the_host_cannot_reply(world):
    first, seen = await deferred(world), []
    model = await world.model(text("Denied."))

    async def no_prompt():
        for nothing in []:
            yield nothing

    options = world.options(model, resume=first.session_id, hooks=decides("allow", seen))
    end = result(await collect(query(prompt=no_prompt(), options=options)))
    assert (end.is_error, end.result) == (False, "Denied.")
    # The callback hears of the call, but the SDK has closed its end.
    assert [name for _, name in seen] == [first.deferred_tool_use.id]
    assert not (world.work / "ran.txt").exists()


@scenario
async def a_client_goes_on_with_a_deferred_call_without_a_prompt(world):
    first, seen = await deferred(world), []
    model = await world.model(text("Decided."), text("And more."))
    options = world.options(model, resume=first.session_id, hooks=decides("deny", seen))
    async with ClaudeSDKClient(options) as client:
        assert result(await collect(client.receive_response())).result == "Decided."
        await client.query("more")
        assert result(await collect(client.receive_response())).result == "And more."
    assert len(seen) == 1


@scenario
async def a_prompt_comes_after_the_result_of_a_deferred_call(world):
    first, seen = await deferred(world), []
    options = {"resume": first.session_id, "hooks": decides("deny", seen)}
    end = result(await world.ask([text("Decided.")], "And now?", **options))
    assert end.result == "Decided." and len(seen) == 1
    [request] = await world.models[1].requests()
    kinds = [block["type"] for block in request["messages"][-1]["content"]]
    assert kinds == ["tool_result", "text"], kinds


@scenario
async def a_prompt_that_a_hook_blocks_ends_without_an_error(world):
    block = hook({"decision": "block", "reason": "Not on Sundays."})
    messages = await world.ask([text("never")], hooks={"UserPromptSubmit": [HookMatcher(hooks=[block])]})
    end = result(messages)
    assert (end.subtype, end.is_error, end.num_turns) == ("success", False, 0)
    assert "Not on Sundays." in end.result
    assert await world.models[0].requests() == []


@scenario
async def a_hook_that_stops_the_turn_ends_it_without_an_error(world):
    stop = hook({"continue": False, "stopReason": "Enough."})
    messages = await world.ask([tools(BASH)], permission_mode="bypassPermissions",
                               hooks={"PostToolUse": [HookMatcher(hooks=[stop])]})
    end = result(messages)
    assert (end.subtype, end.is_error, end.result) == ("success", False, "")
    assert len(await world.models[0].requests()) == 1


@scenario
async def a_stop_hook_makes_the_model_go_on(world):
    calls = []

    async def stop(_given, _id, _context):
        calls.append(1)
        return {"decision": "block", "reason": "Say more."} if len(calls) == 1 else {}

    messages = await world.ask([text("Short."), text("Longer.")], hooks={"Stop": [HookMatcher(hooks=[stop])]})
    assert result(messages).result == "Longer."
    requests = await world.models[0].requests()
    assert "Say more." in json.dumps(requests[1]["messages"])


@scenario
async def a_hook_that_raises_is_reported_and_ignored(world):
    async def broken(_given, _id, _context):
        raise RuntimeError("the hook broke")

    messages = await world.ask([tools(("Bash", {"command": "echo on"})), text("Done.")],
                               hooks={"PreToolUse": [HookMatcher(hooks=[broken])]},
                               permission_mode="bypassPermissions")
    assert result(messages).result == "Done."
    said = [message.data.get("content", "") for message in of("SystemMessage", messages)]
    assert any("the hook broke" in words for words in said), said


@scenario
async def several_hooks_of_one_call_run_and_a_denial_wins(world):
    seen = []
    deny = before_tools(permissionDecision="deny", permissionDecisionReason="no")
    allow = before_tools(permissionDecision="allow")
    hooks = [HookMatcher(hooks=[hook(allow, seen), hook(deny, seen)]), HookMatcher(hooks=[hook({}, seen)])]
    messages = await world.ask([tools(BASH), text("Denied.")], hooks={"PreToolUse": hooks},
                               permission_mode="bypassPermissions")
    assert len(seen) == 3 and tool_results(messages)[0].is_error
