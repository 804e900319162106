// Calls: from the message of a call to the line that answers it.
"use strict";
const { TOO_LARGE, wellFormed, parseJson, bigIntegers } = require("./json.cjs");
const { BadOutput, JsonWriter, render, isRecord, isStream, messageOf, errorText, textBlock } = require("./results.cjs");
const { InvalidArguments } = require("./tools.cjs");
const { userStack } = require("./locations.cjs");
const { exit, isUtf8 } = require("./wire.cjs");

const MAX_STACK_CHARS = 8 << 10;
const MAX_ERROR_CHARS = 1 << 20; // of an exception's text. The service redacts secrets before it shortens the text.
const CANCEL_MS = 500; // A cancelled function may end within this time. After that its end is not awaited.
const MAX_STEPS_IN_A_ROW = 100; // of a generator that waits for nothing. Then other calls, and its own cancellation, have a turn.
const quote = JSON.stringify, nextTurn = setImmediate; // a tool may replace the global ones

/** The caller of the call cannot be asked, or has left without an answer. */
class NotAsked extends Error {
  name = "NotAsked";
}

/** One call, from its message until its end. */
class Call {
  constructor(message, tool, wire) {
    Object.assign(this, { id: message.id, tool, arguments: message.arguments ?? {}, wire, hasEnded: false, isCancelled: false, lastQuestion: 0 });
    this.fields = message.context ?? {};
    this.watched = message.watched === true;
    this.asks = message.asks === true;
    this.endsAt = message.deadline_ms === undefined ? undefined : Date.now() + message.deadline_ms;
    this.controller = this.questions = this.madeContext = undefined;
  }

  get signal() {
    this.controller ??= new AbortController();
    if (this.isCancelled) this.controller.abort(this.reason);
    return this.controller.signal;
  }

  get toolUseId() { return this.fields.tool_use_id ?? this.fields.invocation_id ?? ""; }

  /** What the tool learns about the call. */
  get context() {
    if (this.madeContext) return this.madeContext;
    const call = this, fields = this.fields, progress = (data) => call.progress(data);
    return (this.madeContext = {
      invocationId: fields.invocation_id, toolUseId: this.toolUseId, runId: fields.run_id ?? undefined, caller: fields.caller,
      agent: fields.agent ?? fields.caller, attempt: fields.attempt ?? 1, state: fields.state ?? {},
      deadline: this.endsAt === undefined ? undefined : new Date(this.endsAt), progress, onProgress: progress,
      ask: (message, schema, options) => call.ask(message, schema, options),
      get signal() { return call.signal; },
      get abortSignal() { return call.signal; },
    });
  }

  /** Sends progress, if the call is watched and has not ended. */
  progress(data) {
    if (!this.watched || this.hasEnded || this.isCancelled) return;
    try {
      this.wire.send(`{"op":"progress","id":${this.id},"data":${new JsonWriter(this.wire.maxLine).write(data)}}`);
    } catch (error) {
      this.wire.writeLog(`${this.tool.name}: progress was dropped: ${messageOf(error)}`);
    }
  }

  /** Asks the caller: {action: "accept" | "decline" | "cancel", content, accepted}. */
  ask(message, schema, { name } = {}) {
    if (!this.asks) return Promise.reject(new NotAsked("the caller of this call cannot be asked: it takes no questions"));
    if (this.hasEnded || this.isCancelled) return Promise.reject(new NotAsked("the call has ended"));
    const question = ++this.lastQuestion;
    this.wire.send(`{"op":"ask","id":${this.id},"data":${quote({ question, message: String(message), schema: schema ?? null, name: name ?? null })}}`);
    return new Promise((resolve, reject) => (this.questions ??= new Map()).set(question, { resolve, reject }));
  }

  answer({ question, error, action, content }) {
    const waiting = this.questions?.get(question);
    this.questions?.delete(question);
    if (error !== undefined) waiting?.reject(new NotAsked(error));
    else waiting?.resolve({ action, content: content ?? {}, accepted: action === "accept" });
  }

  cancel() {
    if (this.isCancelled) return;
    this.isCancelled = true;
    const isLate = this.endsAt !== undefined && Date.now() >= this.endsAt - 50;
    this.reason = isLate ? new DOMException("The deadline of the call has passed", "TimeoutError") : new DOMException("The call was cancelled", "AbortError");
    this.controller?.abort(this.reason);
    setTimeout(() => this.end(`{"op":"cancelled","id":${this.id}}`), CANCEL_MS).unref();
  }

  /** Sends the last line of the call, once. */
  end(line) {
    if (this.hasEnded) return;
    this.hasEnded = true;
    this.wire.send(line);
    this.onEnd();
  }

  async run() {
    try {
      const { tool } = this;
      let value = tool.start(this.arguments, this);
      if (typeof value === "object" && value !== null) {
        value = await value;
        if (isGenerator(value)) value = await this.exhaust(value);
      }
      if (!this.hasEnded) this.end(this.isCancelled ? `{"op":"cancelled","id":${this.id}}` : await this.resultLines(value));
    } catch (error) {
      if (this.hasEnded) return;
      if (this.isCancelled) this.end(`{"op":"cancelled","id":${this.id}}`);
      else this.end(error instanceof InvalidArguments ? invalidLine(this.id, error.violations) : this.errorLine(error));
    }
  }

