"""A server of the Model Context Protocol that misbehaves as it is told to.

server.py MODE [ARGUMENT]: over standard input and output; `http` serves on a port that it prints, or
on that of a third argument.
"""

import binascii
import gzip
import json
import os
import signal
import sys
import threading
import time

MODE = sys.argv[1] if len(sys.argv) > 1 else "well"
ARGUMENT = sys.argv[2] if len(sys.argv) > 2 else ""
OBJECT = {"type": "object", "properties": {"text": {"type": "string", "x-mcp-header": "Text"}}}
NAMES = ["echo", "fail", "refuse", "image", "data", "big", "slow", "hang", "die", "env", "mute",
         "huge", "resource", "grow", "ask", "picture", "shape", "flood", "stop", "noise", "tardy",
         "pester"]
TYPED = {"type": "object", "required": ["scale", "count"], "additionalProperties": False,
         "properties": {"scale": {"type": "string", "enum": ["css", "device"], "default": "css"},
                        "count": {"type": "integer"}}}
FORM = {"message": "Sure?",
        "requestedSchema": {"type": "object", "properties": {
            "name": {"type": "string"}, "2": {"type": "string"}, "age": {"type": "integer"},
            "1": {"type": "string"}}},
        "_meta": {"anthropic/permissionDisplay": {"title": "A question", "displayName": "Tester",
                                                  "description": "Of the test"}}}
PAGE = {"mode": "url", "message": "Sign in", "url": "https://example.com/x", "elicitationId": "e-1"}
QUESTIONS = {
    "sampling/createMessage": ("sampling/createMessage", {"messages": [], "maxTokens": 1}),
    "elicitation/create": ("elicitation/create", FORM),
    "page": ("elicitation/create", PAGE),
    "odd": ("elicitation/create", {**FORM, "mode": "telepathy"}),
}
# Base64 is in lines of 20 characters, and the type is odd, for this one.
ODD_PICTURE = "odd"
PICTURES = {
    "good": "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5Er"
            "kJggg==",
    "bad": binascii.b2a_base64(b"\x89PNG\r\n\x1a\nnot really", newline=False).decode(),
}
UNANSWERED = []
LISTED = []
TURN = threading.Lock()
RESOURCES = {"x://notes": {"text": "read it"}, "x://blob": {"blob": "aGk="}}


# What an HTTP server answers instead: status, headers, body.
FAULTS = {
    "500": (500, {"Content-Type": "text/html"}, b"<html>oops</html>"),
    "lost": (500, {"Content-Type": "text/plain"}, b"upstream: session expired"),
    "503": (503, {"Content-Type": "text/plain", "Retry-After": "7"}, b"busy"),
    "429": (429, {"Content-Type": "text/plain"}, b"slow down"),
    "400": (400, {"Content-Type": "text/plain"}, b"what was that"),
    "307": (307, {"Location": "http://secret/"}, b""),
    "404": (404, {"Content-Type": "text/html"}, b"<html>"),
    "405": (405, {}, b""),
    "403": (403, {"Content-Type": "text/plain"}, b"not from there"),
    "401": (401, {}, b""),
    "oauth": (401, {"WWW-Authenticate": 'Bearer resource_metadata="https://secret/x"'}, b""),
    "scope": (403, {"WWW-Authenticate": 'Bearer error="insufficient_scope", scope="files:write"'},
              b""),
    "page": (200, {"Content-Type": "text/html"}, b"<html>welcome</html>"),
    "plain": (200, {"Content-Type": "text/plain"}, b"welcome"),
    "brotli": (200, {"Content-Type": "application/json", "Content-Encoding": "br"}, b"\x0b\x02"),
    "event": (200, {"Content-Type": "text/event-stream"},
              b"event: error\ndata: upstream timeout\n\n"),
    "520": (520, {"Content-Type": "text/html"}, b"<html>oops</html>"),
    "detail": (200, {"Content-Type": "application/json"}, b'{"detail": "no such server"}'),
    "words": (200, {"Content-Type": "application/json"}, b"well done"),
    "torn": (200, {"Content-Type": "application/json", "Content-Length": "999"}, b"{"),
    "cut": (200, {"Content-Type": "text/event-stream", "Content-Length": "7"}, b": hi\n\n\n"),
    "large": (200, {"Content-Type": "application/json"}, None),
}


