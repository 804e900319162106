export function milliseconds(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (value < 1) return "<1 ms";
  if (value < 10) return `${value.toFixed(1)} ms`;
  if (value < 1000) return `${Math.round(value)} ms`;
  if (value < 60_000) return `${(value / 1000).toFixed(value < 10_000 ? 2 : 1)} s`;
  return span(value);
}

/** A length of time in its two largest units. */
export function span(value: number): string {
  const seconds = Math.max(0, Math.round(value / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return seconds % 60 && minutes < 10 ? `${minutes} min ${seconds % 60} s` : `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return `${Math.floor(hours / 24)} d ${hours % 24 ? `${hours % 24} h` : ""}`.trim();
}

const whole = new Intl.NumberFormat("en");
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const number = (value: number) => (value >= 1e6 ? compact.format(value) : whole.format(value));

export function percent(part: number, of: number): string {
  if (!of) return "–";
  const value = (100 * part) / of;
  return `${value > 0 && value < 10 ? value.toFixed(1) : Math.round(value)} %`;
}

const pad = (value: number, length = 2) => String(value).padStart(length, "0");

export function clock(time: string, fractions = false): string {
  const date = new Date(time);
  const text = `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
  return fractions ? `${text}.${pad(date.getMilliseconds(), 3)}` : text;
}

export const day = (time: string) => {
  const date = new Date(time);
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
};

const short = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** The time of today, else day and time, with the year if it is another one. */
export function moment(time: string): string {
  const date = new Date(time), now = new Date();
  if (day(time) === day(now.toISOString())) return clock(time);
  const text = `${short.format(date)} ${clock(time).slice(0, 5)}`;
  return date.getFullYear() === now.getFullYear() ? text : `${day(time)} ${clock(time).slice(0, 5)}`;
}

/** The exact time, for the hint of a shortened one. */
export const exact = (time: string) => `${day(time)} ${clock(time, true)}`;

export function bytes(value: number): string {
  if (value < 1024) return `${value} B`;
  if (value < 1 << 20) return `${(value / 1024).toFixed(1)} KiB`;
  return `${(value / (1 << 20)).toFixed(1)} MiB`;
}

/** JSON on one line, cut to a length. */
export function brief(value: unknown, length = 160): string {
  const text = JSON.stringify(value) ?? "";
  return text.length > length ? `${text.slice(0, length)}…` : text;
}

const STATES: Record<string, string> = {
  reserved: "running", running: "running", waiting: "waiting", succeeded: "succeeded", failed: "failed", timed_out: "timed out",
  cancelled: "cancelled", refused: "refused", unknown: "unknown",
};

/** A number of things: `1 tool`, `2 tools`. */
export const count = (many: number, one: string, more = `${one}s`) => `${number(many)} ${many === 1 ? one : more}`;

export const stateWord = (state: string) => STATES[state] ?? state.replaceAll("_", " ");
export const words = (name: string) => name.replaceAll("_", " ");

/** A limit in words: `5 a day for each caller`. */
export function limitWords(limit: { limit?: number; calls?: number; per: string; scope: string; of?: string }): string {
  const each = limit.of === "caller" ? "all tools together" : limit.scope === "tool" ? "all callers together" : "each caller";
  const calls = number(limit.limit ?? limit.calls ?? 0);
  if (limit.per === "lifetime") return `${calls} in total, ${each}`;
  return `${calls} ${limit.per === "hour" ? "an" : "a"} ${limit.per}, ${each}`;
}

const INVISIBLE = /[\p{Cf}\p{Co}\p{Zl}\p{Zp}\u{A0}\u{1680}\u{2000}-\u{200A}\u{202F}\u{205F}\u{2800}\u{115F}\u{1160}\u{3164}\u{FE00}-\u{FE0F}\u{FFA0}\u{E0100}-\u{E01EF}]/gu;

/** A text for a person who decides about it: characters that hide or reorder others are written out. */
export const visible = (text: string) => text.replace(INVISIBLE, (sign) => `\\u{${sign.codePointAt(0)!.toString(16)}}`);
