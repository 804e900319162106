// Places in source files: where a function stands, and where in the user's code an error was thrown.
"use strict";
const fs = require("node:fs");
const { fileURLToPath } = require("node:url");
const { messageOf } = require("./results.cjs");

const HIDDEN_FRAMES = /toolcrib-worker|data:text\/javascript,|node:internal|\(<anonymous>\)|^\s+at (new Promise|eval) /;

/** The stack of an exception without the frames of the worker and of Node. With its causes. */
function userStack(error, depth = 0) {
  let text;
  try {
    text = typeof error?.stack === "string" ? error.stack : `a value that is not an Error was thrown: ${messageOf(error)}`;
    text = text.split("\n").filter((line) => !/^\s+at /.test(line) || !HIDDEN_FRAMES.test(line)).join("\n");
    if (error?.cause instanceof Error && depth < 5) text += `\ncaused by: ${userStack(error.cause, depth + 1)}`;
  } catch {
    text = "an exception whose stack cannot be read";
  }
  return text;
}

/** {file, line} of the innermost place in the user's own code; {} if there is none. */
function errorPlace(error) {
  let stack = "";
  try {
    stack = String(error?.stack ?? "");
  } catch {} // a getter that throws
  const places = [...stack.matchAll(/(?<![\w.-])((?:file:\/\/)?\/[^\s():'"?]+)(?:\?[^\s:()]*)?:(\d+)/g)].map(([, file, line]) => ({
    file: file.startsWith("file:") ? fileURLToPath(file) : file, line: Number(line),
  }));
  const files = places.filter(({ file }) => !file.includes("toolcrib-worker"));
  return files.find(({ file }) => !file.includes("/node_modules/")) ?? files[0] ?? {};
}

const formatPlace = ({ file, line }) => (file && line ? `${file}:${line}` : file || "?");

/** The text of a file; empty if it is gone. */
const readText = (file) => { try { return fs.readFileSync(file, "utf8"); } catch { return ""; } };

/** The line of the first place in the file where one of the patterns matches. */
function findLine(file, ...patterns) {
  const text = readText(file);
  for (const pattern of patterns) {
    const at = text.search(pattern);
    if (at >= 0) return text.slice(0, at + (/^\s*/.exec(text.slice(at))?.[0].length ?? 0)).split("\n").length;
  }
}

module.exports = { userStack, errorPlace, formatPlace, findLine, readText };
