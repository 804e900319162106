// Turns of a model, derived from the times of a run's calls: a model asks for calls, waits for all of them, and thinks before it asks again.

import type { Approval, Call } from "../types";

/** A shorter pause is not a model's: calls of one message may follow each other. */
const LEAST_PAUSE = 50;

export interface Turn { number: number; calls: number; start: number; pause: number }

/** The turns, by the first call of each. Empty for a run of one turn. */
export function turns(rows: { call: Call; depth: number }[], decided?: ReadonlyMap<string, Approval>): Map<string, Turn> {
  const found = new Map<string, Turn>();
  let end = -Infinity;
  let current: Turn | null = null;
  for (const { call, depth } of rows) {
    if (depth > 0) continue;
    // A call that waited for a person began to run after that.
    const begun = Date.parse(call.started_at), asked = decided?.get(call.invocation_id)?.requested_at;
    const start = asked ? Math.min(begun, Date.parse(asked)) : begun;
    if (!current || start - end >= LEAST_PAUSE) {
      current = { number: found.size + 1, calls: 0, start, pause: current ? start - end : 0 };
      found.set(call.invocation_id, current);
    }
    current.calls += 1;
    end = Math.max(end, call.duration_ms === null ? Infinity : begun + call.duration_ms);
  }
  return found.size > 1 ? found : new Map();
}
