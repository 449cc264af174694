"""Rules, modes and questions about permissions."""

from claude_agent_sdk import (
    ClaudeSDKClient,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    PermissionUpdate,
)

from claude_agent_sdk.types import PermissionRuleValue

from harness import collect, result, scenario, text, tool_results, tools

WRITE = ("Write", {"file_path": "made.txt", "content": "x"})


async def go(world, model, **options):
    """The messages of one turn of a client: questions need an open connection."""
    async with ClaudeSDKClient(world.options(model, **options)) as client:
        await client.query("go")
        return await collect(client.receive_response())


@scenario
async def without_a_rule_a_call_is_denied(world):
    messages = await world.ask([tools(WRITE), text("Denied.")])
    assert result(messages).permission_denials[0]["tool_name"] == "Write"
    assert not (world.work / "made.txt").exists()


@scenario
async def without_permission_prompts_the_host_is_not_asked(world):
    asked = []

    async def allow(name, _given, _context):
        asked.append(name)
        return PermissionResultAllow()

    model = await world.model(tools(WRITE), text("Denied."))
    none = {"permission-prompts": "none"}
    messages = await go(world, model, can_use_tool=allow, extra_args=none)
    assert asked == [] and len(result(messages).permission_denials) == 1
    assert not result(messages).is_error


@scenario
async def a_permission_request_hook_decides_before_the_host_is_asked(world):
    for behavior in ["allow", "deny", None]:
        asked, seen = [], []

        async def decide(given, _id, _context):
            seen.append(given["tool_name"])
            if behavior is None:
                return {}
            decision = {"behavior": behavior, "message": "By a hook."}
            return {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}

        async def allow(name, _given, _context):
            asked.append(name)
            return PermissionResultAllow()

        (world.work / "made.txt").unlink(missing_ok=True)
        model = await world.model(tools(WRITE), text("Done."))
        hooks = {"PermissionRequest": [HookMatcher(matcher="Write", hooks=[decide])]}
        messages = await go(world, model, can_use_tool=allow, hooks=hooks)
        assert seen == ["Write"] and asked == ([] if behavior else ["Write"]), (behavior, asked)
        assert (world.work / "made.txt").exists() == (behavior != "deny")
        assert ("By a hook." in str(tool_results(messages)[0].content)) == (behavior == "deny")


@scenario
async def a_permission_request_hook_that_fails_closed_denies(world):
    asked = []

    async def fails(_given, _id, _context):
        raise ValueError("out of order")

    async def allow(name, _given, _context):
        asked.append(name)
        return PermissionResultAllow()

    for failure in ["block", "continue"]:
        (world.work / "made.txt").unlink(missing_ok=True)
        asked.clear()
        model = await world.model(tools(WRITE), text("Done."))
        hooks = {"PermissionRequest": [HookMatcher(hooks=[fails], on_failure=failure)]}
        await go(world, model, can_use_tool=allow, hooks=hooks)
        assert (world.work / "made.txt").exists() == (failure == "continue") == bool(asked), failure


@scenario
async def an_allowed_tool_runs(world):
    await world.ask([tools(WRITE), text("Done.")], allowed_tools=["Write"])
    assert (world.work / "made.txt").read_text() == "x"


@scenario
async def a_disallowed_tool_does_not_exist_for_the_model(world):
    await world.ask([text("Fine.")], disallowed_tools=["Bash"])
    [request] = await world.models[0].requests()
    assert "Bash" not in [tool["name"] for tool in request["tools"]]


@scenario
async def the_tools_option_is_the_whole_list(world):
    messages = await world.ask([text("Fine.")], tools=["Read", "Glob"])
    [request] = await world.models[0].requests()
    assert sorted(tool["name"] for tool in request["tools"]) == ["Glob", "Read"]
    assert sorted(messages[0].data["tools"]) == ["Glob", "Read"]


@scenario
async def no_tools_are_no_tools(world):
    await world.ask([text("Fine.")], tools=[])
    [request] = await world.models[0].requests()
    assert not request.get("tools")


