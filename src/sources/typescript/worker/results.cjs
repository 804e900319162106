// Results: values of JavaScript as JSON, and as content blocks of MCP.
"use strict";
const { parseJson, wellFormed } = require("./json.cjs");

const MAX_DEPTH = 100; // levels of lists and objects; the service reads messages of at most 128 levels
const MAX_NAMED_LOSSES = 5; // numbers that get their own warning
const MAX_HINT_CHARS = 300;
const MARK = `\u0001${Math.random().toString(36).slice(2)}:`; // before the digits of a bigint in a text that becomes JSON
const BIG_INTEGERS = new RegExp(`"${JSON.stringify(MARK).slice(1, -1).replace("\\", "\\\\")}(-?\\d+)"`, "g");
const SIGNATURES = [ // first bytes of files: WHATWG's MIME Sniffing Standard, 6.1 and 6.2
  [/^\x89PNG\r\n\x1a\n/, "image/png"], [/^\xff\xd8\xff/, "image/jpeg"], [/^GIF8[79]a/, "image/gif"], [/^RIFF....WEBPVP/s, "image/webp"],
  [/^RIFF....WAVE/s, "audio/wav"], [/^(ID3|\xff\xfb)/, "audio/mpeg"], [/^OggS\0/, "audio/ogg"], [/^%PDF-/, "application/pdf"],
];

const { parse, stringify } = JSON; // a tool may replace the global one

/** A result that cannot be passed on. The message is the reason. */
class BadOutput extends Error {}

const className = (value) => value?.constructor?.name || "Object";
const isRecord = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const textBlock = (text) => ({ type: "text", text: wellFormed(text) });

/** The bytes of a Buffer, Uint8Array, DataView or ArrayBuffer; else undefined. */
function bytesOf(value) {
  if (value instanceof Uint8Array || value instanceof DataView) return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  if (value instanceof ArrayBuffer || value instanceof SharedArrayBuffer) return Buffer.from(value);
}

/** Writes values as JSON. `limit`: the most characters. */
class JsonWriter {
  constructor(limit = 4 << 20) { Object.assign(this, { limit, size: 0, lost: [], hasBigIntegers: false, parents: new Set() }); }

  write(value) {
    const text = stringify(this.plain(value, "")) ?? "null";
    return this.hasBigIntegers ? text.replace(BIG_INTEGERS, "$1") : text;
  }

  /** A copy that JSON.stringify writes as it is. `place`: where the value stands in the result. */
  plain(value, place) {
    if (typeof value === "string") return this.grow(value.length, wellFormed(value));
    this.grow(1);
    if (typeof value === "bigint") return (this.hasBigIntegers = true) && MARK + value;
    if (typeof value === "number" && !Number.isFinite(value)) return this.lost.push([place, value]) && null;
    if (typeof value !== "object" || value === null) return typeof value === "function" || typeof value === "symbol" ? undefined : value;
    if (this.parents.has(value)) throw new BadOutput(`the result refers to itself at ${place || "its root"}`);
    if (this.parents.size >= MAX_DEPTH) throw new BadOutput(`the result is nested deeper than ${MAX_DEPTH} levels`);
    this.parents.add(value);
    try { return this.plainObject(value, place); } finally { this.parents.delete(value); }
  }

  plainObject(value, place) {
    if (Array.isArray(value)) return value.map((item, at) => this.plain(item, `${place}[${at}]`) ?? null);
    const bytes = bytesOf(value);
    if (bytes) return this.plain(bytes.toString("base64"), place);
    if (typeof value.toJSON === "function") return this.plain(value.toJSON(""), place);
    if (value instanceof Map) {
      const keys = [...value.keys()];
      if (keys.every((key) => typeof key !== "object" || key === null)) return this.fields([...value].map(([key, item]) => [String(key), item]), place);
      return this.plain([...value], place);
    }
    if (ArrayBuffer.isView(value) || value instanceof Set) return this.plain([...value], place);
    if (value instanceof Error) return this.fields([["name", value.name], ["message", value.message], ...Object.entries(value)], place);
    if (value instanceof RegExp) return this.plain(String(value), place);
    if (value instanceof Number || value instanceof String || value instanceof Boolean || value instanceof BigInt) return this.plain(value.valueOf(), place);
    if (typeof value.then === "function") throw new BadOutput(`the result has a promise at ${place || "its root"}: await it first`);
    const fields = Object.entries(value);
    if (fields.length || Object.getPrototypeOf(value) === null || Object.getPrototypeOf(value).constructor === Object) return this.fields(fields, place);
    if (value.toString !== Object.prototype.toString) return this.plain(String(value), place);
    if (!place) throw new BadOutput(`the function returned an object of the class ${className(value)}, which has no fields: return a plain object, or give the class a method toJSON`);
    return {};
  }

