"""Prompts, turns, sessions, models and the shape of answers."""

import asyncio
import json
import uuid

from claude_agent_sdk import (
    AgentDefinition,
    ClaudeSDKClient,
    InMemorySessionStore,
    ResultError,
    get_session_messages_from_store,
    list_sessions,
    query,
)

from claude_agent_sdk._internal.sessions import _read_session_file

from harness import (
    blocks, collect, config_of, of, one, raises, result, scenario, text, told_in, tool_results, tools,
)


@scenario
async def an_output_style_of_local_settings_is_in_force(world):
    styles = world.work / ".claude" / "output-styles"
    styles.mkdir(parents=True)
    (styles / "terse.md").write_text("---\ndescription: Short\n---\nAnswer in one word.\n")
    (world.work / ".claude" / "settings.local.json").write_text('{"outputStyle": "terse"}')
    messages = await world.ask([text("Four.")], setting_sources=["user", "project", "local"])
    assert messages[0].data["output_style"] == "terse"
    [request] = await world.models[0].requests()
    assert "Answer in one word." in json.dumps(request["system"])
    messages = await world.ask([text("Four.")], setting_sources=[])
    assert messages[0].data["output_style"] == "default"
    [request] = await world.models[1].requests()
    assert "Answer in one word." not in json.dumps(request)


async def turns(world, ids):
    """The id of a session whose prompts have these ids."""
    model = await world.model(text("Plover."), text("Lapwing."), text("Whimbrel."))

    async def prompt(words, name):
        message = {"role": "user", "content": words}
        yield {"type": "user", "message": message, "parent_tool_use_id": None, "uuid": name}

    async with ClaudeSDKClient(world.options(model)) as client:
        for name in ids:
            await client.query(prompt(f"Prompt {name}", name))
            end = result(await collect(client.receive_response()))
    return end.session_id


@scenario
async def a_session_goes_on_from_an_earlier_message(world):
    ids = [str(uuid.uuid4()), str(uuid.uuid4())]
    session = await turns(world, ids)
    told = told_in(world, session)
    assert [message.uuid for message in told][0::2] == ids, told
    kept = told[1].uuid
    end = result(await world.ask([text("Dotterel.")], "And then?", resume=session, resume_session_at=kept,
                                 resume_drops_turn=ids[1]))
    assert end.session_id == session
    [request] = await world.models[1].requests()
    sent = json.dumps(request["messages"])
    assert "Plover." in sent and "Lapwing." not in sent and ids[1] not in sent
    told = told_in(world, session)
    assert "Lapwing." not in str(told) and "Dotterel." in str(told)


def attached(world, session):
    """The files that the prompts of a session named, as the SDK reads them from disk."""
    with config_of(world):
        lines = _read_session_file(session, str(world.work)).splitlines()
    entries = [json.loads(line) for line in lines]
    return [entry["attachment"] for entry in entries if entry["type"] == "attachment"]


@scenario
async def a_file_that_the_prompt_names_is_attached(world):
    (world.work / "notes.txt").write_text("The word is plover.\n")
    options = {"prompt": "Which word? @notes.txt", "tools": []}
    told = result(await world.ask([text("Plover.")], **options))
    [file] = attached(world, told.session_id)
    assert file["type"] == "file" and "plover" in file["content"] and file["filename"] == "notes.txt"
    assert [message.type for message in told_in(world, told.session_id)] == ["user", "assistant"]
    again = result(await world.ask([text("Yes.")], "Sure?", resume=told.session_id))
    assert "The word is plover." in json.dumps((await world.models[1].requests())[0]["messages"])
    verbatim = result(await world.ask([text("Unknown.")], verbatim_prompts=True, **options))
    assert attached(world, verbatim.session_id) == [] and not again.is_error
    assert "The word is plover." not in json.dumps((await world.models[2].requests())[0]["messages"])