@scenario
async def each_mode_allows_what_it_says(world):
    for mode, is_allowed in [("acceptEdits", True), ("bypassPermissions", True), ("plan", False),
                             ("dontAsk", False), ("default", False)]:
        made = world.work / "made.txt"
        made.unlink(missing_ok=True)
        messages = await world.ask([tools(WRITE), text("Done.")], permission_mode=mode)
        assert made.exists() == is_allowed, mode
        assert messages[0].data["permissionMode"] == mode


@scenario
async def the_mode_changes_between_turns(world):
    model = await world.model(tools(WRITE), text("no"), tools(WRITE), text("yes"))
    async with ClaudeSDKClient(world.options(model)) as client:
        await client.query("one")
        assert result(await collect(client.receive_response())).permission_denials
        await client.set_permission_mode("acceptEdits")
        await client.query("two")
        assert not result(await collect(client.receive_response())).permission_denials
    assert (world.work / "made.txt").exists()


@scenario
async def a_callback_allows_a_call(world):
    seen = []

    async def ask(name, given, context):
        seen.append((name, given, context.tool_use_id))
        return PermissionResultAllow()

    model = await world.model(tools(WRITE), text("Done."))
    messages = await go(world, model, can_use_tool=ask)
    assert (world.work / "made.txt").read_text() == "x"
    [(name, given, call)] = seen
    assert name == "Write" and given["content"] == "x" and call
    assert result(messages).permission_denials == []


@scenario
async def a_callback_changes_the_input(world):
    async def ask(_name, given, _context):
        return PermissionResultAllow(updated_input={**given, "content": "other"})

    model = await world.model(tools(WRITE), text("Done."))
    await go(world, model, can_use_tool=ask)
    assert (world.work / "made.txt").read_text() == "other"


@scenario
async def a_callback_denies_with_a_reason(world):
    async def ask(_name, _given, _context):
        return PermissionResultDeny(message="not in the nesting season")

    model = await world.model(tools(WRITE), text("Denied."))
    messages = await go(world, model, can_use_tool=ask)
    [block] = tool_results(messages)
    assert block.is_error and "not in the nesting season" in str(block.content)
    assert result(messages).permission_denials[0]["tool_name"] == "Write"
    assert result(messages).result == "Denied."


@scenario
async def a_callback_ends_the_turn(world):
    async def ask(_name, _given, _context):
        return PermissionResultDeny(message="stop", interrupt=True)

    model = await world.model(tools(WRITE), text("never"))
    end = result(await go(world, model, can_use_tool=ask))
    assert end.is_error and end.subtype == "error_during_execution"


@scenario
async def a_callback_that_raises_denies_the_call(world):
    async def ask(_name, _given, _context):
        raise RuntimeError("the callback broke")

    model = await world.model(tools(WRITE), text("Denied."))
    messages = await go(world, model, can_use_tool=ask)
    assert tool_results(messages)[0].is_error
    assert not (world.work / "made.txt").exists()


@scenario
async def a_rule_that_a_callback_adds_holds_for_the_next_call(world):
    asked = []

    async def ask(name, _given, _context):
        asked.append(name)
        rule = PermissionRuleValue(tool_name="Write", rule_content=None)
        update = PermissionUpdate(type="addRules", rules=[rule], behavior="allow", destination="session")
        return PermissionResultAllow(updated_permissions=[update])

    second = ("Write", {"file_path": "other.txt", "content": "y"})
    model = await world.model(tools(WRITE), tools(second), text("Done."))
    await go(world, model, can_use_tool=ask)
    assert asked == ["Write"] and (world.work / "other.txt").exists()


@scenario
async def a_callback_is_not_asked_about_what_is_allowed_or_denied_by_a_rule(world):
    asked = []

    async def ask(name, given, _context):
        asked.append((name, given))
        return PermissionResultAllow()

    (world.work / "a.txt").write_text("a")
    calls = tools(("Read", {"file_path": "a.txt"}), ("Bash", {"command": "rm -r x"}), WRITE)
    model = await world.model(calls, text("Done."))
    await go(world, model, can_use_tool=ask, allowed_tools=["Write"], disallowed_tools=["Bash(rm *)"])
    assert asked == [], asked
