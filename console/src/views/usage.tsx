// Who calls what, over which time, and which limits will run out.

import { useMemo } from "preact/hooks";
import { withQuery } from "../api";
import { milliseconds, moment, number, percent } from "../format";
import { useData } from "../query";
import { filter, link, place } from "../router";
import type { Bucket, Totals, Usage } from "../types";
import { Chart } from "../ui/chart";
import { Limits } from "../ui/limits";
import { downloadTable } from "../ui/download";
import { Empty, Failure, Loading, Panel, Segments } from "../ui/parts";
import { SortHead, useSorted } from "../ui/sort";

type By = "tool" | "caller" | "run";
const LENGTHS: Record<string, { ms: number; bucket: string; step: number; text: string }> = {
  "1h": { ms: 3600e3, bucket: "1m", step: 60e3, text: "1 hour" },
  "24h": { ms: 86400e3, bucket: "1h", step: 3600e3, text: "24 hours" },
  "30d": { ms: 30 * 86400e3, bucket: "1d", step: 86400e3, text: "30 days" },
};

const USUAL = "-calls";
const SORTS: Record<string, (row: Row) => string | number | null> = {
  name: (row) => row.name, calls: (row) => row.calls, failed: (row) => row.failed, refused: (row) => row.refused,
  cache: (row) => row.cache_hits / Math.max(1, row.calls), median: (row) => row.p50_ms, p99: (row) => row.p99_ms, tokens: (row) => row.tokens,
};

interface Row { name: string; calls: number; succeeded: number; failed: number; refused: number; cache_hits: number; p50_ms: number | null; p99_ms: number | null; tokens: number }

function summed(rows: (Usage | Bucket)[], name: (row: Usage | Bucket) => string): Row[] {
  const found = new Map<string, Row>();
  for (const row of rows) {
    const key = name(row);
    const old = found.get(key) ?? { name: key, calls: 0, succeeded: 0, failed: 0, refused: 0, cache_hits: 0, p50_ms: null, p99_ms: null, tokens: 0 };
    // Medians of parts cannot be added. The median of one part stays; of more parts only the worst p99 is told.
    found.set(key, {
      name: key, calls: old.calls + row.calls, succeeded: old.succeeded + row.succeeded, failed: old.failed + row.failed, refused: old.refused + row.refused,
      cache_hits: old.cache_hits + row.cache_hits, p50_ms: old.calls ? null : row.p50_ms, p99_ms: Math.max(old.p99_ms ?? 0, row.p99_ms ?? 0) || null,
      tokens: old.tokens + (row.tokens ? row.tokens.input_tokens + row.tokens.output_tokens : 0),
    });
  }
  return [...found.values()].sort((a, b) => b.calls - a.calls);
}

