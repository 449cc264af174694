"""Compares outlast's requests to clouds with those of the public Python SDK for the same prompt, its
signatures with botocore's, and has google-auth verify its assertions: `OUTLAST=path/of/outlast python
clouds.py`."""

import base64
import json
import os
import struct
import subprocess
import sys
import tempfile
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from anthropic import AnthropicBedrock, AnthropicFoundry, AnthropicVertex
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import jwt

MODEL = "claude-sonnet-4-5"
KEY_ID, SECRET, SESSION = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG+secret0001", "session/token+1=="
LIMIT = 120

MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": MODEL,
    "content": [], "stop_reason": None, "stop_sequence": None,
    "usage": {"input_tokens": 9, "output_tokens": 1},
}
EVENTS = [
    {"type": "message_start", "message": MESSAGE},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0,
     "delta": {"type": "text_delta", "text": "Hello."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None},
     "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
]


def frame(event):
    """An AWS event-stream frame, which botocore decodes for the SDK."""
    headers = b""
    for name, value in ((":event-type", "chunk"), (":message-type", "event")):
        headers += bytes([len(name)]) + name.encode() + b"\x07"
        headers += struct.pack(">H", len(value)) + value.encode()
    data = base64.b64encode(json.dumps(event).encode()).decode()
    payload = json.dumps({"bytes": data, "p": "abc"}).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    prelude += struct.pack(">I", zlib.crc32(prelude))
    whole = prelude + headers + payload
    return whole + struct.pack(">I", zlib.crc32(whole))


