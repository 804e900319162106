#!/usr/bin/env node
// Starts the program of the platform package, or the one that TOOLCRIB_BIN names.
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { constants } from "node:os";
import process from "node:process";

const name = `@toolcrib/${process.platform}-${process.arch}`;

function program() {
  if (process.env.TOOLCRIB_BIN) return process.env.TOOLCRIB_BIN;
  try {
    return createRequire(import.meta.url).resolve(`${name}/bin/toolcrib`);
  } catch {
    console.error(`toolcrib: the package ${name}, which holds the program, is not installed. Install it, or name the program in TOOLCRIB_BIN.`);
    process.exit(1);
  }
}

// In a group of its own. The Ctrl-C of a terminal would reach it twice otherwise, and a second one cancels the running calls.
const child = spawn(program(), process.argv.slice(2), { stdio: "inherit", detached: true });
// The program decides how it ends.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  console.error(`toolcrib: the program cannot be started: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
