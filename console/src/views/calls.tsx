// The list of calls, with filters in the address and an endless list.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError, get, session, withQuery } from "../api";
import { brief, exact, milliseconds, moment, number, words } from "../format";
import { useData, useSettled } from "../query";
import { filter, go, link, place } from "../router";
import type { Call, Tool } from "../types";
import { downloadCalls } from "../ui/download";
import { Action, Chip, Empty, Failure, Loading, StateMark } from "../ui/parts";
import { reveal, Spacer, useRows } from "../ui/rows";

const PAGE = 60;
interface Page { invocations: Call[]; next_cursor: string | null }

const STATES: [string, string][] = [["", "any state"], ["running", "running"], ["waiting", "waiting"], ["succeeded", "succeeded"], ["failed,timed_out,unknown", "without success"], ["failed", "failed"], ["timed_out", "timed out"], ["refused", "refused"], ["cancelled", "cancelled"], ["unknown", "unknown"]];
const SPANS: [string, string][] = [["", "any time"], ["15m", "15 minutes"], ["1h", "1 hour"], ["24h", "24 hours"], ["7d", "7 days"]];

const isTyping = (target: EventTarget | null) => target instanceof HTMLElement && (target.matches("input, select, textarea") || target.isContentEditable);

/** j and k move, Enter opens. The rows are links, so that Tab and the pointer work as everywhere. */
function useKeys(count: number, open: (index: number) => void) {
  const [at, setAt] = useState(-1);
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "/" && !isTyping(event.target)) {
        event.preventDefault();
        document.getElementById("filter-tool")?.focus();
      } else if (event.key === "Escape" && isTyping(event.target)) (event.target as HTMLElement).blur();
      else if (isTyping(event.target)) return;
      else if (event.key === "j") setAt((old) => Math.min(count - 1, old + 1));
      else if (event.key === "k") setAt((old) => Math.max(0, old - 1));
      else if (event.key === "Enter" && at >= 0 && (event.target === document.body || (event.target as HTMLElement).id === "main")) open(at);
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [count, at, open]);
  useEffect(() => { if (at >= 0) reveal(document.querySelector<HTMLElement>("table.calls"), at); }, [at]);
  return at;
}

