/** A JSON object. */
export type Json = Record<string, unknown>;

/** A part of a result, as in MCP. */
export interface ContentBlock {
  type: string;
  text?: string;
  [field: string]: unknown;
}

/**
 * The tools of a service by name: `{ get_weather: { arguments: …; result: … } }`. A file that `toolcrib types` writes
 * declares them, and the methods below then check names and arguments. Without such a file, any name is possible.
 */
export interface Tools {}

/** The name of a declared tool, or any text if none is declared. */
export type ToolName = [keyof Tools] extends [never] ? string : keyof Tools & string;

/** The arguments of a tool. */
export type ToolArguments<Name extends string> = Name extends keyof Tools
  ? Tools[Name] extends { arguments: infer Arguments } ? Arguments : Json
  : Json;

/** The structured content of a tool's result. */
export type ToolResult<Name extends string> = Name extends keyof Tools
  ? Tools[Name] extends { result: infer Result } ? Result : unknown
  : unknown;

/** The answer of a tool. If it is no error, its structured content has the type of the tool's result. */
export type ToolAnswer<Name extends string> = Name extends keyof Tools ? Success<ToolResult<Name>> | Failure : Answer;

/** An answer that is no error. */
export interface Success<Result> extends Answer {
  is_error: false;
  structured_content: Result;
}

/** An answer that is an error of the tool itself. */
export interface Failure extends Answer {
  is_error: true;
}

/** A name that is permitted: a declared one, or a text that is known only when the program runs. */
export type CheckedName<Name extends string> = [keyof Tools] extends [never]
  ? Name
  : string extends Name ? Name : Name extends keyof Tools ? Name : ToolName;

/** What follows the name in a call: arguments, or their JSON, and options. */
export type CallParameters<Name extends string> = {} extends ToolArguments<Name>
  ? [args?: ToolArguments<Name> | string, options?: InvokeOptions]
  : [args: ToolArguments<Name> | string, options?: InvokeOptions];

/** A tool as a function. It returns the structured content of the result, else its text. An error of the tool is thrown. */
export type ToolFunction<Name extends string> = (...parameters: CallParameters<Name>) => Promise<ToolResult<Name>>;

/** A tool as the functions of the AI SDK take it. */
export interface AiSdkTool<Arguments = Json, Output = Answer> {
  description?: string;
  inputSchema: any;
  execute: (input: Arguments, options: { toolCallId: string; abortSignal?: AbortSignal; messages: any[] }) => Promise<Output>;
  toModelOutput: (output: any) => any;
}

/** The tools for the AI SDK, by the names that models may use: a dot in a name is an underscore. */
export type AiSdkTools = [keyof Tools] extends [never]
  ? Record<string, AiSdkTool>
  : { [Name in ToolName as WithoutDots<Name>]: AiSdkTool<ToolArguments<Name>, ToolAnswer<Name>> };

type WithoutDots<Name extends string> = Name extends `${infer Left}.${infer Right}` ? WithoutDots<`${Left}_${Right}`> : Name;

/** The answer of a tool. `is_error: true` is an error of the tool itself. */
export interface Answer {
  invocation_id: string;
  tool: string;
  tool_use_id: string | null;
  is_error: boolean;
  content: ContentBlock[];
  structured_content: unknown;
  result_as_answer: boolean;
  meta: Json;
}

/** A tool, as `GET /tools` lists it. */
export interface Tool {
  name: string;
  description: string;
  input_schema: Json;
  output_schema: Json | null;
  annotations: Json;
  kind: string;
  effect: "read" | "idempotent" | "write";
  result_as_answer: boolean;
  tags: string[];
  available: boolean;
  definition_hash: string;
  [field: string]: unknown;
}

/** A recorded call. */
export interface Invocation {
  invocation_id: string;
  tool: string;
  caller: string;
  run_id: string | null;
  state: "reserved" | "running" | "waiting" | "succeeded" | "failed" | "timed_out" | "cancelled" | "refused" | "unknown";
  kind: string | null;
  attempts: number;
  started_at: string;
  duration_ms: number | null;
  [field: string]: unknown;
}

