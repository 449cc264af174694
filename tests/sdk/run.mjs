// Runs the scenarios of the TypeScript SDK: `OUTLAST=PATH SDK_PACKAGES=FOLDER run.mjs [FILTER...]`.
import { playAll } from "./harness.mjs";
import "./scenarios.mjs";
import "./action.mjs";

process.exitCode = await playAll(process.argv.slice(2));