export function Calls() {
  const { filters } = place.value;
  const [tool, setTool] = useState(filters.tool ?? "");
  const [caller, setCaller] = useState(filters.caller ?? "");
  const [run, setRun] = useState(filters.run_id ?? "");
  const [text, setText] = useState(filters.q ?? "");
  const settled = useSettled(`${tool}\n${caller}\n${run}\n${text}`);
  useEffect(() => {
    const [tool, caller, run_id, q] = settled.split("\n") as [string, string, string, string];
    filter({ tool, caller, run_id, q });
  }, [settled]);
  const tools = useData<{ tools: Tool[] }>("/tools?discovery=off", ["tools"]);

  const query = { tool: filters.tool, caller: filters.caller, run_id: filters.run_id, state: filters.state, kind: filters.kind, q: filters.q, since: filters.since, until: filters.until, parent: filters.parent, idempotency_key: filters.idempotency_key };
  const path = withQuery("/invocations", { ...query, limit: PAGE });
  const first = useData<Page>(path, ["calls"]);
  const [older, setOlder] = useState<{ path: string; calls: Call[]; cursor: string | null } | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const busy = useRef(false);
  const more = older?.path === path ? older : null;

  const calls = useMemo(() => {
    const known = new Set(first.data?.invocations.map((call) => call.invocation_id));
    return [...(first.data?.invocations ?? []), ...(more?.calls ?? []).filter((call) => !known.has(call.invocation_id))];
  }, [first.data, more]);
  const cursor = more ? more.cursor : (first.data?.next_cursor ?? null);

  const load = async () => {
    if (busy.current || !cursor) return;
    busy.current = true;
    try {
      const page = await get<Page>(withQuery("/invocations", { ...query, limit: PAGE, cursor }));
      // The first page moves on while calls arrive, so that what it showed stays here.
      setOlder({ path, calls: [...(more?.calls ?? first.data?.invocations ?? []), ...page.invocations], cursor: page.next_cursor });
      setError(null);
    } catch (failure) {
      setError(failure as ApiError);
    } finally {
      busy.current = false;
    }
  };

  const end = useRef<HTMLDivElement>(null);
  const latest = useRef(load);
  latest.current = load;
  useEffect(() => {
    const watch = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && void latest.current(), { rootMargin: "600px" });
    if (end.current) watch.observe(end.current);
    return () => watch.disconnect();
  }, [cursor]);

  const kinds = useMemo(() => [...new Set([...calls.map((call) => call.kind), filters.kind].filter(Boolean) as string[])].sort(), [calls, filters.kind]);

  const at = useKeys(calls.length, (index) => go(link("calls", calls[index]!.invocation_id)));
  const used = Object.values(query).some(Boolean);
  const { table, from, to, above, below } = useRows(calls.length);
  return (
    <div class="view">
      <div class="view-head">
        <h1>Calls</h1>
        <Action run={() => downloadCalls(query)} done="The calls were exported">Export</Action>
        <p class="dim small wide-only"><kbd>j</kbd> <kbd>k</kbd> move, <kbd>Enter</kbd> opens, <kbd>/</kbd> filters</p>
      </div>
      <form class="filters" role="search" aria-label="Filter the calls" onSubmit={(event) => event.preventDefault()}>
        <label><span>Tool</span><input id="filter-tool" list="tool-names" value={tool} placeholder="any tool" onInput={(event) => setTool(event.currentTarget.value)} /></label>
        <datalist id="tool-names">{tools.data?.tools.map((entry) => <option key={entry.name} value={entry.name} />)}</datalist>
        {session.value!.admin && <label><span>Caller</span><input value={caller} placeholder="any caller" onInput={(event) => setCaller(event.currentTarget.value)} /></label>}
        <label><span>Run</span><input value={run} placeholder="any run" onInput={(event) => setRun(event.currentTarget.value)} /></label>
        <label><span>State</span><select value={filters.state ?? ""} onChange={(event) => filter({ state: event.currentTarget.value })}>{STATES.map(([value, text]) => <option key={value} value={value}>{text}</option>)}</select></label>
        <label><span>Started within</span><select value={filters.since ?? ""} onChange={(event) => filter({ since: event.currentTarget.value })}>{SPANS.map(([value, text]) => <option key={value} value={value}>{text}</option>)}</select></label>
        <label><span>Kind of failure</span><select value={filters.kind ?? ""} onChange={(event) => filter({ kind: event.currentTarget.value })}><option value="">any kind</option>{kinds.map((kind) => <option key={kind} value={kind}>{words(kind)}</option>)}</select></label>
        <label><span>Text</span><input type="search" value={text} placeholder="of a tool's name or an error" onInput={(event) => setText(event.currentTarget.value)} /></label>
        {used && <button type="button" class="quiet" onClick={() => { setTool(""); setCaller(""); setRun(""); setText(""); filter(Object.fromEntries(Object.keys(query).map((name) => [name, null]))); }}>Clear</button>}
      </form>
      {filters.parent && <p class="dim small">Only calls that call <code>{filters.parent}</code> made.</p>}
      {(first.error ?? error) && <Failure error={(first.error ?? error)!} retry={first.reload} />}
      {!first.data && !first.error ? <Loading /> : calls.length === 0 ? (
        <Empty>{used ? "No call fits these filters." : "There is no call yet. Open a tool to try it."}</Empty>
      ) : (
        <div class="panel panel-flush">
          <table class="list fixed calls" ref={table} aria-rowcount={cursor ? -1 : calls.length + 1}>
            <caption class="hidden">Calls, newest first</caption>
            <thead><tr><th scope="col" class="w-time">Started</th><th scope="col" class="w-name">Tool</th><th scope="col" class="w-state">State</th><th scope="col" class="wide-only w-name-small">Caller</th><th scope="col" class="wide-only w-name-small">Run</th><th scope="col" class="wide-only">Arguments, or why it failed</th><th scope="col" class="num w-num">Took</th></tr></thead>
            <tbody>
              <Spacer height={above} />
              {calls.slice(from, to).map((call, offset) => { const index = from + offset; return (
                <tr key={call.invocation_id} class={index === at ? "chosen" : ""} aria-rowindex={index + 2} aria-selected={index === at || undefined}>
                  <td class="dim" title={exact(call.started_at)}>{moment(call.started_at)}</td>
                  <td class="name" title={call.tool}>{call.count > 1 && <Chip>{number(call.count)}×</Chip>}<a class="row-link" href={link("calls", call.invocation_id)}>{call.tool}</a></td>
                  <td title={call.detail ?? undefined}><StateMark state={call.state} kind={call.kind} />{(call.cache === "hit" || call.cache === "joined") && <Chip>cache</Chip>}{call.attempts > 1 && <Chip tone="warn">{call.attempts} tries</Chip>}</td>
                  <td class="wide-only" title={call.caller}>{call.caller}</td>
                  <td class="wide-only" title={call.run_id ?? undefined}>{call.run_id && <a href={link("runs", call.run_id)}>{call.run_id}</a>}</td>
                  <td class="wide-only" title={call.detail ?? undefined}>{call.detail ? <span class="why">{call.detail}</span> : <code>{call.arguments ? brief(call.arguments) : <span class="dim">{call.arguments_digest ? "only a digest is kept" : "long"}</span>}</code>}</td>
                  <td class="num">{milliseconds(call.duration_ms)}</td>
                </tr>
              ); })}
              <Spacer height={below} />
            </tbody>
          </table>
          <div ref={end} class="list-end">{cursor ? <button type="button" class="quiet" onClick={() => void load()}>Load older calls</button> : <span class="dim small">{number(calls.length)} calls, no older ones</span>}</div>
        </div>
      )}
    </div>
  );
}
