// Files that a person saves from the page.

import { get, withQuery } from "../api";
import type { Call } from "../types";

const PAGE = 500;
/** More calls than that are a task for `toolcrib export`. */
const MOST = 10_000;

function save(name: string, type: string, parts: string[]) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(parts, { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Saves the calls that fit these filters, newest first, one JSON object in each line. */
export async function downloadCalls(query: Record<string, string | undefined>): Promise<void> {
  const lines: string[] = [];
  let cursor: string | null = null;
  do {
    const page: { invocations: Call[]; next_cursor: string | null } = await get(withQuery("/invocations", { ...query, limit: PAGE, cursor }));
    lines.push(...page.invocations.map((call) => `${JSON.stringify(call)}\n`));
    cursor = page.next_cursor;
  } while (cursor && lines.length < MOST);
  save("calls.jsonl", "application/jsonl", lines);
}

/** Saves a table as CSV (RFC 4180). */
export function downloadTable(name: string, rows: (string | number | null)[][]): void {
  const cell = (value: string | number | null) => {
    const text = value === null ? "" : String(value);
    // A spreadsheet takes such a text for a formula.
    const plain = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\r\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
  };
  save(name, "text/csv", rows.map((row) => `${row.map(cell).join(",")}\r\n`));
}