@scenario
async def a_prompt_may_name_a_file_outside_of_the_working_folders_that_no_rule_denies(world):
    outside = world.folder / "outside.txt"
    outside.write_text("The word is dunlin.\n")
    told = result(await world.ask([text("Dunlin.")], f"Which word? @{outside}", tools=[]))
    [file] = attached(world, told.session_id)
    assert "dunlin" in file["content"]
    denied = {"prompt": f"Which word? @{outside}", "disallowed_tools": [f"Read(/{outside})"]}
    told = result(await world.ask([text("Unknown.")], **denied))
    assert attached(world, told.session_id) == []


@scenario
async def clear_begins_a_new_conversation(world):
    model = await world.model(text("Noted."), text("No idea."))
    async with ClaudeSDKClient(world.options(model)) as client:
        ends = []
        for words in ["The word is plover.", "/clear", "Which word?"]:
            await client.query(words)
            ends.append(result(await collect(client.receive_response())))
    assert [end.is_error for end in ends] == [False] * 3 and ends[1].num_turns == 0
    assert ends[0].session_id != ends[2].session_id == ends[1].session_id
    requests = await model.requests()
    assert "plover" not in json.dumps(requests[1])


@scenario
async def a_session_store_keeps_the_session_and_goes_on_with_it(world):
    store = InMemorySessionStore()
    first = result(await world.ask([text("Noted.")], "The word is plover.", session_store=store))
    again = result(await world.ask([text("Plover.")], "Which?", session_store=store, resume=first.session_id))
    assert again.session_id == first.session_id
    [request] = await world.models[1].requests()
    assert "The word is plover." in json.dumps(request["messages"])
    with config_of(world):
        told = await get_session_messages_from_store(store, first.session_id, directory=str(world.work))
    assert [message.type for message in told] == ["user", "assistant"] * 2, told


@scenario
async def more_than_the_named_turn_is_not_dropped(world):
    ids = [str(uuid.uuid4()) for _ in range(3)]
    session = await turns(world, ids)
    model = await world.model(text("never"))
    first = told_in(world, session)[1].uuid
    for dropped in ids:
        options = world.options(model, resume=session, resume_session_at=first, resume_drops_turn=dropped)
        async with raises(ResultError, "Resume rejected by --resume-drops-turn:"):
            await collect(query(prompt="go", options=options))
    unknown = world.options(model, resume=session, resume_session_at=str(uuid.uuid4()))
    async with raises(ResultError, "has no message"):
        await collect(query(prompt="go", options=unknown))


@scenario
async def a_prompt_is_answered(world):
    messages = await world.ask([text("4")], "What is 2 + 2?")
    assert [block.text for block in blocks("TextBlock", messages)] == ["4"]
    end = result(messages)
    assert (end.subtype, end.is_error, end.result, end.num_turns) == ("success", False, "4", 1)
    assert end.total_cost_usd > 0 and end.duration_ms >= 0
    assert end.usage["output_tokens"] > 0
    [request] = await world.models[0].requests()
    assert "What is 2 + 2?" in json.dumps(request["messages"])


@scenario
async def the_first_message_is_init(world):
    messages = await world.ask([text("Hi.")])
    first = messages[0]
    assert type(first).__name__ == "SystemMessage" and first.subtype == "init"
    for field in ["tools", "mcp_servers", "model", "permissionMode", "slash_commands", "agents",
                  "output_style", "claude_code_version", "cwd", "apiKeySource", "skills", "plugins"]:
        assert field in first.data, field
    assert first.data["session_id"] == result(messages).session_id
    assert first.data["cwd"] == str(world.work)


@scenario
async def several_prompts_from_an_iterable_are_turns_of_one_session(world):
    async def prompts():
        for words in ["one", "two"]:
            yield {"type": "user", "message": {"role": "user", "content": words},
                   "parent_tool_use_id": None, "session_id": "default"}

    model = await world.model(text("1"), text("2"))
    messages = await collect(query(prompt=prompts(), options=world.options(model)))
    results = of("ResultMessage", messages)
    assert [end.result for end in results] == ["1", "2"]
    assert len({end.session_id for end in results}) == 1


