#!/usr/bin/env python3
"""The client of a scenario of the MCP conformance suite: runs of outlast against the server whose
address is the last argument. The model is a script that makes the calls that the scenario is about;
where the server wants a login, this script is the user with the browser, and where it asks the user,
the host that accepts the form as it is. OUTLAST names the binary."""

import json
import os
import pty
import re
import subprocess
import sys
import tempfile
import threading
import urllib.request

URL = sys.argv[-1]
SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
LOGIN_SECONDS = 20
RUN_SECONDS = 60
LOGINS_MAX = 3
# The servers of these scenarios ask the user.
ASKS = SCENARIO.startswith(("elicitation-", "sep-2322-"))
# The document with this address is the suite's own; it names a client.
CLIENT_DOCUMENT = "https://conformance-test.local/client-metadata.json"

CALLS = {
    "tools_call": [("mcp__t__add_numbers", {"a": 5, "b": 3})],
    "sse-retry": [("mcp__t__test_reconnection", {})],
    "elicitation-sep1034-client-defaults": [("mcp__t__test_client_elicitation_defaults", {})],
    "http-standard-headers": [
        ("mcp__t__test_headers", {}),
        ("mcp__t__my-hyphenated-tool", {}),
        ("ListMcpResources", {}),
        ("ReadMcpResource", {"server": "t", "uri": "file:///path/to/file%20name.txt"}),
    ],
    "http-invalid-tool-headers": [
        ("mcp__t__" + tool, {"region": "x"})
        for tool in ("valid_tool", "invalid_empty_header", "invalid_number_header")
    ],
    "sep-2322-client-request-state": [
        ("mcp__t__test_mrtr_" + tool, {})
        for tool in ("echo_state", "no_state", "unrelated", "no_result_type")
    ],
    "auth/scope-step-up": [("mcp__t__test-tool", {})],
    "auth/scope-retry-limit": [("mcp__t__test-tool", {})],
    "auth/authorization-server-migration": [("mcp__t__test-tool", {})],
}
for call in CONTEXT.get("toolCalls", []):
    CALLS.setdefault(SCENARIO, []).append(("mcp__t__" + call["name"], call["arguments"]))


def entry():
    """The entry of the server."""
    oauth = {}
    if SCENARIO == "auth/basic-cimd":
        oauth = {"clientId": CLIENT_DOCUMENT}
    elif "client_id" in CONTEXT:
        oauth = {"clientId": CONTEXT["client_id"]}
        if SCENARIO.startswith("auth/client-credentials") and "client_secret" in CONTEXT:
            oauth["clientSecret"] = CONTEXT["client_secret"]
    server = {"type": "http", "url": URL}
    if oauth:
        server["oauth"] = oauth
    return server


def toml(value):
    """A value of TOML; JSON has the same texts, numbers and lists."""
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key)} = {toml(item)}" for key, item in value.items() if item is not None)
        return "{ " + ", ".join(pairs) + " }"
    return json.dumps(value)


def scenario(folder):
    path = os.path.join(folder, "scenario.toml")
    with open(path, "w", encoding="utf-8") as file:
        file.write('name = "conformance"\nsummary = "s"\nprompt = "Use the tool."\n\n')
        for name, arguments in CALLS.get(SCENARIO, []):
            file.write(f'[[step]]\n[[step.tool]]\nname = "{name}"\ninput = {toml(arguments)}\n\n')
        file.write('[[step]]\ntext = "Done."\n\n[expect]\nexit = 0\n')
    return path


def accept(question):
    """The response to a question: its form with the default values."""
    properties = question["request"].get("requested_schema", {}).get("properties", {})
    content = {name: field["default"] for name, field in properties.items() if "default" in field}
    response = {"action": "accept", "content": content}
    return {"type": "control_response", "response": {
        "subtype": "success", "request_id": question["request_id"], "response": response}}


def run_with_host(command, folder, environment):
    """One run whose host answers questions. Returns its exit code and all that it printed."""
    command = command + ["--input-format", "stream-json", "--output-format", "stream-json"]
    ran = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )
    timer = threading.Timer(RUN_SECONDS, ran.kill)
    timer.start()

    def send(frame):
        ran.stdin.write(json.dumps(frame) + "\n")
        ran.stdin.flush()

    send({"type": "control_request", "request_id": "1", "request": {"subtype": "initialize"}})
    send({"type": "user", "message": {"role": "user", "content": "Use the tool."}})
    printed = ""
    for line in ran.stdout:
        sys.stderr.write(line)
        printed += line
        frame = json.loads(line) if line.startswith("{") else {}
        if frame.get("type") == "control_request" and frame["request"]["subtype"] == "elicitation":
            send(accept(frame))
        elif frame.get("type") == "result":
            ran.stdin.close()
    code = ran.wait()
    timer.cancel()
    return code, printed


def run(folder, environment):
    """One run. Returns its exit code and all that it printed."""
    command = [os.environ["OUTLAST"], "rehearse", scenario(folder), "--"]
    command += ["--setting-sources", "user", "--mcp-required", "all"]
    command += ["--permission-mode", "bypassPermissions"]
    if ASKS:
        return run_with_host(command, folder, environment)
    ended = subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, check=False, timeout=RUN_SECONDS,
    )
    sys.stderr.write(ended.stdout)
    return ended.returncode, ended.stdout


def log_in(folder, environment):
    """Logs in at a terminal, and opens the page. Returns whether there is a login."""
    ours, theirs = pty.openpty()
    command = [os.environ["OUTLAST"], "mcp", "login", "t", "--wait", f"{LOGIN_SECONDS}s"]
    login = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE,
        text=True,
    )
    os.close(theirs)
    for line in login.stdout:
        sys.stderr.write(line)
        page = re.match(r" +(http\S+)", line)
        if page:
            try:
                with urllib.request.urlopen(page[1], timeout=LOGIN_SECONDS) as answer:
                    sys.stderr.write(f"the browser shows: {answer.read(200)!r}\n")
            except OSError as error:
                sys.stderr.write(f"the browser shows: {error}\n")
    code = login.wait()
    try:
        sys.stderr.write(os.read(ours, 65536).decode(errors="replace"))
    except OSError:
        pass
    os.close(ours)
    return code == 0


def main():
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "config")
        os.mkdir(config)
        with open(os.path.join(config, "settings.json"), "w", encoding="utf-8") as file:
            json.dump({"mcpServers": {"t": entry()}}, file)
        environment = dict(os.environ, OUTLAST_CONFIG_DIR=config)
        if "client_secret" in CONTEXT:
            environment["MCP_CLIENT_SECRET"] = CONTEXT["client_secret"]
        code, printed = run(folder, environment)
        for _ in range(LOGINS_MAX):
            if "outlast mcp login t" not in printed and "requires a login" not in printed:
                break
            if not log_in(folder, environment):
                return 1
            code, printed = run(folder, environment)
        return code


sys.exit(main())