/** The answer of `calls`. Append `messages` to the conversation. */
export interface CallsAnswer {
  dialect: string;
  // The shape depends on the provider.
  messages: any[];
  result_as_answer: boolean;
  results: Json[];
  warnings: string[];
}

/** Options of a list of tools. */
export interface ListOptions {
  tag?: string;
  /** Only the tools of this toolset. */
  toolset?: string;
  /** Only tools that match these words, the best first. */
  query?: string;
  /** Most tools that match `query`. */
  limit?: number;
  /** `"brief"`: less text. */
  detail?: "full" | "brief";
  /** The run whose found tools are listed. */
  runId?: string;
  /** `"off"`: all tools, also of a long list. */
  discovery?: "off";
  signal?: AbortSignal;
}

/** Options of one call. */
export interface InvokeOptions {
  toolUseId?: string;
  runId?: string;
  context?: Json;
  cache?: "use" | "refresh" | "bypass";
  /** Seconds, or a text such as `"500ms"`. */
  timeout?: number | string;
  page?: { detail?: string; offset?: number; limit?: number };
  idempotencyKey?: string;
  traceparent?: string;
  /** `"respond-async"`: the answer has the id of the call, which goes on. */
  prefer?: string;
  signal?: AbortSignal;
}

/** Options of the calls in a model's message. */
export interface CallsOptions {
  runId?: string;
  deny?: string[];
  context?: Json;
  cache?: "use" | "refresh" | "bypass";
  timeout?: number | string;
  /** The model that wrote the message, if the message does not say it. */
  model?: string;
  parallel?: number;
  page?: { detail?: string; offset?: number; limit?: number };
  waiting?: "hold";
  dialect?: string;
  idempotencyKey?: string;
  traceparent?: string;
  signal?: AbortSignal;
}

/** Filters of recorded calls. `limit` is the size of a page. */
export interface InvocationFilters {
  tool?: string;
  caller?: string;
  runId?: string;
  parent?: string;
  idempotencyKey?: string;
  state?: string;
  kind?: string;
  q?: string;
  since?: string;
  until?: string;
  limit?: number;
}

/** A call that needs or needed an approval. */
export interface Approval {
  invocation_id: string;
  tool: string;
  caller: string;
  run_id: string | null;
  arguments: Json | null;
  state: "waiting" | "approved" | "denied" | "expired" | "withdrawn";
  [field: string]: unknown;
}

/** Filters of approvals. `limit` is the size of a page. */
export interface ApprovalFilters {
  state?: Approval["state"];
  tool?: string;
  limit?: number;
}

/** An event of the service, such as `invocation.ended`. */
export interface ServiceEvent {
  type: string;
  data: Json;
  /** Resumes the stream after this event. */
  id?: string;
}

/** An event of a stream. */
export type Event<Result = Answer> =
  | { type: "progress"; data: { invocation_id: string; tool: string; tool_use_id: string | null; data: unknown } }
  | { type: "result"; data: Result }
  | { type: "waiting"; data: Json };

/** A tool answered with an error of its own. */
export class ToolError extends Error {
  constructor(answer: Answer);
  readonly answer: Answer;
}

/** The service refused or failed a request. */
export class ToolcribError extends Error {
  constructor(problem: Json, options?: ErrorOptions);
  /** The whole problem (RFC 9457). */
  readonly problem: Json;
  /** One word for the cause, such as `invalid_arguments`. */
  readonly kind: string;
  readonly status: number | null;
  /** Whether the same request may succeed later. */
  readonly retryable: boolean;
  readonly retryAfterMs: number | null;
  /** The problem in words for a model. */
  readonly content: ContentBlock[];
  readonly detail: string | null;
  readonly invocationId: string | null;
  readonly violations: Json[];
  readonly didYouMean: string[];
}

/** The answer to a question. `content`: with `accept`, the values that the schema asks for. */
export interface Answered<Content = Json> {
  action: "accept" | "decline" | "cancel";
  accepted: boolean;
  content: Content;
}

