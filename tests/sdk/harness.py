"""What the scenarios of the Python SDK share: a scripted model server, outlast as the command-line
program of the SDK, and a runner that reports one line for each scenario."""

import asyncio
import json
import os
import signal
import tempfile
import time
import traceback
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace

from claude_agent_sdk import ClaudeAgentOptions, get_session_messages, query

OUTLAST = os.environ["OUTLAST"]

# A scenario that takes longer has failed: nothing may hang.
SECONDS_MAX = 40
# How many run at the same time.
PARALLEL = 4

SCENARIOS = []


def scenario(function):
    """Registers a scenario: an async function of a World."""
    SCENARIOS.append(function)
    return function


def text(words, **more):
    """A reply of the model: words."""
    return {"text": words, **more}


def tools(*calls, **more):
    """A reply of the model: tool calls, each a pair of name and input."""
    return {"tool": [{"name": name, "input": given} for name, given in calls], **more}


def status(code, **more):
    """An error of the service."""
    return {"status": code, **more}


def toml(value):
    """A value in TOML. JSON texts and numbers are valid TOML; objects become inline tables."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    return json.dumps(value)


class Model:
    """The scripted model server of a scenario: `outlast rehearse FILE --serve`."""

    def __init__(self, folder, steps):
        self.folder = folder
        self.steps = steps

    async def start(self):
        script = self.folder / "script.toml"
        lines = ['name = "sdk"', 'summary = "A scenario of an SDK"', 'prompt = "none"']
        for step in self.steps:
            lines.append("[[step]]")
            lines += [f"{key} = {toml(value)}" for key, value in step.items()]
        script.write_text("\n".join(lines) + "\n")
        self.record = self.folder / "requests.jsonl"
        self.process = await asyncio.create_subprocess_exec(
            OUTLAST, "rehearse", str(script), "--serve", "--record", str(self.record),
            stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL,
        )
        self.url = (await self.process.stdout.readline()).decode().strip()
        assert self.url.startswith("http://127.0.0.1:"), f"the model server printed {self.url!r}"

    async def stop(self):
        """Ends the server. Its exit code says whether it got a request that the service would reject."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        return await self.process.wait()

    async def requests(self):
        """The bodies of all requests. Ends the server."""
        await self.stop()
        return [json.loads(line)["body"] for line in self.record.read_text().splitlines()]


class World:
    """The folders and the model servers of one scenario."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.work = self.folder / "work"
        self.config = self.folder / "config"
        self.work.mkdir()
        self.models = []

    async def model(self, *steps):
        """Starts a model server that answers with these steps, one after another."""
        folder = self.folder / f"model{len(self.models)}"
        folder.mkdir()
        model = Model(folder, steps)
        self.models.append(model)
        await model.start()
        return model

    def options(self, server, /, **options):
        """Options of the SDK with outlast as its program, and a model server."""
        environment = {
            "ANTHROPIC_BASE_URL": server.url,
            "ANTHROPIC_API_KEY": "a-key-of-no-use",
            "HOME": str(self.folder),
            "CLAUDE_CONFIG_DIR": str(self.config),
            "XDG_RUNTIME_DIR": str(self.folder),
        }
        environment.update(options.pop("env", {}))
        options.setdefault("cwd", str(self.work))
        return ClaudeAgentOptions(cli_path=OUTLAST, env=environment, **options)

    async def ask(self, steps, prompt="go", **options):
        """All messages of one query. The model server and its requests are in `self.models`."""
        server = await self.model(*steps)
        return await collect(query(prompt=prompt, options=self.options(server, **options)))

    async def close(self):
        return [code for code in [await model.stop() for model in self.models] if code]


async def collect(messages):
    return [message async for message in messages]


def of(kind, messages):
    """The messages of a class."""
    return [message for message in messages if type(message).__name__ == kind]


def one(kind, messages):
    found = of(kind, messages)
    assert len(found) == 1, f"one {kind} expected: {[type(item).__name__ for item in messages]}"
    return found[0]


def result(messages):
    last = messages[-1]
    assert type(last).__name__ == "ResultMessage", f"the result comes last: {last}"
    return last


def blocks(kind, messages):
    """The content blocks of a class in all messages."""
    lists = [getattr(message, "content", None) for message in messages]
    found = [block for items in lists if isinstance(items, list) for block in items]
    return [block for block in found if type(block).__name__ == kind]


def tool_results(messages):
    return blocks("ToolResultBlock", messages)


@contextmanager
def config_of(world):
    """The session functions of the SDK look for the folder in the environment. No await inside."""
    os.environ["CLAUDE_CONFIG_DIR"] = str(world.config)
    try:
        yield
    finally:
        del os.environ["CLAUDE_CONFIG_DIR"]


def told_in(world, session):
    """The messages of a session, as the SDK reads them from disk."""
    with config_of(world):
        return get_session_messages(session, directory=str(world.work))


@asynccontextmanager
async def raises(kind, *words):
    """The body must raise `kind`, with all words in its text. The error is in what this gives."""
    raised = SimpleNamespace()
    try:
        yield raised
    except kind as error:
        raised.error = error
        for word in words:
            assert word in str(error), f"{word!r} is not in {error}"
    else:
        raise AssertionError(f"no {kind.__name__} was raised")


async def attempt(function):
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="outlast-sdk-") as folder:
        world = World(folder)
        why = None
        try:
            await asyncio.wait_for(function(world), SECONDS_MAX)
        except BaseException as error:  # the report needs every kind
            lines = traceback.format_exception(error)
            why = "".join(lines[-3:]).strip().replace("\n", " | ")
        rejected = await world.close()
        if why is None and rejected:
            why = "the model server received a request that the service would reject"
    took = f"{time.monotonic() - began:.1f} s"
    print(f"FAILED {function.__name__} ({took}): {why}" if why else f"ok {function.__name__}", flush=True)
    return why is None


async def run_all(names):
    """Runs the scenarios with these names, or all. Returns whether all passed."""
    chosen = [one for one in SCENARIOS if not names or one.__name__ in names]
    room = asyncio.Semaphore(PARALLEL)

    async def in_turn(function):
        async with room:
            return await attempt(function)

    passed = await asyncio.gather(*[in_turn(function) for function in chosen])
    print(f"{sum(passed)} of {len(chosen)} scenarios passed", flush=True)
    return all(passed) and bool(chosen)
