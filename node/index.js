/** A client for the HTTP API of Toolcrib. */

const DEFAULT_URL = "http://localhost:7411";
const BODY_OPTIONS = { toolUseId: "tool_use_id", runId: "run_id", context: "context", cache: "cache", timeout: "timeout", page: "page" };
const HEADER_OPTIONS = { idempotencyKey: "idempotency-key", traceparent: "traceparent", prefer: "prefer" };
const MESSAGE_OPTIONS = {
  dialect: "dialect", runId: "run_id", deny: "deny", context: "context", cache: "cache", timeout: "timeout", model: "model",
  parallel: "parallel", page: "page", waiting: "waiting",
};
const MESSAGE_HEADERS = { idempotencyKey: "idempotency-key", traceparent: "traceparent" };
const OPEN_STATES = ["reserved", "running", "waiting"];
// Milliseconds between two looks at a call that runs.
const FIRST_PAUSE = 100;
const LONGEST_PAUSE = 2000;
const LINE_END = /\r\n|\n|\r/;

/** The service refused or failed a request. The properties are the fields of the problem (RFC 9457). */
export class ToolcribError extends Error {
  constructor(problem, options) {
    super(problem.detail || problem.title || "the request failed", options);
    this.name = "ToolcribError";
    this.problem = problem;
    this.kind = problem.kind ?? "unknown";
    this.status = problem.status ?? null;
    this.retryable = Boolean(problem.retryable);
    this.retryAfterMs = problem.retry_after_ms ?? null;
    this.content = problem.content ?? [{ type: "text", text: this.message }];
    this.detail = problem.detail ?? null;
    this.invocationId = problem.invocation_id ?? null;
    this.violations = problem.violations ?? [];
    this.didYouMean = problem.did_you_mean ?? [];
  }
}

/** A tool answered with an error of its own. */
export class ToolError extends Error {
  constructor(answer) {
    super(textOf(answer.content) || "the tool failed");
    this.name = "ToolError";
    this.answer = answer;
  }
}

/** Calls the tools of a service. */
export class Client {
  #base;
  #headers;

  constructor(baseUrl = DEFAULT_URL, key = undefined) {
    this.#base = String(baseUrl).replace(/\/+$/, "");
    this.#headers = key ? { authorization: `Bearer ${key}` } : {};
  }

  async tools({ format, tag, toolset, query: words, limit, detail, discovery, ...options } = {}) {
    const isAiSdk = format === "ai-sdk";
    renamed(options, isAiSdk ? { ...BODY_OPTIONS, traceparent: "traceparent" } : { runId: "run_id" });
    // The names and schemas for OpenAI are those that all providers accept.
    const wanted = { format: isAiSdk ? "openai" : format, tag, toolset, query: words, limit, detail, discovery, run_id: options.runId };
    const listed = await this.#json("GET", `/tools${query(wanted)}`, { signal: options.signal });
    if (isAiSdk) return Object.fromEntries(listed.map((tool) => [tool.function.name, aiSdkTool(this, tool.function, options)]));
    return format ? listed : listed.tools;
  }

  definition(name) {
    return this.#json("GET", path("tools", name));
  }

  tool(name) {
    return async (args, options) => {
      const answer = await this.invoke(name, args, options);
      if (answer.is_error) throw new ToolError(answer);
      return answer.structured_content ?? textOf(answer.content);
    };
  }

  async invoke(name, args = {}, options = {}) {
    const { body, headers } = invocation(args, options);
    return this.#json("POST", path("tools", name, "invoke"), { body, headers, signal: options.signal });
  }

  validate(name, args = {}) {
    return this.#json("POST", path("tools", name, "validate"), { body: JSON.stringify({ arguments: args }) });
  }

  async calls(message, options = {}) {
    const { body, headers } = modelMessage(message, options);
    return this.#json("POST", "/calls", { body, headers, signal: options.signal });
  }

  async *stream(name, args = {}, options = {}) {
    const { body, headers } = invocation(args, options);
    yield* this.#stream("POST", path("tools", name, "invoke"), { body, headers, signal: options.signal });
  }

