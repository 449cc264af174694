"""Control requests that a client sends while its session goes on."""

import os

from claude_agent_sdk import ClaudeSDKClient

from harness import of, raises, result, scenario, text, tools

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
