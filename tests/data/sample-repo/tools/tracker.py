"""A server of the Model Context Protocol with one tool: it looks up issues."""

import json
import os
import sys

TOOL = {
    "name": "lookup",
    "description": "Looks up an issue by its number.",
    "inputSchema": {
        "type": "object",
        "properties": {"number": {"type": "integer"}},
        "required": ["number"],
    },
}


def answer(request):
    method, params = request["method"], request.get("params", {})
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "tracker", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        number = params["arguments"]["number"]
        words = f"{os.environ['TRACKER_PROJECT']}-{number}: add() forgets the last number"
        return {"content": [{"type": "text", "text": words}]}
    return {}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        reply = {"jsonrpc": "2.0", "id": request["id"], "result": answer(request)}
        print(json.dumps(reply), flush=True)