  fields(fields, place) {
    const copy = {};
    for (const [name, item] of fields) {
      const written = this.plain(item, place ? `${place}.${name}` : name);
      if (written === undefined) continue;
      this.grow(name.length);
      if (name === "__proto__") Object.defineProperty(copy, name, { value: written, enumerable: true });
      else copy[wellFormed(name)] = written;
    }
    return copy;
  }

  grow(length, value) {
    this.size += length + 1;
    if (this.size > this.limit) throw new BadOutput(`the result is longer than the limit of ${this.limit} bytes`);
    return value;
  }

  /** A warning for each number that JSON cannot contain, and one for the rest. */
  warnings() {
    const found = this.lost.slice(0, MAX_NAMED_LOSSES).map(([place, number]) => `${place.slice(0, 200)}: not a JSON number (${number}), sent as null`);
    const more = this.lost.length - MAX_NAMED_LOSSES;
    if (more > 0) found.push(`${more} more ${more === 1 ? "value is" : "values are"} not JSON numbers, sent as null`);
    return found;
  }
}

function sniff(bytes) {
  const start = bytes.subarray(0, 16).toString("latin1");
  return SIGNATURES.find(([pattern]) => pattern.test(start))?.[1] ?? "application/octet-stream";
}

/** The block of bytes: an image, a sound or a file. */
function bytesBlock(bytes, type, name = "result") {
  const mimeType = type?.split(";")[0].trim() || sniff(bytes);
  const family = mimeType.split("/")[0];
  if (family === "image" || family === "audio") return { type: family, data: bytes.toString("base64"), mimeType };
  const isText = (family === "text" || mimeType === "application/json") && require("node:buffer").isUtf8(bytes);
  return { type: "resource", resource: { uri: `result:///${encodeURIComponent(name)}`, mimeType, ...(isText ? { text: bytes.toString() } : { blob: bytes.toString("base64") }) } };
}

/** Whether a value is a content block of MCP. */
function isMcpBlock(part) {
  if (!isRecord(part)) return false;
  if (part.type === "text") return typeof part.text === "string";
  if (part.type === "image" || part.type === "audio") return typeof part.data === "string" && typeof part.mimeType === "string";
  if (part.type === "resource_link") return typeof part.uri === "string" && typeof part.name === "string";
  const { uri, text, blob } = (part.type === "resource" && part.resource) || {};
  return typeof uri === "string" && (typeof text === "string") !== (typeof blob === "string");
}

/** `{content: [blocks of MCP], structuredContent?, isError?}`, the result of an MCP tool. */
const isMcpResult = (value) => isRecord(value) && Array.isArray(value.content) && (value.content.length > 0 || "structuredContent" in value || "isError" in value) && value.content.every(isMcpBlock);

/** The block of a content part of the AI SDK, or of LangChain or the OpenAI Agents SDK; undefined for other values. */
function partBlock(part) {
  if (typeof part === "string") return textBlock(part);
  if (!isRecord(part)) return undefined;
  if (/^(text|input_text|output_text)$/.test(part.type) && typeof part.text === "string") return textBlock(part.text);
  if (isMcpBlock(part)) return part;
  if (!/^(image|audio|file|media|image_url|input_image|input_file|(image|file)-(data|url))$/.test(part.type)) return undefined;
  const first = (...names) => names.map((name) => part[name]).find((value) => value !== undefined);
  let type = first("mediaType", "mime_type", "mimeType"), data = first("data", "base64", "image", "file", "image_url", "url", "imageUrl");
  const name = first("filename", "name") ?? data?.filename ?? "file";
  if (isRecord(data) && !bytesOf(data)) {
    type ??= data.mediaType;
    data = data.data ?? data.url ?? data.text;
    if (part.type === "file" && data === undefined) return undefined;
  }
  data = data instanceof URL ? String(data) : data;
  const inline = typeof data === "string" && /^data:([\w.+-]+\/[\w.+-]+);base64,(.*)$/s.exec(data);
  if (inline) [, type, data] = inline;
  const bytes = bytesOf(data);
  if (bytes) return bytesBlock(bytes, type, name);
  if (typeof data !== "string") return undefined;
  if (/^https?:/.test(data)) return { type: "resource_link", uri: data, name, ...(type && { mimeType: type }) };
  return bytesBlock(Buffer.from(data, "base64"), type, name);
}

