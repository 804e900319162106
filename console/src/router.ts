// The view and its filters are in the fragment of the address, so that a link shows the same view.

import { signal } from "@preact/signals";

export interface Place { view: string; id: string | null; filters: Record<string, string>; turn: number }

/** Grows with each step in the history, so that a view begins anew. */
let turn = 0;

function parse(hash: string): Place {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2) as [string, string?];
  const [view = "", ...rest] = path.split("/");
  return { view: view || "now", id: rest.length ? decode(rest.join("/")) : null, filters: Object.fromEntries(new URLSearchParams(query)), turn };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// The page of the API has an address of its own.
if (location.pathname === "/docs") history.replaceState(null, "", `/${location.hash.startsWith("#/api") ? location.hash : "#/api"}`);

export const place = signal<Place>(parse(location.hash));

addEventListener("hashchange", () => {
  turn += 1;
  place.value = parse(location.hash);
});

export function link(view: string, id: string | null = null, filters: Record<string, string | null | undefined> = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(filters)) if (value) query.set(name, value);
  const text = query.toString();
  return `#/${view}${id === null ? "" : `/${encodeURIComponent(id)}`}${text ? `?${text}` : ""}`;
}

export function go(to: string) {
  location.hash = to.replace(/^#/, "");
}

/** Changes filters of the view without a step in the history. */
export function filter(changes: Record<string, string | null>) {
  const { view, id, filters } = place.value;
  const to = link(view, id, { ...filters, ...changes });
  history.replaceState(null, "", to);
  place.value = parse(to);
}