  /** The result of a generator: the value that it returns, or else the last one that it yields. Each yield is progress. */
  async exhaust(generator) {
    let last, held, isHeld = false, hasReports = false;
    for (let count = 1; ; count++) {
      if (count % MAX_STEPS_IN_A_ROW === 0) await new Promise((done) => nextTurn(done));
      const step = await generator.next();
      if (this.isCancelled) { await generator.return?.(); return undefined; }
      if (step.done) return step.value === undefined ? last : step.value;
      if (isHeld) this.progress(held);
      last = step.value;
      // After reports such as {progress: 1, total: 2}, a last value of another form is only the result.
      const isReport = isRecord(last) && typeof last.progress === "number";
      hasReports ||= isReport;
      isHeld = hasReports && !isReport;
      if (isHeld) held = last;
      else this.progress(last);
    }
  }

  async resultLines(value) {
    const writer = new JsonWriter(this.wire.maxLine);
    try {
      const { content, structured, isError, hint, resultAsAnswer } = await (this.tool.render ?? render)(value, writer, this);
      const written = content.length === 1 && content[0].text === structured && structured ? `[{"type":"text","text":${quote(structured)}}]` : new JsonWriter(Infinity).write(content);
      const line = `{"op":"result","id":${this.id},"content":${written},"structured_content":${structured ?? "null"},"is_error":${isError === true}` +
        (resultAsAnswer === undefined ? "" : `,"result_as_answer":${resultAsAnswer}`) + (hint ? `,"hint":${quote(hint)}` : "") + "}";
      if (line.length > this.wire.maxLine / 4 && Buffer.byteLength(line) > this.wire.maxLine) {
        throw new BadOutput(`the result is ${Buffer.byteLength(line)} bytes long; the limit is ${this.wire.maxLine}`);
      }
      return writer.warnings().map((message) => `{"op":"warning","id":${this.id},"message":${quote(message)}}\n`).join("") + line;
    } catch (error) {
      if (error instanceof BadOutput) return badOutputLine(this.id, error.message);
      this.wire.writeLog(userStack(error));
      return badOutputLine(this.id, `the result cannot be passed on: ${errorText(error).replace(/^Error: /, "").slice(0, MAX_ERROR_CHARS)}`);
    }
  }

  /** Writes the stack of an exception to the log. */
  noteError(error) {
    let stack = wellFormed(userStack(error));
    if (stack.length > MAX_STACK_CHARS) stack = `${stack.slice(0, MAX_STACK_CHARS)}…`;
    this.wire.send(`{"op":"traceback","id":${this.id},"message":${quote(stack)}}`);
  }

  /** The line for an exception: its text for a model. */
  errorLine(error) {
    this.noteError(error);
    const text = (this.tool.formatError ?? errorText)(error).slice(0, MAX_ERROR_CHARS);
    return `{"op":"result","id":${this.id},"content":[${quote(textBlock(text))}],"structured_content":null,"is_error":true}`;
  }
}

const isGenerator = (value) => typeof value?.next === "function" && (Symbol.asyncIterator in value || Symbol.iterator in value) && !isStream(value);
const badOutputLine = (id, message) => `{"op":"failed_call","id":${id},"kind":"bad_output","message":${quote(wellFormed(message))}}`;
const invalidLine = (id, violations) => `{"op":"invalid","id":${id},"violations":${quote(violations)}}`;

/** Answers calls until the input ends. `tools`: Map of name and tool. */
function serve(wire, tools) {
  const calls = new Map();

  function onLine(text, bytes) {
    let message;
    try {
      if (text.includes("\ufffd") && !isUtf8(bytes)) throw new SyntaxError("it is not UTF-8");
      message = parseJson(text);
    } catch (error) {
      const id = /^\{"op":"call","id":(\d+)/.exec(text)?.[1];
      if (id) wire.send(invalidLine(id, [{ pointer: "", message: `cannot be read: ${messageOf(error).slice(0, 300)}` }]));
      else wire.writeLog(`toolcrib worker: a line that cannot be read: ${messageOf(error).slice(0, 300)}`);
      return;
    }
    if (message.op === "answer") calls.get(message.id)?.answer(message);
    else if (message.op === "cancel") calls.get(message.id)?.cancel();
    else if (message.op === "call") startCall(message, text);
  }

  function startCall(message, text) {
    const tool = tools.get(message.tool);
    if (!tool) return wire.send(badOutputLine(message.id, `this worker has no tool '${message.tool}'`));
    const big = /\d{16}/.test(text) ? bigIntegers(message.arguments) : [];
    if (big.length && !tool.takesBigIntegers) return wire.send(invalidLine(message.id, big.map((pointer) => ({ pointer, message: `${TOO_LARGE}: pass a text` }))));
    const call = new Call(message, tool, wire);
    call.hasBigIntegers = big.length > 0;
    calls.set(call.id, call);
    call.onEnd = () => calls.delete(call.id);
    call.run().catch(() => call.end(badOutputLine(call.id, "the exception of the function cannot be read")));
  }

  function onEnd() {
    for (const call of calls.values()) call.cancel();
    setTimeout(() => exit(0), calls.size ? CANCEL_MS : 0);
  }

  return { onLine, onEnd };
}

module.exports = { serve };
