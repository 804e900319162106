// Loads data for a view, and loads it again when there is news.

import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, get } from "./api";
import { news, type Topic } from "./live";

/** Routes that an older service does not have. They are asked once. */
const absent = new Map<string, ApiError>();
const optional = (path: string) => (path.startsWith("/approvals?") ? "/approvals" : path.startsWith("/usage?") ? "/usage?" : null);

/** So many times as long as a load took, no news makes another. */
const REST = 8;
const MOST_REST = 15_000;
/** A caller waits for the decision of a person, so a slow machine must not hide a new approval. */
const MOST_REST_OF_APPROVALS = 2_000;

export interface Loaded<T> { data: T | null; error: ApiError | null; reload: () => void; path: string | null }

/** `path` is null while there is nothing to load. The data of one path stays until there is newer data. */
export function useData<T>(path: string | null, topics: Topic[] = [], every = 0): Loaded<T> {
  const [state, setState] = useState<{ path: string | null; data: T | null; error: ApiError | null }>({ path, data: null, error: null });
  const [turn, setTurn] = useState(0);
  const [pending, setPending] = useState(0);
  const revision = topics.reduce((sum, topic) => sum + news[topic].value, 0);
  const mostRest = topics.includes("approvals") ? MOST_REST_OF_APPROVALS : MOST_REST;
  const busy = useRef(false);
  const again = useRef(false);
  const latest = useRef(path);
  latest.current = path;
  const slow = useRef<{ path: string; until: number; turn: number }>({ path: "", until: 0, turn: 0 });

  useEffect(() => {
    if (path === null) return;
    // News of a busy service comes twice a second. What takes long to load is loaded less often, unless a person asks for it.
    const rest = slow.current.path === path && slow.current.turn === turn ? slow.current.until - performance.now() : 0;
    if (rest > 0) {
      const timer = setTimeout(() => setTurn((value) => value + 1), rest);
      return () => clearTimeout(timer);
    }
    const missing = absent.get(optional(path) ?? "");
    if (missing) {
      setState({ path, data: null, error: missing });
      return;
    }
    if (busy.current) {
      again.current = true;
      return;
    }
    busy.current = true;
    const began = performance.now();
    get<T>(path)
      .then(
        (data) => latest.current === path && setState({ path, data, error: null }),
        (error: unknown) => {
          const failure = error instanceof ApiError ? error : new ApiError(0, null, String(error));
          const route = optional(path);
          if (route && (failure.status === 404 || failure.status === 400)) absent.set(route, failure);
          if (latest.current === path) setState((old) => ({ path, data: old.path === path ? old.data : null, error: failure }));
        },
      )
      .finally(() => {
        busy.current = false;
        const ended = performance.now();
        slow.current = { path, until: ended + Math.min(mostRest, REST * (ended - began)), turn };
        if (again.current) {
          again.current = false;
          setPending((value) => value + 1);
        }
      });
  }, [path, revision, turn, pending]);

  useEffect(() => {
    if (!every || path === null) return;
    const timer = setInterval(() => document.hidden || setTurn((value) => value + 1), every);
    return () => clearInterval(timer);
  }, [every, path]);

  const fits = state.path === path;
  return { data: fits ? state.data : null, error: fits ? state.error : null, reload: () => setTurn((value) => value + 1), path };
}

/** The time, once a second or slower. */
export function useNow(every = 1000): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}

/** A value that follows another after a pause, for text that is being typed. */
export function useSettled<T>(value: T, pause = 250): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(() => value), pause);
    return () => clearTimeout(timer);
  }, [value, pause]);
  return settled;
}
