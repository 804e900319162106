// The calls of one run, as a tree on a time line.

import { get, withQuery } from "../api";
import { Fragment } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { exact, milliseconds, moment, number } from "../format";
import { news } from "../live";
import { useData, useNow } from "../query";
import { link, place, filter } from "../router";
import type { Approval, Call } from "../types";
import { Icon } from "../ui/icons";
import { Chip, Empty, Failure, Loading, Panel, StateMark } from "../ui/parts";
import { SortHead, useSorted } from "../ui/sort";
import { turns } from "../ui/turns";

interface Page { invocations: Call[]; next_cursor: string | null }
const PAGE = 500;
const MOST = 5000;

/** Calls in the order of the tree, each with its depth. Ids sort by start. */
function ordered(calls: Call[], root?: string): { call: Call; depth: number }[] {
  const known = new Set(calls.map((call) => call.invocation_id));
  const below = new Map<string, Call[]>();
  for (const call of [...calls].sort((a, b) => (a.invocation_id < b.invocation_id ? -1 : 1))) {
    const parent = call.parent && known.has(call.parent) && call.invocation_id !== root ? call.parent : "";
    below.set(parent, [...(below.get(parent) ?? []), call]);
  }
  const rows: { call: Call; depth: number }[] = [];
  const add = (parent: string, depth: number) => {
    for (const call of below.get(parent) ?? []) {
      rows.push({ call, depth });
      add(call.invocation_id, depth + 1);
    }
  };
  add("", 0);
  return rows;
}

/** `decided`: the approvals of these calls. `root`: the call whose calls are shown. */
export function Waterfall({ calls, root, decided }: { calls: Call[]; root?: string; decided?: ReadonlyMap<string, Approval> }) {
  const now = useNow(1000);
  const rows = useMemo(() => ordered(calls, root), [calls, root]);
  const parts = useMemo(() => (root ? new Map() : turns(rows, decided)), [rows, root, decided]);
  const started = (call: Call) => Date.parse(call.started_at);
  const ended = (call: Call) => started(call) + (call.duration_ms ?? (["running", "reserved", "waiting"].includes(call.state) ? now - started(call) : 0));
  const asked = decided ? [...decided.values()].map((approval) => Date.parse(approval.requested_at)) : [];
  const begin = Math.min(...calls.map(started), ...asked), length = Math.max(1, Math.max(...calls.map(ended)) - begin);
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label="Time line">
      <table class="list waterfall stacked">
        <thead><tr><th scope="col">Call</th><th scope="col">State</th><th scope="col" class="line">0 <span class="right">{milliseconds(length)}</span></th><th scope="col" class="num">Took</th></tr></thead>
        <tbody>
          {rows.map(({ call, depth }) => { const turn = parts.get(call.invocation_id), approval = decided?.get(call.invocation_id); return (
            <Fragment key={call.invocation_id}>
            {turn && (
              <tr class="turn">
                <th scope="rowgroup" colSpan={2}>Turn {turn.number} <span class="dim">{turn.calls === 1 ? "1 call" : `${turn.calls} calls`}</span></th>
                <td class="line">{turn.pause > 0 && <svg viewBox="0 0 1000 10" preserveAspectRatio="none" class="span pause" role="img" aria-label={`The model takes ${milliseconds(turn.pause)}`}><rect x={(1000 * (turn.start - turn.pause - begin)) / length} width={Math.max(2, (1000 * turn.pause) / length)} y="3" height="4" /></svg>}</td>
                <td class="num nowrap dim">{turn.pause > 0 ? `after ${milliseconds(turn.pause)}` : ""}</td>
              </tr>
            )}
            <tr class="call">
              <td class="name" style={{ paddingLeft: `${14 + 16 * Math.min(depth, 8)}px` }}>{depth > 0 && <span class="dim" aria-hidden="true">└ </span>}<a href={link("calls", call.invocation_id)}>{call.tool}</a></td>
              <td class="nowrap"><StateMark state={call.state} kind={call.kind} />{approval && <Chip tone={approval.state === "approved" ? "good" : approval.state === "waiting" ? "warn" : "bad"}>{approval.state}{approval.decided_by ? ` by ${approval.decided_by}` : ""}</Chip>}</td>
              <td class="line">
                <svg viewBox="0 0 1000 10" preserveAspectRatio="none" class={`span state-${call.state}`} role="img" aria-label={`starts after ${milliseconds(started(call) - begin)}`}>
                  {approval && <rect class="waited" x={(1000 * (Date.parse(approval.requested_at) - begin)) / length} width={Math.max(4, (1000 * ((approval.decided_at ? Date.parse(approval.decided_at) : now) - Date.parse(approval.requested_at))) / length)} height="10" />}
                  <rect x={(1000 * (started(call) - begin)) / length} width={Math.max(4, (1000 * (ended(call) - started(call))) / length)} height="10" />
                </svg>
              </td>
              <td class="num nowrap">{milliseconds(call.duration_ms)}</td>
            </tr>
            </Fragment>
          ); })}
        </tbody>
      </table>
    </div>
  );
}

