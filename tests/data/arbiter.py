"""A server of the Model Context Protocol with one tool, `decide`, that answers about permissions.

arbiter.py ANSWER LOG: the answer is given as it is; `hang`, `die` and `fail` do what they say.
"""

import json
import os
import sys

ANSWER, LOG = sys.argv[1], sys.argv[2]
TOOL = {"name": "decide", "description": "Decides.", "inputSchema": {"type": "object"}}

for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message:
        continue
    result = {}
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "arbiter", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [TOOL]}
    elif method == "tools/call":
        with open(LOG, "a") as log:
            log.write(json.dumps(params["arguments"]) + "\n")
        if ANSWER == "die":
            os._exit(3)
        if ANSWER == "hang":
            continue
        content = [{"type": "text", "text": ANSWER}]
        result = {"content": content, "isError": ANSWER == "fail"}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
