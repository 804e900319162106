// Requests to the service this page comes from. The key travels in a header, never in an address.

import { signal } from "@preact/signals";
import type { Problem, Session } from "./types";

const STORED = "toolcrib.key";

export const session = signal<Session | null>(null);
/** Why the person must sign in again, or null. */
export const signInNote = signal<string | null>(null);

let key: string | null = null;
try {
  key = sessionStorage.getItem(STORED);
} catch {
  // Storage may be blocked. The key is then kept in memory only.
}

function keep(value: string | null) {
  key = value;
  try {
    if (value === null) sessionStorage.removeItem(STORED);
    else sessionStorage.setItem(STORED, value);
  } catch {
    // As above.
  }
}

export class ApiError extends Error {
  constructor(readonly status: number, readonly problem: Problem | null, text: string) {
    super(text);
  }
}

export function headers(extra: Record<string, string> = {}): Record<string, string> {
  return key === null ? extra : { ...extra, authorization: `Bearer ${key}` };
}

async function toError(response: Response): Promise<ApiError> {
  let problem: Problem | null = null;
  try {
    problem = (await response.json()) as Problem;
  } catch {
    // Not a problem document, such as the page of a proxy.
  }
  return new ApiError(response.status, problem, problem?.detail ?? `the service answered ${response.status}`);
}

export async function send(method: string, path: string, body?: unknown, options: { signal?: AbortSignal; accept?: string } = {}): Promise<Response> {
  const extra: Record<string, string> = { accept: options.accept ?? "application/json" };
  if (body !== undefined) extra["content-type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(path, {
      method, headers: headers(extra), body: body === undefined ? undefined : JSON.stringify(body), signal: options.signal, cache: "no-store",
    });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, null, "the service cannot be reached");
  }
  if (response.status === 401) {
    if (key !== null) signInNote.value = "The key is not valid any more.";
    keep(null);
    session.value = session.value ? { ...session.value, needs_key: true, caller: null, admin: false } : null;
  }
  return response;
}

export async function request<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const response = await send(method, path, body, { signal });
  if (!response.ok) throw await toError(response);
  return (await response.json()) as T;
}

export const get = <T>(path: string, signal?: AbortSignal) => request<T>("GET", path, undefined, signal);
export const post = <T>(path: string, body?: unknown) => request<T>("POST", path, body);

/** Reads who is at the page. */
export async function openSession(): Promise<void> {
  const response = await fetch("/console/session", { headers: headers(), cache: "no-store" });
  if (response.ok) {
    session.value = (await response.json()) as Session;
    return;
  }
  keep(null);
  signInNote.value = response.status === 401 ? "This key is not known here." : (await toError(response)).message;
  if (response.status === 401) await openSession();
}

export async function signIn(value: string): Promise<void> {
  signInNote.value = null;
  keep(value.trim());
  await openSession();
}

export function signOut() {
  keep(null);
  signInNote.value = null;
  void openSession();
}

/** A path with those parameters that have a value. */
export function withQuery(path: string, parameters: Record<string, string | number | null | undefined>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) if (value !== null && value !== undefined && value !== "") query.set(name, String(value));
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

export interface ServerEvent { event: string; data: string; id: string | null }

/** The events of an answer, as they arrive. */
export async function* readEvents(response: Response): AsyncGenerator<ServerEvent> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let event = "message", data: string[] = [], id: string | null = null;
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      const lines = rest.split(/\r\n|\n/);
      rest = lines.pop()!;
      for (const line of lines) {
        if (line === "") {
          if (data.length) yield { event, data: data.join("\n"), id };
          event = "message";
          data = [];
        } else if (line.startsWith("event:")) event = line.slice(6).trim();
        else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
        else if (line.startsWith("id:")) id = line.slice(3).trim();
      }
    }
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}