/** What a function that runs as a tool learns about its call: a parameter with this type is hidden from models. */
export interface ToolContext {
  readonly invocationId: string;
  readonly toolUseId: string;
  readonly runId?: string;
  /** The name of the key that made the call. */
  readonly caller: string;
  /** The agent that made the call, or else the caller. */
  readonly agent: string;
  readonly attempt: number;
  /** The context of the request. */
  readonly state: Json;
  /** When the call must have ended. */
  readonly deadline?: Date;
  /** Aborted when the call is cancelled or its time is over. */
  readonly signal: AbortSignal;
  /** Reports progress to the listeners of the call. */
  progress(data: unknown): void;
  /** The same as `progress`. */
  onProgress(data: unknown): void;
  /** Asks the caller. `schema`: an object whose properties are texts, numbers, booleans or choices. Rejects if nobody can be asked. */
  ask<Content = Json>(message: string, schema?: Json, options?: { name?: string }): Promise<Answered<Content>>;
}

/** Calls the tools of a service. */
export class Client {
  /**
   * @param baseUrl where the service listens. Default: `http://localhost:7411`
   * @param key the caller's key, if the service has callers
   */
  constructor(baseUrl?: string | URL, key?: string);
  /** The tools of this caller. */
  tools(options?: ListOptions & { format?: undefined }): Promise<Tool[]>;
  /** The tools for `generateText` and the like of the AI SDK (package `ai`, versions 5 to 7). The options hold for all calls. */
  tools(
    options: ListOptions & { format: "ai-sdk" } & Pick<InvokeOptions, "runId" | "context" | "cache" | "timeout" | "page" | "traceparent">,
  ): Promise<AiSdkTools>;
  /** The tools in the shape of a provider's API, such as `openai`. */
  tools(options: ListOptions & { format: string }): Promise<any>;
  /** One tool with its policy and usage. */
  definition(name: string): Promise<Tool>;
  /** A tool as a function. */
  tool<Name extends ToolName | (string & {})>(name: CheckedName<Name>): ToolFunction<Name>;
  /** Calls a tool. */
  invoke<Name extends ToolName | (string & {})>(name: CheckedName<Name>, ...parameters: CallParameters<Name>): Promise<ToolAnswer<Name>>;
  /** Checks arguments without calling the tool. */
  validate(name: string, args?: Json): Promise<{ valid: true; arguments: Json; coercions: Json[] }>;
  /** Executes the tool calls in a model's message: the provider's response as an object, as JSON, or as text. */
  calls(message: unknown, options?: CallsOptions): Promise<CallsAnswer>;
  /** Calls a tool and yields its progress. The last event is the result. */
  stream<Name extends ToolName | (string & {})>(
    name: CheckedName<Name>, ...parameters: CallParameters<Name>
  ): AsyncGenerator<Event<ToolAnswer<Name>>, void, undefined>;
  /** The recorded calls, newest first. */
  invocations(filters?: InvocationFilters): AsyncGenerator<Invocation, void, undefined>;
  /** One recorded call with its result. */
  invocation(id: string): Promise<Invocation & { result: unknown }>;
  /** One recorded call with its result, when it has ended: for `prefer: "respond-async"`, and for calls that wait. */
  wait(id: string, options?: { signal?: AbortSignal }): Promise<Invocation & { result: unknown }>;
  /** Cancels a running call. */
  cancel(id: string): Promise<Invocation>;
  /** Answers the question of a running call. */
  answer(id: string, content?: Json, options?: { action?: "accept" | "decline" | "cancel"; question?: string }): Promise<Invocation>;
  /** The calls that need or needed an approval, newest first. With `state: "waiting"`, those that wait. */
  approvals(filters?: ApprovalFilters): AsyncGenerator<Approval, void, undefined>;
  /** Lets a waiting call run, perhaps with other arguments. */
  approve(id: string, options?: { note?: string; arguments?: Json }): Promise<Invocation>;
  /** Refuses a waiting call. */
  deny(id: string, options?: { note?: string }): Promise<Invocation>;
  /** What happens in the service, until the connection ends. */
  events(options?: { lastEventId?: string; signal?: AbortSignal }): AsyncGenerator<ServiceEvent, void, undefined>;
  /** Switches a tool on. */
  enable(name: string): Promise<Json>;
  /** Switches a tool off. */
  disable(name: string): Promise<Json>;
  /** The state of Python modules, MCP servers and OpenAPI documents. */
  sources(): Promise<Json[]>;
  /** Totals and limits for each tool and caller. */
  usage(): Promise<Json[]>;
}
