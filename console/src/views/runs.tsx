// The calls of one run, as a tree on a time line.

import { get, withQuery } from "../api";
import { useEffect, useMemo, useState } from "preact/hooks";
import { milliseconds, moment } from "../format";
import { news } from "../live";
import { useData, useNow } from "../query";
import { link, place, filter } from "../router";
import type { Call } from "../types";
import { Icon } from "../ui/icons";
import { Empty, Failure, Loading, Panel, StateMark } from "../ui/parts";

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

export function Waterfall({ calls, root }: { calls: Call[]; root?: string }) {
  const now = useNow(1000);
  const rows = useMemo(() => ordered(calls, root), [calls, root]);
  const started = (call: Call) => Date.parse(call.started_at);
  const ended = (call: Call) => started(call) + (call.duration_ms ?? (["running", "reserved", "waiting"].includes(call.state) ? now - started(call) : 0));
  const begin = Math.min(...calls.map(started)), length = Math.max(1, Math.max(...calls.map(ended)) - begin);
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label="Time line">
      <table class="list waterfall">
        <thead><tr><th scope="col">Call</th><th scope="col">State</th><th scope="col" class="line">0 <span class="right">{milliseconds(length)}</span></th><th scope="col" class="num">Took</th></tr></thead>
        <tbody>
          {rows.map(({ call, depth }) => (
            <tr key={call.invocation_id}>
              <td class="name" style={{ paddingLeft: `${14 + 16 * Math.min(depth, 8)}px` }}>{depth > 0 && <span class="dim" aria-hidden="true">└ </span>}<a href={link("calls", call.invocation_id)}>{call.tool}</a></td>
              <td class="nowrap"><StateMark state={call.state} kind={call.kind} /></td>
              <td class="line">
                <svg viewBox="0 0 1000 10" preserveAspectRatio="none" class={`span state-${call.state}`} role="img" aria-label={`starts after ${milliseconds(started(call) - begin)}`}>
                  <rect x={(1000 * (started(call) - begin)) / length} width={Math.max(4, (1000 * (ended(call) - started(call))) / length)} height="10" />
                </svg>
              </td>
              <td class="num nowrap">{milliseconds(call.duration_ms)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
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
      if (live) setCalls(all);
    })().catch((failure: Error) => live && setError(failure));
    return () => { live = false; };
  }, [id, revision]);
  const failed = calls?.filter((call) => !["succeeded", "running", "reserved", "waiting"].includes(call.state)).length ?? 0;
  const first = calls?.length ? Math.min(...calls.map((call) => Date.parse(call.started_at))) : 0;
  const last = calls?.length ? Math.max(...calls.map((call) => Date.parse(call.started_at) + (call.duration_ms ?? 0))) : 0;
  return (
    <div class="view">
      <div class="view-head">
        <div><a class="crumb" href={link("runs")}><Icon name="back" /> Runs</a><h1>Run {id}</h1></div>
        <div class="actions"><a class="button" href={link("calls", null, { run_id: id })}>Its calls</a></div>
      </div>
      {error && <div class="note note-bad" role="alert">{error.message}</div>}
      {!calls ? !error && <Loading /> : calls.length === 0 ? <Empty>There is no call of this run.</Empty> : (
        <Panel title={`${calls.length} calls by ${[...new Set(calls.map((call) => call.caller))].join(", ")} in ${milliseconds(last - first)}, ${failed ? `${failed} without success` : "all well"}`} flush><Waterfall calls={calls} /></Panel>
      )}
    </div>
  );
}

/** Runs among the latest calls. */
export function Runs() {
  const loaded = useData<Page>(withQuery("/invocations", { limit: PAGE, since: place.value.filters.since }), ["calls"]);
  const [text, setText] = useState("");
  const runs = useMemo(() => {
    const found = new Map<string, Call[]>();
    for (const call of loaded.data?.invocations ?? []) if (call.run_id) found.set(call.run_id, [...(found.get(call.run_id) ?? []), call]);
    return [...found];
  }, [loaded.data]);
  return (
    <div class="view">
      <h1>Runs</h1>
      <form class="filters" role="search" aria-label="Open a run" onSubmit={(event) => { event.preventDefault(); if (text.trim()) location.hash = link("runs", text.trim()); }}>
        <label><span>Run</span><input value={text} placeholder="run_id of the caller" onInput={(event) => setText(event.currentTarget.value)} /></label>
        <label><span>Started within</span><select value={place.value.filters.since ?? ""} onChange={(event) => filter({ since: event.currentTarget.value })}><option value="">any time</option><option value="1h">1 hour</option><option value="24h">24 hours</option></select></label>
        <button type="submit">Open</button>
      </form>
      {loaded.error && <Failure error={loaded.error} retry={loaded.reload} />}
      {!loaded.data ? <Loading /> : runs.length === 0 ? <Empty>None of the latest calls carries a <code>run_id</code>.</Empty> : (
        <div class="panel panel-flush scroll" tabIndex={0} role="group" aria-label="Runs">
          <table class="list">
            <thead><tr><th scope="col">Last call</th><th scope="col">Run</th><th scope="col">Caller</th><th scope="col" class="num">Calls</th><th scope="col" class="num">Without success</th><th scope="col">Tools</th></tr></thead>
            <tbody>
              {runs.map(([run, calls]) => (
                <tr key={run}>
                  <td class="dim nowrap">{moment(calls[0]!.started_at)}</td><td class="name"><a href={link("runs", run)}>{run}</a></td><td>{calls[0]!.caller}</td><td class="num">{calls.length}</td>
                  <td class="num">{calls.filter((call) => ["failed", "timed_out", "refused", "unknown", "cancelled"].includes(call.state)).length}</td>
                  <td class="cut">{[...new Set(calls.map((call) => call.tool))].join(", ")}</td>
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