  invocations({ runId, idempotencyKey, ...filters } = {}) {
    return this.#pages("/invocations", "invocations", { ...filters, run_id: runId, idempotency_key: idempotencyKey });
  }

  invocation(id) {
    return this.#json("GET", path("invocations", id));
  }

  async wait(id, { signal } = {}) {
    for (let pause = FIRST_PAUSE; ; pause = Math.min(2 * pause, LONGEST_PAUSE)) {
      const found = await this.#json("GET", path("invocations", id), { signal });
      if (!OPEN_STATES.includes(found.state)) return found;
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }

  cancel(id) {
    return this.#json("DELETE", path("invocations", id));
  }

  answer(id, content = undefined, { action = "accept", question } = {}) {
    return this.#json("POST", path("invocations", id, "answer"), { body: JSON.stringify({ action, content, question }) });
  }

  approvals(filters = {}) {
    return this.#pages("/approvals", "approvals", filters);
  }

  approve(id, { note, arguments: args } = {}) {
    return this.#json("POST", path("invocations", id, "approve"), { body: JSON.stringify({ note, arguments: args }) });
  }

  deny(id, { note } = {}) {
    return this.#json("POST", path("invocations", id, "deny"), { body: JSON.stringify({ note }) });
  }

  events({ lastEventId, signal } = {}) {
    return this.#stream("GET", "/events", { headers: lastEventId ? { "last-event-id": lastEventId } : {}, signal });
  }

  enable(name) {
    return this.#json("POST", path("tools", name, "enable"));
  }

  disable(name) {
    return this.#json("POST", path("tools", name, "disable"));
  }

  async sources() {
    return (await this.#json("GET", "/sources")).sources;
  }

  async usage() {
    return (await this.#json("GET", "/usage")).tools;
  }

  async *#pages(target, name, filters) {
    for (let cursor; ; ) {
      const page = await this.#json("GET", `${target}${query({ ...filters, cursor })}`);
      yield* page[name];
      cursor = page.next_cursor;
      if (cursor == null) return;
    }
  }

  async *#stream(method, target, { headers, ...options }) {
    const response = await this.#send(method, target, { ...options, headers: { ...headers, accept: "text/event-stream" } });
    try {
      for await (const event of events(response.body)) {
        if (event.type === "result" && event.data.kind !== undefined && event.data.is_error === undefined) {
          throw new ToolcribError(event.data);
        }
        yield event;
      }
    } catch (error) {
      throw error instanceof ToolcribError || error.name === "AbortError" ? error : this.#unreachable(error);
    }
  }

  async #json(method, target, options = {}) {
    const response = await this.#send(method, target, options);
    const text = await response.text();
    return text ? JSON.parse(text) : null;
  }

  async #send(method, target, { body, headers = {}, signal } = {}) {
    const type = body === undefined ? {} : { "content-type": "application/json" };
    let response;
    try {
      response = await fetch(this.#base + target, { method, body, signal, headers: { ...type, ...this.#headers, ...headers } });
    } catch (error) {
      throw error.name === "AbortError" ? error : this.#unreachable(error);
    }
    if (response.ok) return response;
    const text = await response.text();
    throw new ToolcribError(problem(text) ?? {
      status: response.status,
      detail: `${this.#base} answered ${response.status}, which is not an answer of Toolcrib`,
      retryable: [502, 503, 504].includes(response.status),
    });
  }

  #unreachable(error) {
    const reason = error.cause?.message || error.cause?.code || error.message;
    const detail = `no answer from ${this.#base}: ${reason}. Is the service running?`;
    return new ToolcribError({ kind: "unreachable", detail, retryable: true }, { cause: error });
  }
}

function textOf(content) {
  return (content ?? []).filter((block) => block.type === "text").map((block) => block.text).join("\n");
}

