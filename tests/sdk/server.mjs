// A scripted model service on loopback: the streaming Messages API. A script is a list of replies; a
// request takes the first one that is left and whose condition it meets.
import http from "node:http";

export const say = (text, more = {}) => ({ blocks: [{ type: "text", text }], ...more });
export const tool = (name, input) => ({ type: "tool_use", name, input });
export const call = (name, input, more = {}) => ({ blocks: [tool(name, input)], ...more });
export const fail = (status, error, message = "scripted error") => ({ status, error, message });

/** The text of the messages of a role. */
export function textOf(request, role = "user") {
  const blocks = request.messages.filter((message) => message.role === role).flatMap((message) =>
    typeof message.content === "string" ? [{ type: "text", text: message.content }] : message.content);
  return blocks.filter((block) => block.type === "text").map((block) => block.text).join("\n");
}

export const systemOf = (request) =>
  typeof request.system === "string" ? request.system : (request.system ?? []).map((b) => b.text).join("\n");

/** The newest tool result, as JSON text. */
export const lastResult = (request) => JSON.stringify(request.messages.at(-1).content);

export class ModelServer {
  script = [];
  requests = [];
  complaints = [];
  #ids = 0;
  #http = http.createServer((request, response) => this.#serve(request, response));

  async start() {
    await new Promise((done) => this.#http.listen(0, "127.0.0.1", done));
    this.url = `http://127.0.0.1:${this.#http.address().port}`;
  }

  stop() {
    this.#http.close();
    this.#http.closeAllConnections();
  }

  async #serve(request, response) {
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    if (request.method !== "POST" || request.url.split("?")[0] !== "/v1/messages") {
      return this.#error(response, fail(404, "not_found_error"));
    }
    const body = JSON.parse(Buffer.concat(pieces).toString());
    this.requests.push(body);
    const reply = this.#take(body);
    if (reply.status) return this.#error(response, reply);
    await this.#stream(response, body, reply);
  }

  #take(body) {
    const at = this.script.findIndex((reply) => !reply.when || reply.when(body));
    if (at < 0) {
      this.complaints.push(`request ${this.requests.length} has no reply in the script`);
      return fail(400, "invalid_request_error", "the script has no reply for this request");
    }
    return this.script[at].repeat ? this.script[at] : this.script.splice(at, 1)[0];
  }

  #error(response, { status, error, message }) {
    response.writeHead(status, { "content-type": "application/json" });
    response.end(JSON.stringify({ type: "error", error: { type: error, message } }));
  }

  async #stream(response, body, reply) {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const event = (type, values) => response.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...values })}\n\n`);
    const usage = reply.usage ?? { input_tokens: 100, output_tokens: 10 };
    event("message_start", {
      message: { id: `msg_${++this.#ids}`, type: "message", role: "assistant", content: [], model: body.model,
        stop_reason: null, stop_sequence: null, usage: { ...usage, output_tokens: 1 } },
    });
    for (const [index, block] of reply.blocks.entries()) {
      const call = block.type === "tool_use";
      const whole = call ? JSON.stringify(block.input) : block.text;
      const start = call ? { ...block, id: `toolu_${++this.#ids}`, input: {} } : { type: "text", text: "" };
      event("content_block_start", { index, content_block: start });
      const size = Math.max(24, Math.ceil(whole.length / 50));
      for (let at = 0; at < whole.length; at += size) {
        const piece = whole.slice(at, at + size);
        event("content_block_delta", {
          index, delta: call ? { type: "input_json_delta", partial_json: piece } : { type: "text_delta", text: piece },
        });
        reply.begun?.();
        if (reply.gate) await reply.gate;
      }
      event("content_block_stop", { index });
    }
    const stop = reply.blocks.some((block) => block.type === "tool_use") ? "tool_use" : "end_turn";
    event("message_delta", { delta: { stop_reason: stop, stop_sequence: null }, usage });
    event("message_stop", {});
    response.end();
  }
}