export function UsageView() {
  const { filters } = place.value;
  const by = (["tool", "caller", "run"].includes(filters.by ?? "") ? filters.by : "tool") as By;
  const length = filters.within && filters.within in LENGTHS ? filters.within : "24h";
  const { ms, bucket, step } = LENGTHS[length]!;
  const since = useMemo(() => new Date(Math.floor((Date.now() - ms) / step) * step).toISOString(), [length]);
  const timed = useData<{ buckets?: Bucket[]; tools?: Usage[] }>(withQuery("/usage", { since, bucket, by }), [], 15_000);
  const totals = useData<Totals>("/usage", ["calls"], 15_000);
  const buckets = timed.data?.buckets ?? null;
  const nameOf = (row: Usage | Bucket) => (by === "caller" ? row.caller : by === "run" ? ((row as Bucket).run_id ?? (row as Bucket & { run?: string }).run ?? "without a run") : row.tool) ?? "";
  const rows = useMemo(() => summed(buckets ?? (by === "run" ? [] : (totals.data?.tools ?? [])), nameOf), [buckets, totals.data, by]);
  const drawn = useMemo(() => {
    if (!buckets) return null;
    const end = Math.floor(Date.now() / step) * step, count = Math.round(ms / step) + 1;
    const times = Array.from({ length: count }, (_, index) => (end - (count - 1 - index) * step) / 1000);
    const all = new Map<number, Bucket[]>();
    for (const part of buckets) {
      const time = (Math.floor(Date.parse(part.start) / step) * step) / 1000;
      all.set(time, [...(all.get(time) ?? []), part]);
    }
    const sum = (time: number, of: (part: Bucket) => number) => (all.get(time) ?? []).reduce((total, part) => total + of(part), 0);
    return { times, lines: [
      { label: "calls", values: times.map((time) => sum(time, (part) => part.calls)), tone: "accent" as const },
      { label: "failed", values: times.map((time) => sum(time, (part) => part.failed)), tone: "bad" as const },
      { label: "refused", values: times.map((time) => sum(time, (part) => part.refused)), tone: "warn" as const },
    ] };
  }, [buckets]);
  const sorted = useSorted(rows, SORTS, USUAL);
  const save = () => downloadTable(`usage-by-${by}.csv`, [[by, "calls", "succeeded", "failed", "refused", "cache_hits", "p50_ms", "worst_p99_ms", "tokens"],
    ...sorted.map((row) => [row.name, row.calls, row.succeeded, row.failed, row.refused, row.cache_hits, row.p50_ms, row.p99_ms, row.tokens])]);
  const hasTokens = rows.some((row) => row.tokens > 0);
  const target = (name: string) => (by === "run" ? (name === "without a run" ? null : link("runs", name)) : by === "caller" ? link("calls", null, { caller: name }) : link("tools", name));
  return (
    <div class="view">
      <h1>Usage</h1>
      <div class="actions">
        <Segments<By> label="Group by" options={[["tool", "By tool"], ["caller", "By caller"], ["run", "By run"]]} value={by} choose={(next) => filter({ by: next })} />
        <button type="button" onClick={save} disabled={rows.length === 0}>Export</button>
        {buckets && <Segments label="Time" options={Object.entries(LENGTHS).map(([key, entry]) => [key, entry.text])} value={length} choose={(next) => filter({ within: next })} />}
      </div>
      {totals.error && <Failure error={totals.error} retry={totals.reload} />}
      {drawn && <Panel title={`Calls since ${moment(since)}`}><Chart times={drawn.times} lines={drawn.lines} label={`Calls since ${since}`} height={180} /></Panel>}
      <div class="detail">
        <div>
          <Panel title={buckets ? `By ${by}, since ${moment(since)}` : `By ${by}, all calls of the ledger`} flush>
            {!totals.data && !totals.error ? <Loading /> : rows.length === 0 ? <Empty>{by === "run" && !buckets ? <>This service does not count by run. <a href={link("runs")}>Runs</a> has the latest.</> : "No call in this time."}</Empty> : (
              <div class="scroll" tabIndex={0} role="group" aria-label={`Usage by ${by}`}>
                <table class="list usage stacked">
                  <thead><tr><SortHead column="name" label={by === "tool" ? "Tool" : by === "caller" ? "Caller" : "Run"} usual={USUAL} /><SortHead column="calls" label="Calls" usual={USUAL} num /><SortHead column="failed" label="Failed" usual={USUAL} num /><SortHead column="refused" label="Refused" usual={USUAL} num /><SortHead column="cache" label="Cache" usual={USUAL} num /><SortHead column="median" label="Median" usual={USUAL} num /><SortHead column="p99" label="Worst p99" usual={USUAL} num class="nowrap" />{hasTokens && <SortHead column="tokens" label="Tokens" usual={USUAL} num />}</tr></thead>
                  <tbody>
                    {sorted.slice(0, 300).map((row) => (
                      <tr key={row.name}>
                        <td class="name">{target(row.name) ? <a href={target(row.name)!}>{row.name}</a> : row.name}</td>
                        <td class="num" data-label="calls">{number(row.calls)}</td><td class={`num nowrap${row.failed ? " fault" : ""}`} data-label="failed">{row.failed ? `${number(row.failed)} (${percent(row.failed, row.calls)})` : "0"}</td><td class="num" data-label="refused">{number(row.refused)}</td>
                        <td class="num" data-label="cache">{percent(row.cache_hits, row.calls)}</td><td class="num nowrap" data-label="median">{milliseconds(row.p50_ms)}</td><td class="num nowrap" data-label="worst p99">{milliseconds(row.p99_ms)}</td>{hasTokens && <td class="num" data-label="tokens">{row.tokens ? number(row.tokens) : ""}</td>}
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            )}
          </Panel>
        </div>
        <aside aria-label="Limits">{totals.data && <Limits totals={totals.data} />}</aside>
      </div>
    </div>
  );
}
