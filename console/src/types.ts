// The shapes of the API, as far as the console reads them.

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type Obj = { [key: string]: Json };

export interface Session { needs_key: boolean; caller: string | null; admin: boolean; version: string }

/** `of` says whose limit it is: the tool's, or the caller's own over all tools. */
export interface Limit { limit: number; per: string; scope: string; of: "tool" | "caller"; used: number; remaining: number; resets_at: string | null }

export interface Tool {
  name: string; description: string; input_schema: Obj; output_schema: Obj | null; annotations: Obj; kind: string; origin: string; source?: string | null;
  effect: string; tags: string[]; aliases: string[]; available: boolean; definition_hash: string;
}

export interface Policy {
  effect: string; timeout: string; deadline: string | null; retry: { attempts: number };
  limits: { calls: number; per: string; scope: string }[];
  cache: { ttl: string; scope: string; context: string[] | null; when: string | null } | null;
  concurrency: { max: number; queue: number; wait: string; per_caller: number | null };
  on_disconnect: string; idempotency: string; capture: string; repeatable: boolean; strict: boolean; enabled: boolean;
  [key: string]: unknown;
}

export interface ToolDetail extends Tool {
  policy: Policy; usage: Limit[]; breaker?: string; sandbox?: Obj | null;
  env: { name: string; description: string; required: boolean; default: string | null }[];
}

export type State = "reserved" | "running" | "waiting" | "succeeded" | "failed" | "timed_out" | "cancelled" | "refused" | "unknown";

export interface Call {
  invocation_id: string; tool: string; caller: string; run_id: string | null; tool_use_id: string | null; idempotency_key: string | null;
  parent: string | null; state: State; kind: string | null; detail: string | null; cache: string; attempts: number; started_at: string;
  duration_ms: number | null; arguments: Obj | null; arguments_digest?: { bytes: number } | null;
  arguments_truncated?: { bytes: number; beginning: string } | null; replica: string | null; count: number; trace_id?: string | null;
}

export type Block =
  | { type: "text"; text: string }
  | { type: "image" | "audio"; data: string; mimeType: string }
  | { type: "resource"; resource: { uri: string; mimeType?: string; text?: string; blob?: string } }
  | { type: "resource_link"; uri: string; name: string; title?: string; description?: string; mimeType?: string };

export interface Answer {
  invocation_id: string; tool: string; is_error: boolean; content: Block[]; structured_content: Json;
  meta: {
    cache: string; attempts: number; duration_ms: number; usage: Limit[]; coercions: { pointer: string; from: string; to: string }[];
    overflow: { shown: number; total: number | null; hint: string } | null; warnings: string[];
    model?: { requests: number; input_tokens: number; output_tokens: number; total_tokens: number } | null;
  };
}

export interface Problem {
  type: string; title: string; status: number; detail: string; kind: string; source: string; retryable: boolean;
  retry_after_ms: number | null; invocation_id?: string; did_you_mean?: string[]; content?: Block[];
  violations?: { pointer: string; keyword: string; message: string; schema_pointer: string }[];
}

export interface ApprovalPart {
  state: string; message: string | null; original_arguments: Obj | null; by: string[]; can_decide: boolean; requested_at: string;
  expires_at: string | null; decided_at: string | null; decided_by: string | null; note: string | null;
}

export interface Approval extends ApprovalPart {
  invocation_id: string; tool: string; caller: string; run_id: string | null; tool_use_id: string | null; arguments: Obj | null;
  context?: Obj | null;
}

export interface Question { name: string; tool: string; message: string; schema: Obj }

export interface CallDetail extends Call {
  result: Answer | Problem | null; result_digest: { bytes: number } | null; approval?: ApprovalPart | null; question?: Question;
  attempt_errors: { attempt: number; kind: string; message: string; duration_ms: number }[];
}

export interface Usage {
  tool: string; caller: string; calls: number; succeeded: number; failed: number; refused: number; cache_hits: number;
  p50_ms: number | null; p99_ms: number | null; limits: Limit[]; tokens?: Tokens | null;
}

/** What the models of agents took. */
export interface Tokens { requests: number; input_tokens: number; output_tokens: number }

/** The answer of `GET /usage` without a bucket. */
export interface Totals { tools: Usage[]; callers: { caller: string; limits: Limit[] }[] }

export interface Bucket {
  start: string; tool?: string | null; caller?: string | null; run_id?: string | null; calls: number; succeeded: number; failed: number;
  refused: number; cache_hits: number; p50_ms: number | null; p99_ms: number | null; tokens?: Tokens | null;
}

export interface Source {
  name: string; kind: string; state: string; tools: number; workers: number; replaced: number; doing: string | null; fault: string | null;
  fault_at: string | null; warnings: string[]; stopped: { tool: string; why: string }[];
  findings: { tool: string; rule: string; message: string; hint: boolean }[];
  operations: { found: number; imported: number; left_out: { operation: string; reason: string }[] } | null;
}

/** A quarantined tool: the parts of its definition that differ from its pin. */
export interface ChangedTool { tool: string; why: string; approved: Obj | null; offered: Obj }

export interface Replica { replica: string; version: string; started_at: string; seen_at: string; running: number; self: boolean }

export interface Ready {
  status: string; manifest?: string; ledger?: string; breakers?: { tool: string; state: string; failures: number; retry_after_ms: number | null }[];
}