@scenario
async def a_client_keeps_the_context_between_turns(world):
    model = await world.model(text("Noted."), text("A heron."))
    async with ClaudeSDKClient(world.options(model)) as client:
        await client.query("Remember the heron.")
        first = await collect(client.receive_response())
        await client.query("What was it?")
        second = await collect(client.receive_response())
    assert (result(first).result, result(second).result) == ("Noted.", "A heron.")
    assert result(second).total_cost_usd > result(first).total_cost_usd
    [used], [used_before] = (result(turn).model_usage.values() for turn in (second, first))
    assert used["inputTokens"] > used_before["inputTokens"] > 0
    requests = await model.requests()
    assert "Remember the heron." in json.dumps(requests[1]["messages"])


@scenario
async def a_query_during_a_turn_waits_for_its_turn(world):
    model = await world.model(tools(("Bash", {"command": "true"})), text("first"), text("second"))
    options = world.options(model, permission_mode="bypassPermissions")
    async with ClaudeSDKClient(options) as client:
        await client.query("one")
        await client.query("two")
        first = await collect(client.receive_response())
        second = await collect(client.receive_response())
    assert (result(first).result, result(second).result) == ("first", "second")


@scenario
async def an_interrupt_ends_a_slow_reply_and_the_next_turn_works(world):
    model = await world.model(text("slow " * 100, chunk=900, pause="1h"), text("Here."))
    options = world.options(model, include_partial_messages=True)
    async with ClaudeSDKClient(options) as client:
        await client.query("wait")
        async for message in client.receive_response():
            if type(message).__name__ == "StreamEvent":
                await client.interrupt()
            end = message
        assert end.is_error and end.subtype == "error_during_execution"
        assert end.terminal_reason == "aborted_streaming"
        await client.query("again")
        assert result(await collect(client.receive_response())).result == "Here."


@scenario
async def an_interrupt_ends_a_running_command(world):
    model = await world.model(tools(("Bash", {"command": "sleep 3600"})), text("Next."))
    options = world.options(model, permission_mode="bypassPermissions")
    async with ClaudeSDKClient(options) as client:
        await client.query("sleep")
        async for message in client.receive_response():
            if type(message).__name__ == "AssistantMessage":
                await client.interrupt()
            end = message
        assert end.is_error
        await client.query("go on")
        assert result(await collect(client.receive_response())).result == "Next."


@scenario
async def set_model_changes_the_next_turn(world):
    model = await world.model(text("1"), text("2"))
    options = world.options(model, model="claude-sonnet-5-5")
    async with ClaudeSDKClient(options) as client:
        await client.query("one")
        await collect(client.receive_response())
        await client.set_model("claude-opus-5")
        await client.query("two")
        await collect(client.receive_response())
    models = [request["model"] for request in await model.requests()]
    assert models == ["claude-sonnet-5-5", "claude-opus-5"], models


@scenario
async def a_system_prompt_replaces_the_own_one(world):
    await world.ask([text("Arr.")], system_prompt="You are a pirate.")
    [request] = await world.models[0].requests()
    assert "You are a pirate." in json.dumps(request["system"])


@scenario
async def an_appended_system_prompt_comes_after_the_own_one(world):
    preset = {"type": "preset", "preset": "claude_code", "append": "End with the word over."}
    await world.ask([text("Over.")], system_prompt=preset)
    [request] = await world.models[0].requests()
    system = json.dumps(request["system"])
    assert "End with the word over." in system and len(system) > 500


@scenario
async def a_system_prompt_comes_from_a_file(world):
    path = world.folder / "prompt.md"
    path.write_text("You are a lighthouse.")
    await world.ask([text("Blink.")], system_prompt={"type": "file", "path": str(path)})
    [request] = await world.models[0].requests()
    assert "You are a lighthouse." in json.dumps(request["system"])