/** The blocks of a list of content parts; undefined if one is something else. */
function partBlocks(parts) {
  if (!Array.isArray(parts)) return undefined;
  const blocks = parts.map(partBlock);
  return blocks.every(Boolean) ? blocks : undefined;
}

/** The value of a stream: a text, bytes or a list of its chunks. */
async function readStream(stream, limit) {
  const chunks = [];
  let size = 0;
  for await (const chunk of stream) {
    size += chunk?.length ?? chunk?.byteLength ?? 1;
    if (size > limit) throw new BadOutput(`the stream of the result is longer than the limit of ${limit} bytes`);
    chunks.push(chunk);
  }
  if (chunks.every((chunk) => typeof chunk === "string")) return chunks.join("");
  return chunks.every(bytesOf) ? Buffer.concat(chunks.map(bytesOf)) : chunks;
}

const isStream = (value) => (typeof ReadableStream === "function" && value instanceof ReadableStream) || (typeof value?.pipe === "function" && typeof value[Symbol.asyncIterator] === "function");

/** The content of a web Response or Blob. */
async function renderBody(body, writer) {
  const isResponse = body instanceof Response;
  const type = (isResponse ? body.headers.get("content-type") : body.type) || "";
  const bytes = isResponse ? await readStream(body.body ?? [], writer.limit) || Buffer.alloc(0) : Buffer.from(await body.arrayBuffer());
  const isError = isResponse && !body.ok, text = bytes.toString();
  if (isResponse && /[/+]json\b/.test(type)) {
    try { return { ...(await render(parseJson(text), writer)), isError }; } catch (error) {
      if (error instanceof BadOutput) throw error; // else it is not JSON: pass the text on
    }
  }
  if (isResponse && (!type || /^text\/|json|xml/.test(type))) return { content: [textBlock(isError ? text || `HTTP ${body.status} ${body.statusText}` : text)], isError };
  return { content: [bytesBlock(bytes, type, body.name)], isError };
}

/** {content, structured?: JSON, isError?, hint?, resultAsAnswer?} of a value that a tool returns. */
async function render(value, writer) {
  if (value === undefined || value === null) return { content: [] };
  if (typeof value === "function" || typeof value === "symbol") throw new BadOutput(`the function returned a ${typeof value}: return a value`);
  if (typeof value !== "object") return { content: [textBlock(String(value))] };
  const bytes = bytesOf(value);
  if (bytes) return { content: [bytesBlock(bytes)] };
  if ((typeof Response === "function" && value instanceof Response) || (typeof Blob === "function" && value instanceof Blob)) return renderBody(value, writer);
  if (isStream(value)) return render(await readStream(value, writer.limit), writer);
  if (value instanceof Error) return { content: [textBlock(errorText(value))], isError: true };
  if (isMcpResult(value)) return renderMcp(value, writer);
  if (isMcpBlock(value) && value.type !== "text") return { content: [value] };
  const parts = value.type === "content" && partBlocks(value.value);
  if (parts) return { content: parts };
  const plain = writer.write(value);
  if (!/^[[{]/.test(plain)) return { content: plain === "null" ? [] : [textBlock(plain.startsWith('"') ? parse(plain) : plain)] };
  return { content: [textBlock(plain)], structured: plain };
}

function renderMcp(value, writer) {
  const structured = value.structuredContent === undefined || value.structuredContent === null ? undefined : writer.write(value.structuredContent);
  const hint = typeof value.hint === "string" ? value.hint.replaceAll("]", ")").split(/\s+/).join(" ").trim().slice(0, MAX_HINT_CHARS) : undefined;
  const content = value.content.length || !structured ? value.content : [textBlock(structured)];
  return { content, structured, isError: value.isError === true, hint, resultAsAnswer: typeof value.resultAsAnswer === "boolean" ? value.resultAsAnswer : undefined };
}

/** The text of an exception; also of a thrown value that is not an Error, and of an Error whose text cannot be read. */
function messageOf(error) {
  try { return !isRecord(error) ? String(error) : typeof error.message === "string" ? error.message : stringify(error) ?? ""; } catch { return ""; }
}

/** The text of an exception for a model. */
function errorText(error) {
  let name = "", message = messageOf(error);
  try {
    if (error instanceof Error && error.name !== "Error") name = String(error.name);
    if (message === "fetch failed" && error.cause) message += `: ${messageOf(error.cause) || error.cause.code}`; // what Node says does not help a model
  } catch {} // an Error with a getter that throws
  return ["Error", name, message].filter(Boolean).join(": ");
}

module.exports = { BadOutput, JsonWriter, render, renderMcp, isRecord, isMcpResult, partBlock, partBlocks, textBlock, messageOf, errorText, className, bytesOf, isStream };