# How an HTTP server refuses a session: status, JSON-RPC code, message.
LOST = {
    "reinitialize": (400, -32600, "Unknown session id; reinitialize"),
    "uninitialized": (400, -32000, "Bad Request: Server not initialized"),
    "expired": (500, -32603, "Session expired"),
    "answer": (200, -32001, "Session not found"),
    "tool": (200, -32603, "Session not found: tab 3"),
}


def log(line):
    if os.environ.get("SERVER_LOG"):
        with open(os.environ["SERVER_LOG"], "a") as file:
            file.write(line + "\n")


def send(message):
    with TURN:
        before = "loading 100%\r\x1b[0m" if MODE == "noisy" else ""
        sys.stdout.write(before + json.dumps(message) + "\n")
        sys.stdout.flush()


def tools():
    listed = [{"name": name, "description": "Does " + name, "inputSchema": OBJECT}
              for name in NAMES]
    listed[0]["annotations"] = {"readOnlyHint": True}
    if MODE == "named":
        listed = [{"name": ARGUMENT, "inputSchema": OBJECT}]
    if MODE == "typed":
        listed = [{"name": "typed", "inputSchema": TYPED}]
    if MODE == "badtool":
        listed += [{"name": "bad", "inputSchema": "nonsense"}, {"name": "worse", "inputSchema": 7}]
    return listed


def text(words, **more):
    return {"content": [{"type": "text", "text": words}], **more}


def call(params, ident, token):
    name, arguments = params["name"], params.get("arguments") or {}
    words = str(arguments.get("text", ""))
    log("call " + name + " " + words)
    if name == "typed":
        return text("given: " + json.dumps(arguments, sort_keys=True))
    if name == "fail":
        return text("it went wrong", isError=True)
    if name == "image":
        return {"content": [{"type": "image", "mimeType": "image/png", "data": "aGk="}]}
    if name == "data":
        data = binascii.b2a_base64(b"\x00\x01binary", newline=False).decode()
        return {"content": [{"type": "audio", "mimeType": "audio/wav", "data": data}]}
    if name == "resource":
        return {"content": [{"type": "resource", "resource": {"uri": "x://y", "text": "inside"}}]}
    if name == "big":
        return text("begin" + "x" * 200_000 + "end")
    if name == "huge":
        return text("x" * (33 << 20))
    if name == "slow":
        for step in range(int(words.split()[0])):
            time.sleep(0.3)
            params = {"progress": step}
            if "vague" not in words:
                params["progressToken"] = token
            send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        return text("done at last")
    if name == "shape":
        return json.loads(words)
    if name == "flood":
        while True:
            send({"jsonrpc": "2.0", "method": "notifications/progress",
                  "params": {"progressToken": token, "progress": 1}})
    if name == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
        return text("awake")
    if name == "noise":
        for odd in ({"id": 4711, "result": {}}, {"id": "none", "result": text("not yours")},
                    {"id": "q", "method": "outlandish/request"},
                    {"method": "notifications/outlandish"},
                    {"id": ident, "result": text("the first")}):
            send({"jsonrpc": "2.0", **odd})
        return text("the second")
    if name == "pester":
        for number in range(2000):
            send({"jsonrpc": "2.0", "id": "x" * 100_000 + str(number), "method": "ping"})
        time.sleep(600)
    if name == "tardy":
        UNANSWERED.append(ident)
        return None
    if name == "hang":
        return None
    if name == "mute":
        while True:
            time.sleep(60)
    if name == "die":
        sys.stderr.write("panic: out of cheese\n")
        sys.stderr.flush()
        os._exit(3)
    if name == "grow":
        NAMES.append("grown")
        send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        return text("there is one more")
    if name == "ask":
        if words == "input":
            if "inputResponses" in params:
                return text(json.dumps([params["inputResponses"], params["requestState"]]))
            return {"resultType": "input_required", "requestState": "s-1", "inputRequests": {
                "who": {"method": "elicitation/create", "params": FORM},
                "where": {"method": "roots/list"}}}
        method, asked = QUESTIONS.get(words, (words, {}))
        if words == "withdrawn":
            method, asked = QUESTIONS["elicitation/create"]
        send({"jsonrpc": "2.0", "id": "ours", "method": method, "params": asked})
        if words == "withdrawn":
            send({"jsonrpc": "2.0", "method": "notifications/cancelled",
                  "params": {"requestId": "ours"}})
            return text("never mind")
        while True:
            answered = json.loads(sys.stdin.readline())
            log(answered.get("method", "answer"))
            if answered.get("id") == "ours" and "method" not in answered:
                for known in ("e-1", "e-1", "e-2") if words == "page" else ():
                    send({"jsonrpc": "2.0", "method": "notifications/elicitation/complete",
                          "params": {"elicitationId": known}})
                return text(json.dumps(answered))
    if name == "picture":
        if words == ODD_PICTURE:
            good = PICTURES["good"]
            lines = "\n".join(good[at:at + 20] for at in range(0, len(good), 20))
            return {"content": [{"type": "image", "mimeType": "image/jpg; q=1", "data": lines}]}
        return {"content": [{"type": "image", "mimeType": "image/png", "data": PICTURES[words]}]}
    if name == "env":
        return text(os.getcwd() if words == "cwd" else str(os.environ.get(words)))
    return text("echo: " + words)


