"""Failures of the service, limits, and ends."""

import asyncio
import os

from claude_agent_sdk import ClaudeSDKClient, ClaudeSDKError, ResultError, query

from harness import collect, of, raises, result, scenario, status, text, tool_results, tools

ECHO = ("Bash", {"command": "echo on"})


async def failing(world, steps, **options):
    """The messages of a query that ends with an exception."""
    model = await world.model(*steps)
    found = []
    async with raises(Exception):
        async for message in query(prompt="go", options=world.options(model, **options)):
            found.append(message)
    return found


@scenario
async def a_rejected_request_is_an_error_result_with_the_status(world):
    end = result(await failing(world, [status(400)]))
    assert (end.subtype, end.is_error) == ("success", True)
    assert end.result.startswith("API Error: ") and end.api_error_status == 400


@scenario
async def a_wrong_key_is_an_error_at_once(world):
    messages = await failing(world, [status(401, repeat=9)])
    end = result(messages)
    assert end.is_error and end.api_error_status == 401
    [told] = of("AssistantMessage", messages)
    assert (told.error, told.model) == ("authentication_failed", "<synthetic>")
    assert told.content[0].text == end.result


@scenario
async def the_exception_holds_the_text_of_the_result(world):
    model = await world.model(status(400))
    async with raises(ResultError) as raised:
        async for message in query(prompt="go", options=world.options(model)):
            last = message
    assert last.result in str(raised.error) and raised.error.terminal_reason == "api_error"


@scenario
async def an_overload_is_retried_and_told(world):
    messages = await world.ask([status(529), text("After all.")])
    assert result(messages).result == "After all."
    retries = [message for message in of("SystemMessage", messages) if message.subtype == "api_retry"]
    assert retries and retries[0].data["error_status"] == 529


@scenario
async def a_dropped_stream_is_asked_for_again(world):
    steps = [text("half of the reply", fault={"kind": "reset", "after": {"events": 3}}), text("Whole.")]
    messages = await world.ask(steps)
    assert result(messages).result == "Whole."


@scenario
async def the_turn_limit_ends_a_run(world):
    found = await failing(world, [tools(ECHO), tools(ECHO)], max_turns=1, permission_mode="bypassPermissions")
    end = result(found)
    assert end.subtype == "error_max_turns" and end.num_turns == 1


@scenario
async def the_budget_ends_a_run(world):
    usage = {"input_tokens": 1_000_000, "output_tokens": 10}
    found = await failing(world, [tools(ECHO, usage=usage), text("never")], max_budget_usd=0.01,
                          permission_mode="bypassPermissions")
    assert result(found).subtype == "error_max_budget_usd"


@scenario
async def the_fallback_model_takes_over(world):
    messages = await world.ask([status(529), status(529), status(529), text("Fallback.")],
                               model="claude-opus-5", fallback_model="claude-sonnet-5-5")
    assert result(messages).result == "Fallback."
    models = [request["model"] for request in await world.models[0].requests()]
    assert models == ["claude-opus-5"] * 3 + ["claude-sonnet-5-5"], models


@scenario
async def an_unknown_session_is_an_error_that_names_it(world):
    name = "00000000-0000-4000-8000-000000000000"
    model = await world.model(text("never"))
    async with raises(ResultError, name, "not found"):
        await collect(query(prompt="go", options=world.options(model, resume=name)))
    async with raises(ClaudeSDKError, name):
        async with ClaudeSDKClient(world.options(model, resume=name)):
            pass


@scenario
async def a_clean_run_writes_nothing_to_standard_error(world):
    lines = []
    await world.ask([text("Quiet.")], stderr=lines.append)
    assert lines == []


@scenario
async def details_are_on_standard_error_where_asked_for(world):
    lines = []
    await world.ask([text("Told.")], stderr=lines.append, extra_args={"debug-to-stderr": None})
    assert any("sonnet" in line for line in lines), lines


@scenario
async def long_output_of_a_tool_stays_below_the_limit_of_a_line(world):
    command = {"command": "head -c 2000000 /dev/zero | tr '\\0' x"}
    messages = await world.ask([tools(("Bash", command)), text("Long.")], permission_mode="bypassPermissions")
    assert result(messages).result == "Long."
    assert len(str(tool_results(messages)[0].content)) < 1_000_000


@scenario
async def several_tools_of_one_reply_are_all_answered(world):
    for name in "abc":
        (world.work / f"{name}.txt").write_text(f"file {name}")
    calls = [("Read", {"file_path": f"{name}.txt"}) for name in "abc"]
    messages = await world.ask([tools(*calls), text("Read.")])
    said = [str(block.content) for block in tool_results(messages)]
    assert len(said) == 3 and all(f"file {name}" in "".join(said) for name in "abc"), said
    requests = await world.models[0].requests()
    last = requests[1]["messages"][-1]
    assert [block["type"] for block in last["content"]][:3] == ["tool_result"] * 3


@scenario
async def disconnecting_in_a_turn_leaves_no_process(world):
    mark = world.work / "pid"
    command = {"command": f"echo $$ > {mark}; exec sleep 3600"}
    model = await world.model(tools(("Bash", command)))
    client = ClaudeSDKClient(world.options(model, permission_mode="bypassPermissions"))
    await client.connect()
    await client.query("sleep")
    while not (mark.exists() and mark.read_text().strip()):
        await asyncio.sleep(0.05)
    await client.disconnect()
    process = int(mark.read_text())
    assert not os.path.exists(f"/proc/{process}"), "the command is still running"
