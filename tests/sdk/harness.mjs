// What all scenarios share: folders and a service of their own, what a run showed, and the runner.
import assert from "node:assert/strict";
import fs from "node:fs";
import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { ModelServer } from "./server.mjs";

// The packages are not beside this file, so they are looked up where they were installed.
const packages = process.env.SDK_PACKAGES ?? "";
const lookup = createRequire(path.resolve(packages, "lookup.js"));
export const sdk = await import(pathToFileURL(lookup.resolve("@anthropic-ai/claude-agent-sdk")).href);
export const { z } = await import(pathToFileURL(lookup.resolve("zod")).href);

export const MODEL = "claude-sonnet-5-5";
const TIME_LIMIT = 20_000;
const AT_A_TIME = 6;
const scenarios = new Map();

export function scenario(name, run) {
  assert(!scenarios.has(name), name);
  scenarios.set(name, run);
}

/** What the user of the SDK saw of a run. */
export class Shown {
  messages = [];
  error = null;
  of = (type, subtype) => this.messages.filter((m) => m.type === type && (!subtype || m.subtype === subtype));
  get results() { return this.of("result"); }
  get init() { return this.of("system", "init")[0]; }
  get result() {
    assert.equal(this.results.length, 1, `results in ${JSON.stringify(this.kinds())}`);
    return this.results[0];
  }
  kinds = () => this.messages.map((m) => m.subtype ?? m.type);
  blocks = (from, type) => this.of(from).flatMap((m) => m.message.content).filter((b) => b.type === type);
  texts = () => this.blocks("assistant", "text").map((block) => block.text);
  toolResults = () => this.blocks("user", "tool_result");
  good() {
    assert.equal(this.error, null, String(this.error));
    assert.equal(this.result.subtype, "success", JSON.stringify(this.result));
    assert.equal(this.result.is_error, false);
    return this.result;
  }
}

export class World {
  constructor(root) {
    this.root = root;
    this.work = path.join(root, "work");
    this.config = path.join(root, "config");
    this.pids = path.join(root, "pids");
    this.cli = path.join(root, "claude");
    this.server = new ModelServer();
  }

  async setUp() {
    for (const name of ["work", "config", "home"]) fs.mkdirSync(path.join(this.root, name));
    const outlast = path.resolve(process.env.OUTLAST);
    fs.writeFileSync(this.cli, `#!/bin/sh\necho $$ >>"${this.pids}"\nexec "${outlast}" "$@"\n`, { mode: 0o755 });
    await this.server.start();
  }

  script(...replies) { this.server.script.push(...replies); }
  get requests() { return this.server.requests; }
  path(name) { return path.join(this.work, name); }
  exists(name) { return fs.existsSync(this.path(name)); }
  read(name) { return fs.readFileSync(this.path(name), "utf8"); }
  write(name, content) {
    fs.mkdirSync(path.dirname(this.path(name)), { recursive: true });
    fs.writeFileSync(this.path(name), content);
  }

  options({ env, ...more } = {}) {
    return {
      pathToClaudeCodeExecutable: this.cli, cwd: this.work, model: MODEL, settingSources: [], ...more,
      env: {
        PATH: process.env.PATH, HOME: path.join(this.root, "home"), CLAUDE_CONFIG_DIR: this.config,
        ANTHROPIC_BASE_URL: this.server.url, ANTHROPIC_API_KEY: "sk-ant-scripted",
        CLAUDE_CODE_MAX_RETRIES: "1", ...env,
      },
    };
  }

  /** Runs a query to its end; `each` sees every message and the query. */
  async query(prompt, options = {}, each = () => {}) {
    const shown = new Shown();
    try {
      const query = sdk.query({ prompt, options: this.options(options) });
      for await (const message of query) {
        shown.messages.push(message);
        await each(message, query);
      }
    } catch (error) {
      if (error instanceof assert.AssertionError) throw error;
      shown.error = error;
    }
    return shown;
  }

  running() {
    if (!fs.existsSync(this.pids)) return [];
    return fs.readFileSync(this.pids, "utf8").trim().split("\n").map(Number).filter(isRunning);
  }

  tearDown() {
    this.server.stop();
    for (const pid of this.running()) process.kill(pid, "SIGKILL");
    fs.rmSync(this.root, { recursive: true, force: true });
  }
}

function isRunning(pid) {
  try {
    const stat = fs.readFileSync(`/proc/${pid}/stat`, "utf8");
    return stat.slice(stat.lastIndexOf(")") + 2)[0] !== "Z";
  } catch {
    return false;
  }
}

/** Polls a condition that has no event to wait for. */
export async function until(condition, milliseconds = 10_000) {
  const end = Date.now() + milliseconds;
  while (!condition()) {
    if (Date.now() > end) return false;
    await new Promise((done) => setTimeout(done, 20));
  }
  return true;
}

export const prompt = (text) => ({ type: "user", message: { role: "user", content: text }, parent_tool_use_id: null });

/** Prompts that are given one after the other; `end` ends the input. */
export class Prompts {
  #waiting = [];
  #wake = () => {};
  #ended = false;
  send(text) { this.#waiting.push(prompt(text)); this.#wake(); }
  end() { this.#ended = true; this.#wake(); }
  async *[Symbol.asyncIterator]() {
    for (;;) {
      while (this.#waiting.length) yield this.#waiting.shift();
      if (this.#ended) return;
      await new Promise((done) => { this.#wake = done; });
    }
  }
}

async function play(name) {
  const world = new World(fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "outlast-sdk-"))));
  let timer;
  try {
    await world.setUp();
    const limit = new Promise((_, fail) => {
      timer = setTimeout(() => fail(new Error(`not done in ${TIME_LIMIT / 1000} s`)), TIME_LIMIT);
    });
    await Promise.race([scenarios.get(name)(world), limit]);
    assert(await until(() => world.running().length === 0, 5_000), "a process of outlast is still running");
    assert.deepEqual(world.server.complaints, []);
    assert.equal(world.server.script.filter((r) => !r.repeat).length, 0, "replies were not asked for");
    return null;
  } catch (error) {
    const at = /(scenarios|action)\.mjs:\d+/.exec(error.stack ?? "")?.[0] ?? "";
    return `${error.message} (${at}) ${world.server.complaints.join("; ")}`.replaceAll("\n", " ").slice(0, 900);
  } finally {
    clearTimeout(timer);
    world.tearDown();
  }
}

/** Runs the scenarios whose name contains a filter; returns the exit code. */
export async function playAll(filters) {
  // A scenario that was given up leaves its query behind; its error must not end the other scenarios.
  process.on("unhandledRejection", () => {});
  for (const name of Object.keys(process.env)) {
    if (/^(ANTHROPIC_|CLAUDE|OUTLAST_|GITHUB_|CI$)/.test(name)) delete process.env[name];
  }
  const names = [...scenarios.keys()].filter((n) => !filters.length || filters.some((f) => n.includes(f)));
  const count = names.length;
  let failed = 0;
  const worker = async () => {
    for (let name = names.shift(); name; name = names.shift()) {
      const why = await play(name);
      if (why) failed += 1;
      console.log(why ? `FAILED ${name}: ${why}` : `ok ${name}`);
    }
  };
  await Promise.all(Array.from({ length: AT_A_TIME }, worker));
  console.log(`${count - failed} of ${count} scenarios passed`);
  return failed || !count ? 1 : 0;
}