def answer(message):
    method, ident = message.get("method"), message.get("id")
    params = message.get("params") or {}
    if method == "initialize":
        log("offered " + json.dumps(params.get("capabilities"), sort_keys=True))
        version = ARGUMENT if MODE == "version" else params.get("protocolVersion", "2025-06-18")
        hello = {"protocolVersion": version,
                 "capabilities": {"tools": {"listChanged": True}},
                 "serverInfo": {"name": "test", "version": "1"}}
        if version == "none":
            del hello["protocolVersion"]
        if MODE == "toolless":
            hello["capabilities"] = {"resources": {}}
        if MODE == "nulls":
            hello["capabilities"]["prompts"] = {}
        if MODE == "rich":
            hello["capabilities"]["resources"] = {}
            hello["capabilities"]["prompts"] = {}
            hello["instructions"] = "Echo first. " + "x" * 10_000
        return hello
    if method == "server/discover":
        offered = params["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        log("offered " + json.dumps(offered, sort_keys=True))
        return {"resultType": "complete", "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"}
    if method == "resources/list":
        return {"resources": [{"uri": uri, "name": uri[4:]} for uri in RESOURCES]}
    if method == "resources/templates/list":
        return {"resourceTemplates": [{"uriTemplate": "x://{id}", "name": "any"}]}
    if method == "resources/read":
        uri = params["uri"]
        return {"contents": [{"uri": uri, **RESOURCES[uri]}]}
    if method == "prompts/list" and MODE == "nulls":
        return {"prompts": None, "nextCursor": None}
    if method == "prompts/list":
        arguments = [{"name": "file", "required": True}, {"name": "focus"}]
        return {"prompts": [{"name": "re view", "arguments": arguments}, {"name": "none"},
                            {"name": "of.file", "arguments": arguments}]}
    if method == "prompts/get":
        words = "Review " + json.dumps(params["arguments"], sort_keys=True)
        content = {"type": "text", "text": "" if params["name"] == "none" else words}
        return {"messages": [{"role": "user", "content": content}]}
    if method == "tools/list" and MODE == "nulls":
        # The second page is empty, and names itself as the next one.
        cursor = params.get("cursor")
        page = {None: ("a", NAMES[:1]), "a": ("a", None)}[cursor]
        listed = page[1] and [tool for tool in tools() if tool["name"] in page[1]]
        return {"tools": listed, "nextCursor": page[0]}
    if method == "tools/list" and MODE == "pages":
        # Cursors of some servers are numbers; the third page is refused.
        name, after = {None: (NAMES[0], 7), 7: (NAMES[1], "bad")}[params.get("cursor")]
        return {"tools": [tool for tool in tools() if tool["name"] == name], "nextCursor": after}
    if method == "tools/list" and MODE == "cycle":
        name, after = {None: (0, "a"), "a": (1, "b"), "b": (2, "a")}[params.get("cursor")]
        return {"tools": {tool["name"]: {"inputSchema": OBJECT} for tool in tools()[name:name + 1]},
                "nextCursor": after}
    if method == "tools/list" and MODE in ("endless", "ones"):
        page = params.get("cursor", 0)
        listed = [{"name": "t%d" % page, "inputSchema": OBJECT}] if MODE == "ones" else []
        after = None if MODE == "ones" and page == 99 else page + 1
        return {"tools": listed, "nextCursor": after}
    if method == "tools/list":
        return {"tools": tools(), "nextCursor": ""}
    if method == "tools/call":
        return call(params, ident, (params.get("_meta") or {}).get("progressToken"))
    return {}


def serve():
    log("start " + str(os.getpid()))
    if MODE == "crash" or (MODE == "crash-once" and not os.path.exists(ARGUMENT)):
        if MODE == "crash-once":
            open(ARGUMENT, "w").close()
        sys.stderr.write("cannot find my config " + ARGUMENT + "\n")
        sys.exit(1)
    if MODE == "never" or (MODE == "relapse" and os.path.exists(ARGUMENT)):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    if MODE == "relapse":
        open(ARGUMENT, "w").close()
    if MODE == "late":
        while not os.path.exists(ARGUMENT):
            time.sleep(0.05)
    if MODE == "yes":
        while True:
            sys.stdout.write(("y" * 99 + "\n") * 4096)
    if MODE == "garbage":
        print("Starting up...\n\n{\"half\": \n[1,2]\n\x1b[31mred\x1b[0m", flush=True)
    if MODE == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        import subprocess
        subprocess.Popen(["setsid", "sh", "-c", "trap '' TERM; echo $$ >>" + ARGUMENT + "; exec sleep 600"])
        with open(ARGUMENT, "a") as file:
            file.write(str(os.getpid()) + "\n")
    if MODE == "storm":
        def storm():
            while True:
                send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
                time.sleep(0.001)
        threading.Thread(target=storm, daemon=True).start()
    if MODE == "dies-once" and not os.path.exists(ARGUMENT):
        NAMES.append("first-life")
    for line in sys.stdin:
        message = json.loads(line)
        log(message.get("method", "answer"))
        if MODE == "supports" and message.get("method") == "initialize" and \
                message["params"]["protocolVersion"] != ARGUMENT:
            send({"jsonrpc": "2.0", "id": message["id"],
                  "error": {"code": -32602, "message": "Unsupported protocol version",
                            "data": {"supported": [ARGUMENT, "2020-01-01"]}}})
            continue
        if message.get("method") == "notifications/cancelled" and UNANSWERED:
            send({"jsonrpc": "2.0", "id": UNANSWERED.pop(), "result": text("too late")})
            log("answered too late")
        if MODE == "stateless" and (message.get("method") in ("initialize", "ping") or
                                    "_meta" not in (message.get("params") or {})):
            send({"jsonrpc": "2.0", "id": message["id"],
                  "error": {"code": int(ARGUMENT), "message": "there is no handshake"}})
            continue
        if MODE == "toolless" and message.get("method") == "tools/list":
            send({"jsonrpc": "2.0", "id": message["id"],
                  "error": {"code": -32601, "message": "Method not found"}})
            continue
        if "id" not in message or "method" not in message:
            continue
        if MODE == "pages" and (message.get("params") or {}).get("cursor") == "bad":
            send({"jsonrpc": "2.0", "id": message["id"],
                  "error": {"code": -32602, "message": "no such page"}})
            continue
        if MODE == "dies-once" and message["method"] == "tools/call":
            if not os.path.exists(ARGUMENT):
                open(ARGUMENT, "w").close()
                os._exit(9)
        if (message.get("params") or {}).get("uri", "x://notes") not in RESOURCES:
            send({"jsonrpc": "2.0", "id": message["id"],
                  "error": {"code": -32002, "message": "Resource not found"}})
            continue
        if (message.get("params") or {}).get("name") == "refuse":
            send({"jsonrpc": "2.0", "id": message["id"],
                  "error": {"code": -32602, "message": "no such argument"}})
            continue
        result = answer(message)
        if result is not None:
            ident = str(message["id"]) if MODE == "textual" else message["id"]
            answered = {"jsonrpc": "2.0", "id": ident, "result": result}
            send([answered] if MODE == "batches" else answered)
        if MODE == "late" and message["method"] == "tools/list" and not LISTED:
            # Who lists the tools again has taken in the list that came before.
            LISTED.append(True)
            send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    log("input closed")
    while MODE == "stubborn":
        time.sleep(60)


def serve_http():
    import queue
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    sessions, calls, broken, once, streams = set(), [], {}, set(), {}

    def log_once(what):
        is_first = what not in once
        once.add(what)
        return is_first

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def reply(self, code, body, **headers):
            body = json.dumps(body).encode() if body is not None else b""
            self.send_response(code)
            if body and ARGUMENT == "repeated":
                body = b"data: data: " + body + b"\n\n"
            if body and ARGUMENT == "encoded":
                body = b"data: " + json.dumps(body.decode()).encode() + b"\n\n"
            if body and ARGUMENT == "prefixed":
                body = b"\x1e" + body
            if body and ARGUMENT in ("unended", "labelled"):
                body = b"event: message\ndata: " + body + b"\n"
            if ARGUMENT == "gzip":
                body = gzip.compress(body)
            kinds = {"typeless": None, "plain": "text/plain; charset=utf-8",
                     "unended": "text/event-stream", "mislabelled": "text/event-stream",
                     "repeated": "text/event-stream", "encoded": "text/event-stream",
                     "octets": "application/octet-stream"}
            kind = kinds.get(ARGUMENT, "application/json")
            if kind:
                self.send_header("Content-Type", kind)
            if ARGUMENT in ("gzip", "no-gzip"):
                self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(body)))
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)

        def stream(self, *events):
            """Events, each with an identifier, a waiting time, or data; then the stream ends."""
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self.send_header("Connection", "close")
            self.end_headers()
            for event in events:
                lines = "".join(name + ": " + str(value) + "\n" for name, value in event.items())
                self.wfile.write((lines + "\n").encode())
                self.wfile.flush()

        def do_GET(self):
            after = self.headers.get("Last-Event-ID")
            log("listen " + str(after) + " " + str(self.headers.get("MCP-Protocol-Version")))
            if ARGUMENT.startswith("sse"):
                return self.serve_events()
            if ARGUMENT == "login":
                return self.reply(401, {"error": "unauthorized"})
            if ARGUMENT == "forgets-stream" and after == "e1":
                return self.reply(404, None)
            if ARGUMENT in ("breaks", "resumes-late") and after in broken:
                if ARGUMENT == "resumes-late" and log_once("late"):
                    return self.reply(503, None)
                answered = json.dumps({"jsonrpc": "2.0", "id": broken.pop(after),
                                       "result": text("continued after " + after)})
                return self.stream({"data": answered})
            if ARGUMENT == "announces" and after is None:
                NAMES.append("announced")
                news = json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
                return self.stream({"id": "n1", "data": news})
            self.reply(405, None)

        def serve_events(self):
            """The stream of the first version of the protocol."""
            if ARGUMENT == "sse-page":
                return self.fault("page")
            number = str(len(streams) + 1)
            streams[number] = queue.Queue()
            place = "/messages?session=" + number
            if ARGUMENT == "sse-elsewhere":
                place = "http://192.0.2.1:9" + place
            if ARGUMENT == "sse-inside":
                place = "https://localhost:9" + place
            self.send_response(200)
            if ARGUMENT != "sse-unnamed":
                self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            name = "" if ARGUMENT == "sse-unnamed" else "event: endpoint\n"
            self.wfile.write((name + "data: " + place + "\n\n").encode())
            while True:
                self.wfile.flush()
                answered = json.dumps(streams[number].get())
                self.wfile.write(("event: message\ndata: " + answered + "\n\n").encode())

        def take_message(self, message):
            """A message of the first version: its answer is in the stream."""
            number = self.path.split("=")[1]
            if message.get("method") == "tools/call":
                calls.append(number)
                is_over = calls.count(number) > 1 if ARGUMENT == "sse-once" else number == "1"
                if len(calls) > 1 and is_over:
                    return self.reply(404, {"detail": "Could not find session"})
            if "id" in message and ARGUMENT == "sse-direct":
                return self.reply(200, {"jsonrpc": "2.0", "id": message["id"],
                                        "result": answer(message)})
            if "id" in message:
                streams[number].put({"jsonrpc": "2.0", "id": message["id"],
                                     "result": answer(message)})
            self.reply(202, None)

        def do_DELETE(self):
            log("delete " + str(self.headers.get("Mcp-Session-Id")))
            self.reply(200, None)

        def hang_up(self):
            self.close_connection = True
            self.connection.shutdown(2)

        def fault(self, kind):
            code, headers, body = FAULTS[kind]
            if body is None:
                # Made only here: this much memory took a third of the time of each start.
                body = b" " * (17 << 20)
            self.send_response(code)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            # Without the header, the client may send its next request into the closing connection.
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            method, ident = message.get("method"), message.get("id")
            params = message.get("params") or {}
            if ARGUMENT == "resets":
                # Each connection takes one request.
                self.requests = getattr(self, "requests", 0) + 1
                if self.requests > 1:
                    return self.hang_up()
            if ARGUMENT == "hangs-up" and method == "server/discover":
                return self.hang_up()
            log((method or "answer") + " " + str(self.headers.get("Authorization")))
            if ARGUMENT.startswith("sse"):
                return self.take_message(message)
            if ARGUMENT.startswith("moves:") and self.path != "/mcp/there":
                code = int(ARGUMENT[6:]) if ARGUMENT != "moves:around" else 307
                self.send_response(code)
                self.send_header("Location", "/mcp/there" if ARGUMENT != "moves:around" else "/mcp")
                self.send_header("Content-Length", "0")
                return self.end_headers()
            if ARGUMENT == "tokens":
                token = str(self.headers.get("Authorization"))
                if method == "tools/call":
                    calls.append(token)
                    if calls.count(token) == 2:
                        once.add(token)
                if not token.startswith("Bearer token-number-") or token in once:
                    return self.reply(401, {"error": "invalid_token"})
            if ARGUMENT == "lost:foreign" and self.headers.get("Mcp-Session-Id") == "s1" and \
                    method in ("tools/call", "ping"):
                calls.append("s1")
                return self.reply(400, {"fehler": "wer?"})
            if ARGUMENT.startswith((method or "answer") + ":"):
                return self.fault(ARGUMENT.split(":")[1])
            if ARGUMENT == "login":
                return self.reply(401, {"error": "unauthorized"})
            if method == "server/discover" and ARGUMENT != "headers":
                return self.reply(200, {"jsonrpc": "2.0", "id": ident, "error": {
                    "code": -32601, "message": "there is a handshake"}})
            if ARGUMENT == "headers" and method == "initialize":
                return self.reply(400, {"jsonrpc": "2.0", "id": ident, "error": {
                    "code": -32022, "message": "there is no handshake"}})
            if method == "initialize":
                session = "s%d" % (len(sessions) + 1)
                sessions.add(session)
                result = {"jsonrpc": "2.0", "id": ident, "result": answer(message)}
                return self.reply(200, result, Mcp_Session_Id=session)
            if ident is None:
                return self.reply(501 if ARGUMENT == "unnotified" else 202, None)
            if method == "tools/call":
                calls.append(self.headers.get("Mcp-Session-Id"))
                if ARGUMENT == "revoked":
                    return self.reply(401, {"error": "expired token"})
                if ARGUMENT == "forgets" and calls[-1] == "s1":
                    return self.reply(404, {"jsonrpc": "2.0", "id": ident, "error": {
                        "code": -32001, "message": "Session not found"}})
                if ARGUMENT == "says" and calls[-1] == "s1":
                    return self.reply(400, {"jsonrpc": "2.0", "id": ident, "error": {
                        "code": -32000, "message": "Bad Request: No valid session ID provided"}})
                if ARGUMENT == "lost:page" and calls[-1] == "s1":
                    return self.fault("404")
                if ARGUMENT.startswith("lost:") and ARGUMENT[5:] in LOST and calls[-1] == "s1":
                    code, number, words = LOST[ARGUMENT[5:]]
                    return self.reply(code, {"jsonrpc": "2.0", "id": ident if code == 200 else None,
                                             "error": {"code": number, "message": words}})
                if ARGUMENT == "always":
                    return self.reply(404, {"error": "gone"})
                if ARGUMENT == "stream-error":
                    refused = {"jsonrpc": "2.0", "id": "server-error", "error": {
                        "code": -32602, "message": "no such argument"}}
                    return self.stream({"data": json.dumps(refused)})
                if ARGUMENT in ("never-resumes", "forgets-stream"):
                    return self.stream({"id": "e1", "retry": 100, "data": ""})
                if ARGUMENT in ("breaks", "resumes-late"):
                    broken["e1"] = ident
                    return self.stream({"id": "e1", "retry": 100, "data": ""})
                if ARGUMENT == "streams":
                    token = params["_meta"]["progressToken"]
                    messages = [
                        {"method": "notifications/progress",
                         "params": {"progressToken": token, "progress": 1}},
                        {"id": ident, "result": answer(message)}]
                    return self.stream(*({"data": json.dumps({"jsonrpc": "2.0", **one})}
                                         for one in messages))
                if ARGUMENT in ("batches", "batch-streams"):
                    news = {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}
                    answered = {"jsonrpc": "2.0", "id": ident, "result": answer(message)}
                    if ARGUMENT == "batches":
                        return self.reply(200, [news, answered])
                    return self.stream({"data": json.dumps([answered, news])})
                if ARGUMENT == "no-id":
                    return self.reply(400, {"jsonrpc": "2.0", "id": "server-error", "error": {
                        "code": -32602, "message": "no such argument"}})
                if ARGUMENT == "headers":
                    names = ("Mcp-Method", "Mcp-Name", "Mcp-Param-Text", "MCP-Protocol-Version")
                    said = " ".join(str(self.headers.get(name)) for name in names)
                    return self.reply(200, {"jsonrpc": "2.0", "id": ident, "result": text(said)})
            return self.reply(200, {"jsonrpc": "2.0", "id": ident, "result": answer(message)})

    port = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    # Who hangs up in the middle of an answer is meant to.
    server.handle_error = lambda *_: None
    print(server.server_address[1], flush=True)
    server.serve_forever()


if MODE == "http":
    serve_http()
else:
    serve()
