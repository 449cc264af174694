#!/usr/bin/env node
// Starts the binary, which is in the package of this platform, and ends as it ends.
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");

const name = `@outlast/${process.platform}-${process.arch}`;

function findBinary() {
  try {
    return require.resolve(`${name}/bin/outlast`);
  } catch {
    console.error(
      `outlast: the package ${name} is not installed: either there is none for this platform, ` +
        "or optional dependencies were left out; install outlast again without --omit=optional",
    );
    process.exit(2);
  }
}

const binary = findBinary();
const args = process.argv.slice(2);
if (process.execve) {
  // The binary takes the place of this process.
  process.execve(binary, [binary, ...args], process.env);
}

const child = spawn(binary, args, { stdio: "inherit" });
// A terminal sends these to all of its processes, so that the binary has them already.
const sentByTerminals = ["SIGINT", "SIGQUIT", "SIGHUP"];
const hasTerminal = process.stdin.isTTY || process.stdout.isTTY || process.stderr.isTTY;
for (const signal of [...sentByTerminals, "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGCONT"]) {
  process.on(signal, () => {
    if (!hasTerminal || !sentByTerminals.includes(signal)) child.kill(signal);
  });
}
child.on("error", (error) => {
  console.error(`outlast: cannot run ${binary}: ${error.message}`);
  process.exit(126);
});
child.on("close", (code, signal) => {
  if (signal === null) process.exit(code);
  // Ends by the same signal; where it cannot, with the code that shells give.
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
  process.exitCode = 128 + constants.signals[signal];
});