/** A tool as the functions of the AI SDK take it. Its package recognizes schemas by these symbols, in all versions. */
function aiSdkTool(client, { name, description, parameters }, fixed) {
  const marks = { [Symbol.for("vercel.ai.schema")]: true, [Symbol.for("vercel.ai.validator")]: true };
  return {
    description,
    // The service checks the arguments.
    inputSchema: { ...marks, _type: undefined, jsonSchema: parameters, validate: undefined },
    async execute(input, { toolCallId, abortSignal } = {}) {
      try {
        const answer = await client.invoke(name, input, { ...fixed, toolUseId: toolCallId, signal: abortSignal });
        if (answer.is_error) throw new ToolError(answer);
        return answer;
      } catch (error) {
        // The SDK hands the message of an error to the model.
        if (error instanceof ToolcribError) error.message = textOf(error.content) || error.message;
        throw error;
      }
    },
    toModelOutput,
  };
}

/** What the model sees of an answer. Version 5 of the AI SDK passes the answer itself, and later ones pass it as `output`. */
function toModelOutput(given) {
  const isOld = given.output === undefined;
  const { content } = isOld ? given : given.output;
  if (content.every((block) => block.type === "text")) return { type: "text", value: textOf(content) };
  const value = content.map((block) => {
    if (block.type === "text") return { type: "text", text: block.text };
    const { data, mimeType: mediaType } = block;
    if (data === undefined || mediaType === undefined) return { type: "text", text: JSON.stringify(block) };
    return { type: isOld ? "media" : block.type === "image" ? "image-data" : "file-data", data, mediaType };
  });
  return { type: "content", value };
}

function path(...parts) {
  return `/${parts.map(encodeURIComponent).join("/")}`;
}

function query(filters) {
  const given = Object.entries(filters).filter(([, value]) => value !== undefined && value !== null);
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

function problem(text) {
  try {
    const parsed = JSON.parse(text);
    return parsed !== null && typeof parsed === "object" ? parsed : null;
  } catch {
    return null;
  }
}

/** The options under their names on the wire. An unknown option is an error, so that a typing mistake is noticed. */
function renamed(options, ...tables) {
  const known = Object.assign({}, ...tables);
  for (const name of Object.keys(options)) {
    if (!(name in known) && name !== "signal") {
      throw new TypeError(`there is no option ${name}; there are ${Object.keys(known).join(", ")} and signal`);
    }
  }
  return tables.map((table) =>
    Object.fromEntries(
      Object.entries(table).filter(([name]) => options[name] !== undefined && options[name] !== null).map(([name, wire]) => [wire, options[name]]),
    ),
  );
}

function seconds(fields) {
  return typeof fields.timeout === "number" ? { ...fields, timeout: `${fields.timeout}s` } : fields;
}

function invocation(args, options) {
  const [fields, headers] = renamed(options, BODY_OPTIONS, HEADER_OPTIONS);
  return { body: JSON.stringify({ arguments: args, ...seconds(fields) }), headers };
}

function modelMessage(message, options) {
  const [fields, headers] = renamed(options, MESSAGE_OPTIONS, MESSAGE_HEADERS);
  const isText = typeof message === "string" && problem(message) === null;
  if (Object.keys(fields).length === 0) {
    const body = typeof message === "string" ? message : JSON.stringify(message);
    return { body, headers: { ...headers, "content-type": isText ? "text/plain" : "application/json" } };
  }
  const parsed = typeof message !== "string" ? message : isText ? { text: message } : JSON.parse(message);
  return { body: JSON.stringify({ message: parsed, ...seconds(fields) }), headers };
}

/** The events of a stream, as the HTML standard defines server-sent events. */
async function* events(body) {
  let rest = "";
  let type = "";
  let id;
  let data = [];
  const decoder = new TextDecoder();
  for await (const chunk of body) {
    let text = rest + decoder.decode(chunk, { stream: true });
    // A line may end with two signs, and only the first one may be there yet.
    const held = text.endsWith("\r") ? "\r" : "";
    if (held) text = text.slice(0, -1);
    const lines = text.split(LINE_END);
    rest = lines.pop() + held;
    for (const line of lines) {
      if (line === "") {
        if (data.length) yield { type: type || "message", data: JSON.parse(data.join("\n")), id };
        type = "";
        data = [];
        continue;
      }
      const [, name, value] = /^([^:]*):? ?(.*)$/s.exec(line);
      if (name === "event") type = value;
      else if (name === "id") id = value;
      else if (name === "data") data.push(value);
    }
  }
}