@scenario
async def partial_messages_are_streamed_when_asked_for(world):
    messages = await world.ask([text("word by word")], include_partial_messages=True)
    kinds = [event.event["type"] for event in of("StreamEvent", messages)]
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop", kinds
    deltas = [event.event["delta"].get("text", "") for event in of("StreamEvent", messages)
              if event.event["type"] == "content_block_delta"]
    assert "".join(deltas) == "word by word"
    assert one("AssistantMessage", messages).content[0].text == "word by word"


@scenario
async def without_partial_messages_there_are_no_stream_events(world):
    assert not of("StreamEvent", await world.ask([text("whole")]))


@scenario
async def an_answer_has_the_shape_of_the_schema(world):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    steps = [tools(("StructuredOutput", {"n": 4}))]
    end = result(await world.ask(steps, output_format={"type": "json_schema", "schema": schema}))
    assert end.structured_output == {"n": 4} and end.subtype == "success"
    [request] = await world.models[0].requests()
    assert "StructuredOutput" in [tool["name"] for tool in request["tools"]]


@scenario
async def an_answer_that_violates_the_schema_is_asked_for_again(world):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    steps = [tools(("StructuredOutput", {"n": "four"})), tools(("StructuredOutput", {"n": 4}))]
    end = result(await world.ask(steps, output_format={"type": "json_schema", "schema": schema}))
    assert end.structured_output == {"n": 4}


@scenario
async def a_schema_that_is_never_met_is_an_error(world):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    model = await world.model(tools(("StructuredOutput", {"n": "four"}), repeat=20))
    options = world.options(model, output_format={"type": "json_schema", "schema": schema})
    found = []
    async with raises(Exception):
        async for message in query(prompt="go", options=options):
            found.append(message)
    assert of("ResultMessage", found)[0].subtype == "error_max_structured_output_retries"


@scenario
async def a_session_is_resumed_by_its_id(world):
    first = result(await world.ask([text("Noted.")], "The word is plover."))
    second = result(await world.ask([text("Plover.")], "Which word?", resume=first.session_id))
    assert second.session_id == first.session_id
    [request] = await world.models[1].requests()
    assert "The word is plover." in json.dumps(request["messages"])


@scenario
async def a_fork_has_a_new_id_and_the_old_conversation(world):
    first = result(await world.ask([text("Noted.")], "The word is plover."))
    fork = await world.ask([text("Plover.")], "Which?", resume=first.session_id, fork_session=True)
    assert result(fork).session_id != first.session_id
    [request] = await world.models[1].requests()
    assert "The word is plover." in json.dumps(request["messages"])


@scenario
async def the_newest_conversation_is_continued(world):
    first = result(await world.ask([text("Noted.")], "The word is plover."))
    again = result(await world.ask([text("Plover.")], "Which?", continue_conversation=True))
    assert again.session_id == first.session_id


@scenario
async def a_session_has_the_id_that_was_asked_for(world):
    name = "6f0a2f52-6f3c-4a8e-9f4e-0f6f5d1c2b3a"
    assert result(await world.ask([text("Hi.")], session_id=name)).session_id == name


@scenario
async def the_session_functions_of_the_sdk_read_what_was_written(world):
    first = result(await world.ask([text("Noted.")], "The word is plover."))
    with config_of(world):
        sessions = list_sessions(directory=str(world.work))
    assert [session.session_id for session in sessions] == [first.session_id], sessions
    messages = told_in(world, first.session_id)
    kinds = [message.type for message in messages]
    assert kinds == ["user", "assistant"], kinds
    assert "plover" in json.dumps(messages[0].message)