/** The approvals of a run's calls, if any of its tools needs one. */
function useDecided(calls: Call[] | null): ReadonlyMap<string, Approval> | undefined {
  const tools = [...new Set(calls?.map((call) => call.tool))].sort().join("\n");
  const waits = calls?.some((call) => call.state === "waiting") ?? false;
  const [found, setFound] = useState<ReadonlyMap<string, Approval>>();
  const revision = news.approvals.value;
  useEffect(() => {
    if (!tools) return;
    let live = true;
    const ids = new Set(calls?.map((call) => call.invocation_id));
    Promise.all(["approved", "denied", "waiting"].map((state) => get<{ approvals: Approval[] }>(withQuery("/approvals", { state, limit: 100 }))))
      .then((pages) => live && setFound(new Map(pages.flatMap((page) => page.approvals).filter((approval) => ids.has(approval.invocation_id)).map((approval) => [approval.invocation_id, approval]))), () => undefined);
    return () => { live = false; };
  }, [tools, waits, revision]);
  return found;
}

export function RunPage({ id }: { id: string }) {
  const [calls, setCalls] = useState<Call[] | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const revision = news.calls.value;
  useEffect(() => {
    let live = true;
    void (async () => {
      const all: Call[] = [];
      let cursor: string | null = null;
      do {
        const page: Page = await get<Page>(withQuery("/invocations", { run_id: id, limit: PAGE, cursor }));
        all.push(...page.invocations);
        cursor = page.next_cursor;
      } while (cursor && all.length < MOST);
      if (live) {
        setCalls(all);
        setError(null);
      }
    })().catch((failure: Error) => live && setError(failure));
    return () => { live = false; };
  }, [id, revision]);
  const decided = useDecided(calls);
  const failed = failedCalls(calls ?? []), refused = refusedCalls(calls ?? []);
  const without = [failed && `${number(failed)} failed`, refused && `${number(refused)} refused`].filter(Boolean).join(", ");
  const first = calls?.length ? Math.min(...calls.map((call) => Date.parse(call.started_at))) : 0;
  const last = calls?.length ? Math.max(...calls.map((call) => Date.parse(call.started_at) + (call.duration_ms ?? 0))) : 0;
  return (
    <div class="view">
      <div class="view-head">
        <div><a class="crumb" href={link("runs")}><Icon name="back" /> Runs</a><h1>Run {id}</h1></div>
        <div class="actions"><a class="button" href={link("calls", null, { run_id: id })}>Its calls</a></div>
      </div>
      {error && !calls && <div class="note note-bad" role="alert">{error.message}</div>}
      {!calls ? !error && <Loading /> : calls.length === 0 ? <Empty>There is no call of this run.</Empty> : (
        <Panel title={`${number(calls.length)} ${calls.length === 1 ? "call" : "calls"} by ${[...new Set(calls.map((call) => call.caller))].join(", ")} in ${milliseconds(last - first)}, ${without || "all well"}`} flush><Waterfall calls={calls} decided={decided} /></Panel>
      )}
    </div>
  );
}