class Recorder(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if "/token" in self.path:
            return self.give_token(body)
        self.server.seen.append((self.path, dict(self.headers.items()), body))
        if self.path.startswith("/model/"):
            kind, parts = "application/vnd.amazon.eventstream", [frame(it) for it in EVENTS]
        else:
            kind = "text/event-stream"
            parts = [f"event: {it['type']}\ndata: {json.dumps(it)}\n\n".encode() for it in EVENTS]
        answer = b"".join(parts)
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def give_token(self, body):
        """A token service: that of Google for service accounts and others, its STS, or Entra."""
        if self.path == "/impersonate/token":
            token = header((None, dict(self.headers.items())), "authorization")
            answer = {"accessToken": f"impersonated by {token}".replace(" ", "-"),
                      "expireTime": "2099-01-01T00:00:00Z"}
        else:
            fields = {name: values[0] for name, values in parse_qs(body.decode()).items()}
            answer = {"access_token": self.server.grant(self.path, fields), "expires_in": 3600,
                      "token_type": "Bearer"}
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def outlast(variables, folder):
    environment = {
        "PATH": os.environ["PATH"], "HOME": folder, "OUTLAST_CONFIG_DIR": folder + "/config",
        "XDG_RUNTIME_DIR": folder, **variables,
    }
    command = [os.environ["OUTLAST"], "--model", MODEL, "--output-format", "json", "Say hello."]
    done = subprocess.run(command, env=environment, cwd=folder, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["result"] == "Hello.", done.stdout


def ask_sdk(client, body, model):
    """Sends the same body by the SDK, and checks that it understands the answer."""
    fields = {name: value for name, value in body.items()
              if name not in ("model", "stream", "anthropic_version", "anthropic_beta")}
    with client.messages.stream(model=model, **fields) as stream:
        assert stream.get_final_text() == "Hello."


def header(request, name):
    return next((value for key, value in request[1].items() if key.lower() == name), None)


def compare(name, ours, theirs, headers):
    assert urlsplit(ours[0]) == urlsplit(theirs[0]), f"{name}: {ours[0]} and {theirs[0]}"
    bodies = [json.loads(request[2]) for request in (ours, theirs)]
    for body in bodies:
        # The SDK sends a newer version of the protocol than the clouds document.
        version = body.pop("anthropic_version", None)
        assert (version is None) == (name == "foundry"), f"{name}: {version}"
    assert bodies[0] == bodies[1], f"{name}: {bodies[0]} and {bodies[1]}"
    for one in headers:
        found = [header(request, one) for request in (ours, theirs)]
        assert found[0] == found[1] is not None, f"{name}: {one}: {found}"
    print(f"ok {name}")


def check_signature(request, port):
    path, headers, body = request
    signed = header(request, "authorization").split("SignedHeaders=")[1].split(",")[0].split(";")
    kept = {name: header(request, name) for name in signed if name not in ("host", "x-amz-date",
                                                                        "x-amz-security-token")}
    again = AWSRequest("POST", f"http://127.0.0.1:{port}{path}", headers=kept, data=body)
    again.context["timestamp"] = header(request, "x-amz-date")
    signer = SigV4Auth(Credentials(KEY_ID, SECRET, SESSION), "bedrock", "us-east-1")
    again.headers["X-Amz-Date"] = header(request, "x-amz-date")
    again.headers["X-Amz-Security-Token"] = SESSION
    canonical = signer.canonical_request(again)
    scope = signer.string_to_sign(again, canonical)
    expected = signer.signature(scope, again)
    assert f"Signature={expected}" in header(request, "authorization"), canonical
    assert header(request, "x-amz-security-token") == SESSION
    print("ok signature")


def identities(server, url, folder):
    """Runs with each kind of identity whose tokens a service gives; the services are played here."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                serialization.NoEncryption()).decode()
    public = key.public_key().public_bytes(serialization.Encoding.PEM,
                                           serialization.PublicFormat.SubjectPublicKeyInfo)

    def grant(path, fields):
        if path == "/google/token":
            claims = jwt.decode(fields["assertion"], certs=public, audience=url + path)
            assert claims["iss"] == "ci@p-1.example", claims
            return "token-of-the-service-account"
        if path == "/sts/token":
            assert fields["subject_token"] == "oidc-1", fields
            assert fields["audience"] == "//iam.example/pool", fields
            assert fields["subject_token_type"] == "urn:ietf:params:oauth:token-type:jwt", fields
            return "federated"
        assert path == "/tenant-1/oauth2/v2.0/token", path
        assert fields["client_assertion"] == "oidc-1" and fields["client_id"] == "app-1", fields
        assert fields["scope"] == "https://ai.azure.com/.default", fields
        return "token-of-entra"

    server.grant = grant
    account = {"type": "service_account", "client_email": "ci@p-1.example", "project_id": "p-1",
               "private_key_id": "k1", "private_key": private, "token_uri": url + "/google/token"}
    federated = {"type": "external_account", "audience": "//iam.example/pool",
                 "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
                 "token_url": url + "/sts/token", "credential_source": {"file": folder + "/oidc"},
                 "service_account_impersonation_url": url + "/impersonate/token"}
    with open(folder + "/oidc", "w", encoding="utf-8") as file:
        file.write("oidc-1")
    vertex = {"CLAUDE_CODE_USE_VERTEX": "1", "CLOUD_ML_REGION": "global",
              "ANTHROPIC_VERTEX_BASE_URL": url + "/v1", "GOOGLE_CLOUD_PROJECT": "p-1",
              "GOOGLE_APPLICATION_CREDENTIALS": folder + "/google.json"}
    cases = [
        ("service account", account, vertex, "token-of-the-service-account"),
        ("workload identity federation", federated, vertex, "impersonated-by-Bearer-federated"),
        ("entra", {}, {"CLAUDE_CODE_USE_FOUNDRY": "1", "AZURE_AUTHORITY_HOST": url,
                       "ANTHROPIC_FOUNDRY_BASE_URL": url + "/anthropic",
                       "AZURE_TENANT_ID": "tenant-1", "AZURE_CLIENT_ID": "app-1",
                       "AZURE_FEDERATED_TOKEN_FILE": folder + "/oidc"}, "token-of-entra"),
    ]
    for name, credentials, variables, token in cases:
        with open(folder + "/google.json", "w", encoding="utf-8") as file:
            json.dump(credentials, file)
        outlast(variables, folder)
        found = header(server.seen[-1], "authorization")
        assert found == f"Bearer {token}", f"{name}: {found}"
        print(f"ok {name}")


def main():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    server.seen = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as folder:
        outlast({"CLAUDE_CODE_USE_BEDROCK": "1", "AWS_REGION": "us-east-1",
                 "AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET,
                 "AWS_SESSION_TOKEN": SESSION, "ANTHROPIC_BEDROCK_BASE_URL": url}, folder)
        outlast({"CLAUDE_CODE_USE_VERTEX": "1", "CLOUD_ML_REGION": "europe-west1",
                 "ANTHROPIC_VERTEX_PROJECT_ID": "p-1", "CLAUDE_CODE_SKIP_VERTEX_AUTH": "1",
                 "ANTHROPIC_AUTH_TOKEN": "token-1", "ANTHROPIC_VERTEX_BASE_URL": url + "/v1"},
                folder)
        outlast({"CLAUDE_CODE_USE_FOUNDRY": "1", "ANTHROPIC_FOUNDRY_API_KEY": "key-1",
                 "ANTHROPIC_FOUNDRY_BASE_URL": url + "/anthropic"}, folder)
        bedrock, vertex, foundry = server.seen
        identities(server, url, folder)
    for name in [name for name in os.environ if name.startswith(("AWS_", "ANTHROPIC_"))]:
        del os.environ[name]
    clients = {
        "bedrock": AnthropicBedrock(aws_access_key=KEY_ID, aws_secret_key=SECRET,
                                    aws_session_token=SESSION, aws_region="us-east-1",
                                    base_url=url),
        "vertex": AnthropicVertex(region="europe-west1", project_id="p-1",
                                  access_token="token-1", base_url=url + "/v1"),
        "foundry": AnthropicFoundry(api_key="key-1", base_url=url + "/anthropic"),
    }
    models = {"bedrock": "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
              "vertex": "claude-sonnet-4-5@20250929", "foundry": MODEL}
    headers = {"bedrock": ["content-type", "x-amz-security-token"],
               "vertex": ["content-type", "authorization"],
               "foundry": ["content-type", "x-api-key", "api-key"]}
    for name, ours in (("bedrock", bedrock), ("vertex", vertex), ("foundry", foundry)):
        ask_sdk(clients[name], json.loads(ours[2]), models[name])
        compare(name, ours, server.seen[-1], headers[name])
    check_signature(bedrock, port)
    server.shutdown()


if __name__ == "__main__":
    sys.exit(main())
