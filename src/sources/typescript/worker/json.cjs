// Reading JSON with exact integers: those beyond 2^53 become bigint.
"use strict";

const { parse, stringify } = JSON; // a tool may replace the global ones
const TOO_LARGE = "is beyond the integers that a number of JavaScript holds exactly (2^53 - 1)";
const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const MARK = `\u0002${Math.random().toString(36).slice(2)}:`;

/** The value of a JSON text. */
function parseJson(text) {
  if (!/\d{16}/.test(text)) return parse(text);
  parse(text); // refuses what is not JSON, before it is changed
  const marked = text.replace(TOKENS, (token) => (/^-?\d{16,}$/.test(token) && !Number.isSafeInteger(Number(token)) ? stringify(MARK + token) : token));
  return parse(marked, (_, value) => (typeof value === "string" && value.startsWith(MARK) ? BigInt(value.slice(MARK.length)) : value));
}

/** The JSON Pointers of all bigints in a value. */
function bigIntegers(value, pointer = "") {
  if (typeof value === "bigint") return [pointer];
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([name, item]) => bigIntegers(item, pointer + pointerTo(name)));
}

/** The text without halves of surrogate pairs, which UTF-8 cannot hold. */
const wellFormed = (text) => (text.isWellFormed?.() ?? !/\p{Surrogate}/u.test(text) ? text : Buffer.from(text).toString());

const pointerTo = (...path) => path.map((name) => `/${String(name).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");

module.exports = { wellFormed, TOO_LARGE, parseJson, bigIntegers, pointerTo };