/** How many calls each row of these states counts. */
const inStates = (calls: Call[], states: string[]) => calls.filter((call) => states.includes(call.state)).reduce((sum, call) => sum + call.count, 0);
const failedCalls = (calls: Call[]) => inStates(calls, ["failed", "timed_out", "unknown", "cancelled"]);
const refusedCalls = (calls: Call[]) => inStates(calls, ["refused"]);
const lengthOf = (calls: Call[]) => Math.max(...calls.map((call) => Date.parse(call.started_at) + (call.duration_ms ?? 0))) - Math.min(...calls.map((call) => Date.parse(call.started_at)));

interface Run { run: string; calls: Call[] }
const USUAL = "-last";
const SORTS: Record<string, (row: Run) => string | number | null> = {
  last: ({ calls }) => calls[0]!.started_at, run: ({ run }) => run, caller: ({ calls }) => calls[0]!.caller, calls: ({ calls }) => calls.length,
  failed: ({ calls }) => failedCalls(calls), refused: ({ calls }) => refusedCalls(calls), took: ({ calls }) => lengthOf(calls),
};

/** Runs among the latest calls. */
export function Runs() {
  const loaded = useData<Page>(withQuery("/invocations", { limit: PAGE, since: place.value.filters.since }), ["calls"]);
  const [text, setText] = useState("");
  const runs = useMemo(() => {
    const found = new Map<string, Call[]>();
    for (const call of loaded.data?.invocations ?? []) if (call.run_id) found.set(call.run_id, [...(found.get(call.run_id) ?? []), call]);
    return [...found].map(([run, calls]) => ({ run, calls }));
  }, [loaded.data]);
  const sorted = useSorted(runs, SORTS, USUAL);
  return (
    <div class="view">
      <h1>Runs</h1>
      <form class="filters" role="search" aria-label="Open a run" onSubmit={(event) => { event.preventDefault(); if (text.trim()) location.hash = link("runs", text.trim()); }}>
        <label><span>Run</span><input value={text} placeholder="run_id of the caller" onInput={(event) => setText(event.currentTarget.value)} /></label>
        <label><span>Started within</span><select value={place.value.filters.since ?? ""} onChange={(event) => filter({ since: event.currentTarget.value })}><option value="">any time</option><option value="1h">1 hour</option><option value="24h">24 hours</option></select></label>
        <button type="submit" disabled={!text.trim()}>Open</button>
      </form>
      {loaded.error && <Failure error={loaded.error} retry={loaded.reload} />}
      {!loaded.data ? !loaded.error && <Loading /> : runs.length === 0 ? <Empty>None of the latest calls carries a <code>run_id</code>.</Empty> : (
        <div class="panel panel-flush">
          <table class="list fixed runs">
            <thead><tr><SortHead column="last" label="Last call" usual={USUAL} class="w-time" /><SortHead column="run" label="Run" usual={USUAL} class="w-name" /><SortHead column="caller" label="Caller" usual={USUAL} class="w-name-small wide-only" /><SortHead column="calls" label="Calls" usual={USUAL} num class="w-num" /><SortHead column="failed" label="Failed" usual={USUAL} num class="w-num" /><SortHead column="refused" label="Refused" usual={USUAL} num class="w-num wide-only" /><SortHead column="took" label="Took" usual={USUAL} num class="w-num wide-only" /><th scope="col" class="wide-only">Tools</th></tr></thead>
            <tbody>
              {sorted.map(({ run, calls }) => (
                <tr key={run}>
                  <td class="dim" title={exact(calls[0]!.started_at)}>{moment(calls[0]!.started_at)}</td><td class="name" title={run}><a class="row-link" href={link("runs", run)}>{run}</a></td><td class="wide-only" title={calls[0]!.caller}>{calls[0]!.caller}</td><td class="num">{calls.length}</td>
                  <td class={`num${failedCalls(calls) ? " fault" : ""}`}>{failedCalls(calls) || ""}</td><td class="num wide-only">{refusedCalls(calls) || ""}</td><td class="num wide-only">{milliseconds(lengthOf(calls))}</td>
                  <td class="wide-only">{[...new Set(calls.map((call) => call.tool))].join(", ")}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {loaded.data?.next_cursor && <p class="dim small">From the latest {PAGE} calls. Enter an older run above.</p>}
    </div>
  );
}