@scenario
async def a_sub_agent_works_with_its_own_prompt_and_tools(world):
    steps = [
        tools(("Agent", {"description": "Count", "prompt": "Count birds.", "subagent_type": "counter"})),
        text("Seven."),
        text("There are seven."),
    ]
    agent = AgentDefinition(description="Counts", prompt="You count birds.", tools=["Read", "Grep"])
    messages = await world.ask(steps, agents={"counter": agent})
    assert result(messages).result == "There are seven."
    assert of("TaskStartedMessage", messages) and of("TaskNotificationMessage", messages)
    assert "Seven." in str(tool_results(messages)[0].content)
    requests = await world.models[0].requests()
    assert "You count birds." in json.dumps(requests[1]["system"])
    assert sorted(tool["name"] for tool in requests[1]["tools"]) == ["Grep", "Read"]
    assert "counter" in messages[0].data["agents"]


@scenario
async def server_info_has_commands_and_the_output_style(world):
    model = await world.model(text("unused"))
    async with ClaudeSDKClient(world.options(model)) as client:
        info = await client.get_server_info()
    assert isinstance(info["commands"], list) and info["output_style"] == "default"


@scenario
async def the_working_directory_and_further_ones_are_the_user_s(world):
    more = world.folder / "more"
    more.mkdir()
    (more / "note.txt").write_text("salt marsh")
    (world.work / "own.txt").write_text("mud flat")
    steps = [tools(("Read", {"file_path": "own.txt"}), ("Read", {"file_path": str(more / "note.txt")})), text("Read.")]
    messages = await world.ask(steps, add_dirs=[str(more)])
    contents = [str(block.content) for block in tool_results(messages)]
    assert "mud flat" in contents[0] and "salt marsh" in contents[1], contents


@scenario
async def the_environment_of_the_options_reaches_commands(world):
    steps = [tools(("Bash", {"command": "echo $BIRD"})), text("Done.")]
    messages = await world.ask(steps, env={"BIRD": "dunlin"}, permission_mode="bypassPermissions")
    assert "dunlin" in str(tool_results(messages)[0].content)


@scenario
async def setting_sources_decide_which_settings_files_are_read(world):
    folder = world.work / ".claude"
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps({"env": {"BIRD": "knot"}}))
    command = [tools(("Bash", {"command": "echo bird=$BIRD"})), text("Done.")]
    for sources, expected in [(["project"], "bird=knot"), ([], "bird=")]:
        messages = await world.ask(command, setting_sources=sources, permission_mode="bypassPermissions")
        said = str(tool_results(messages)[0].content).strip()
        assert said.endswith(expected) or expected in said.splitlines(), (sources, said)


@scenario
async def a_memory_file_of_the_project_is_in_the_prompt(world):
    (world.work / "CLAUDE.md").write_text("Always mention the tide.")
    await world.ask([text("High tide.")], setting_sources=["project"])
    [request] = await world.models[0].requests()
    assert "Always mention the tide." in json.dumps(request)


@scenario
async def a_long_prompt_arrives_whole(world):
    prompt = "sandpiper " * 30_000
    await world.ask([text("Long.")], prompt)
    [request] = await world.models[0].requests()
    assert prompt.strip() in json.dumps(request["messages"])


@scenario
async def the_example_of_the_sdk_s_readme_works_unchanged(world):
    import os
    import sys

    model = await world.model(text("4"))
    program = world.folder / "example.py"
    program.write_text(
        "import anyio\n"
        "from claude_agent_sdk import query\n\n"
        "async def main():\n"
        '    async for message in query(prompt="What is 2 + 2?"):\n'
        "        print(message)\n\n"
        "anyio.run(main)\n"
    )
    # Found under the name that the SDK looks for.
    programs = world.folder / "bin"
    programs.mkdir()
    (programs / "claude").symlink_to(os.path.abspath(os.environ["OUTLAST"]))
    environment = world.options(model).env | {"PATH": f"{programs}:{os.environ['PATH']}"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(program), env=environment, cwd=world.work,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert "ResultMessage(subtype='success'" in out.decode(), out.decode()
