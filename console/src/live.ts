// News from the service: its events, or, where it has none, a look every few seconds.

import { signal, type Signal } from "@preact/signals";
import { headers, readEvents, session } from "./api";
import type { Json } from "./types";

export type Topic = "calls" | "approvals" | "sources" | "tools";

/** A number for each topic, which grows when there is news. */
export const news: Record<Topic, Signal<number>> = { calls: signal(0), approvals: signal(0), sources: signal(0), tools: signal(0) };

/** The last progress of running calls. */
export const progress = signal<ReadonlyMap<string, Json>>(new Map());

export const connection = signal<"connecting" | "live" | "polling" | "lost">("connecting");

const POLL = 3_000;
const GATHER = 400;
const MOST_PROGRESS = 200;

const pending = new Set<Topic>();
let gathering: ReturnType<typeof setTimeout> | null = null;

/** Tells views of a topic to load again; many events at once make one load. */
export function touch(...topics: Topic[]) {
  for (const topic of topics) pending.add(topic);
  gathering ??= setTimeout(() => {
    gathering = null;
    const now = [...pending];
    pending.clear();
    for (const topic of now) news[topic].value += 1;
  }, GATHER);
}

const TOPICS: Record<string, Topic[]> = {
  "invocation.started": ["calls"],
  "invocation.ended": ["calls", "approvals"],
  "approval.waiting": ["approvals", "calls"],
  "approval.decided": ["approvals", "calls"],
  "source.changed": ["sources", "tools"],
  "tools.changed": ["tools"],
  // The service had no place for more events: everything may be different.
  missed: ["calls", "approvals", "sources", "tools"],
};

function take(name: string, data: string) {
  if (name === "invocation.progress" || name === "invocation.ended") {
    const event = JSON.parse(data) as { invocation_id?: string; data?: Json };
    if (event.invocation_id) {
      const next = new Map(progress.value);
      if (name === "invocation.ended") next.delete(event.invocation_id);
      else next.set(event.invocation_id, event.data ?? null);
      if (next.size > MOST_PROGRESS) next.delete(next.keys().next().value!);
      progress.value = next;
    }
  }
  touch(...(TOPICS[name] ?? []));
}

let current: AbortController | null = null;
let following = false;

// A page in the back/forward cache keeps its connections, of which a browser has six for each service. So its stream ends with it.
addEventListener("pagehide", () => current?.abort());
addEventListener("pageshow", (event) => { if (event.persisted && following) void follow(); });

/** Follows the events until the session changes. */
export async function follow(): Promise<void> {
  following = true;
  current?.abort();
  const own = (current = new AbortController());
  const wait = (ms: number) => new Promise((done) => setTimeout(done, ms));
  let last: string | null = null;
  let failures = 0;
  while (!own.signal.aborted) {
    try {
      const extra: Record<string, string> = last ? { accept: "text/event-stream", "last-event-id": last } : { accept: "text/event-stream" };
      const response = await fetch("/events", { headers: headers(extra), signal: own.signal, cache: "no-store" });
      if (response.status === 404 || response.status === 405) return await poll(own.signal);
      if (response.status === 401) return;
      if (!response.ok) throw new Error(String(response.status));
      failures = 0;
      connection.value = "live";
      touch("calls", "approvals", "sources", "tools");
      for await (const event of readEvents(response)) {
        last = event.id ?? last;
        take(event.event, event.data);
      }
    } catch {
      if (own.signal.aborted) return;
    }
    failures += 1;
    connection.value = "lost";
    await wait(Math.min(10_000, 500 * 2 ** Math.min(failures, 5)));
  }
}

async function poll(signal: AbortSignal) {
  connection.value = "polling";
  while (!signal.aborted) {
    await new Promise((done) => setTimeout(done, POLL));
    if (signal.aborted) return;
    if (!document.hidden && session.value) touch("calls", "approvals", "sources", "tools");
  }
}

export function stopFollowing() {
  following = false;
  current?.abort();
  connection.value = "connecting";
  progress.value = new Map();
}
