import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { request, send, session, withQuery } from "../api";
import { brief, count, milliseconds, moment, number, percent, span, words } from "../format";
import { progress, touch } from "../live";
import { useData, useNow } from "../query";
import { link } from "../router";
import type { Bucket, Call, Ready, Replica, Source, Totals } from "../types";
import { Chart } from "../ui/chart";
import { Failures } from "../ui/failures";
import { hasLimits, Limits } from "../ui/limits";
import { Action, Chip, Empty, Facts, Failure, Panel, StateMark } from "../ui/parts";

const WINDOW = 500;

/** Figures of the last minute, from the calls of the last minute. */
function figures(calls: Call[], now: number) {
  const ended = calls.filter((call) => call.duration_ms !== null && call.state !== "refused");
  const times = ended.map((call) => call.duration_ms!).sort((a, b) => a - b);
  const at = (share: number) => (times.length ? times[Math.min(times.length - 1, Math.floor(share * times.length))]! : null);
  const total = calls.reduce((sum, call) => sum + call.count, 0);
  const oldest = calls.length ? Date.parse(calls[calls.length - 1]!.started_at) : now;
  return {
    total,
    seconds: calls.length >= WINDOW ? Math.max(1, (now - oldest) / 1000) : 60,
    errors: calls.filter((call) => ["failed", "timed_out", "unknown"].includes(call.state)).length,
    refused: calls.filter((call) => call.state === "refused").reduce((sum, call) => sum + call.count, 0),
    hits: calls.filter((call) => call.cache === "hit" || call.cache === "joined").length,
    p50: at(0.5), p99: at(0.99),
  };
}

const QUEUED = /^toolcrib_queued\{tool="([^"]*)"\} (\d+)$/gm;
/** A page of metrics of many tools is long, so that it is read less often. */
const LONG = 300_000;

/** Calls that wait for a permit, by tool. Null for callers that may not read the metrics. */
function useQueue(admin: boolean): [string, number][] | null {
  const [queue, setQueue] = useState<[string, number][] | null>(null);
  useEffect(() => {
    if (!admin) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let live = true;
    const look = async () => {
      let pause = 5_000;
      try {
        const response = document.hidden ? null : await send("GET", "/metrics", undefined, { accept: "text/plain" });
        if (response && !response.ok && response.status !== 503) return;
        if (response?.ok) {
          const text = await response.text();
          if (text.length > LONG) pause = 30_000;
          if (live) setQueue([...text.matchAll(QUEUED)].map((found): [string, number] => [found[1]!, Number(found[2])]).filter(([, count]) => count > 0).sort((a, b) => b[1] - a[1]));
        }
      } catch {
        // The top of the page says that the service cannot be reached.
      }
      if (live) timer = setTimeout(look, pause);
    };
    void look();
    return () => { live = false; clearTimeout(timer); };
  }, [admin]);
  return queue;
}

function Running({ calls, now }: { calls: Call[]; now: number }) {
  if (calls.length === 0) return <Empty>No call runs.</Empty>;
  return (
    <table class="list">
      <thead><tr><th scope="col">Tool</th><th scope="col">Caller</th><th scope="col">Arguments</th><th scope="col">Progress</th><th scope="col" class="num">For</th><th scope="col"><span class="hidden">Cancel</span></th></tr></thead>
      <tbody>
        {calls.map((call) => (
          <tr key={call.invocation_id}>
            <td><a href={link("calls", call.invocation_id)}>{call.tool}</a> {call.state === "waiting" && <Chip tone="warn">waits for a person</Chip>}</td>
            <td class="nowrap">{call.caller}</td>
            <td class="cut"><code>{brief(call.arguments)}</code></td>
            <td class="cut">{progress.value.has(call.invocation_id) ? <code>{brief(progress.value.get(call.invocation_id))}</code> : <span class="dim">–</span>}</td>
            <td class="num nowrap">{span(now - Date.parse(call.started_at))}</td>
            <td class="end"><Action run={() => request("DELETE", `/invocations/${call.invocation_id}`).then(() => touch("calls"))} done={`${call.tool} was cancelled`}>Cancel<span class="hidden"> {call.tool}</span></Action></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export function Now() {
  const now = useNow();
  const recent = useData<{ invocations: Call[] }>(withQuery("/invocations", { since: "1m", limit: WINDOW }), ["calls"], 5000);
  const running = useData<{ invocations: Call[] }>("/invocations?state=running,reserved&limit=200", ["calls"], 5000);
  const admin = session.value!.admin;
  const queue = useQueue(admin);
  const sources = useData<{ sources: Source[] }>(admin ? "/sources" : null, ["sources"], 10000);
  const replicas = useData<{ replicas: Replica[] }>(admin ? "/replicas" : null, [], 10000);
  const ready = useData<Ready>(admin ? "/readyz?verbose" : "/readyz", ["calls"], 10000);
  const usage = useData<Totals>("/usage", ["calls"], 15000);
  const calls = recent.data?.invocations;
  const at = useMemo(() => (calls ? figures(calls, Date.now()) : null), [calls]);
  const inFlight = running.data?.invocations ?? [];
  const totals = usage.data?.tools.reduce((sum, row) => ({ calls: sum.calls + row.calls, hits: sum.hits + row.cache_hits }), { calls: 0, hits: 0 });
  const breakers = ready.data?.breakers?.filter((breaker) => breaker.state !== "closed") ?? [];
  return (
    <div class="view">
      <h1>Now</h1>
      {recent.error && <Failure error={recent.error} retry={recent.reload} />}
      <div class="tiles">
        <Tile name="Calls a second" value={at ? (at.total / at.seconds).toFixed(at.total / at.seconds < 10 ? 2 : 0) : "–"} note={at ? `${number(at.total)} in the last minute` : ""} />
        <Tile name="Errors" value={at ? percent(at.errors, at.total) : "–"} note={at ? `${at.errors} failed, ${at.refused} refused` : ""} tone={at?.errors ? "bad" : undefined} />
        <Tile name="Duration, median" value={at ? milliseconds(at.p50) : "–"} note={at ? `99th percentile ${milliseconds(at.p99)}` : ""} />
        <Tile name="From the cache" value={at ? percent(at.hits, at.total) : "–"} note={totals ? `${percent(totals.hits, totals.calls)} of all ${number(totals.calls)}` : ""} />
        <Tile name="In flight" value={running.data ? String(inFlight.length) : "–"} note={inFlight.length ? `longest ${span(now - Math.min(...inFlight.map((call) => Date.parse(call.started_at))))}` : "idle"} />
        {queue && <Tile name="Queue" value={number(queue.reduce((sum, [, count]) => sum + count, 0))} note={queue[0] ? `${queue[0][0]} ${queue[0][1]}${queue.length > 1 ? ` and ${queue.length - 1} more` : ""}` : "no call waits for a permit"} tone={queue.length ? "warn" : undefined} />}
      </div>
      <RateChart />
      <Panel title="Running calls" flush><div class="scroll" tabIndex={0} role="group" aria-label="Running calls"><Running calls={inFlight} now={now} /></div></Panel>
      <div class="columns">
        <Failures />
        {usage.data && hasLimits(usage.data) && <Limits totals={usage.data} most={5} />}
        {admin && (
          <Panel title="Sources of tools" flush>
            {sources.data?.sources.length ? (
              <ul class="rows">
                {sources.data.sources.map((source) => (
                  <li key={source.name}>
                    <StateMark state={`source-${source.state}`} /> <strong>{source.name}</strong> <span class="dim">{source.kind}, {count(source.tools, "tool")}{source.workers ? `, ${count(source.workers, "process", "processes")}` : ""}</span>
                    {(source.fault ?? source.doing) && <div class="small">{source.fault_at && source.fault && <span class="dim">{moment(source.fault_at)}: </span>}{source.fault ?? source.doing}</div>}
                    {source.stopped.map((stopped) => <div class="small fault" key={stopped.tool}>{stopped.tool}: {stopped.why}</div>)}
                  </li>
                ))}
              </ul>
            ) : <Empty>All tools are in the manifest itself.</Empty>}
          </Panel>
        )}
        <Panel title="Service">
          <Facts rows={[
            ["State", ready.data ? <StateMark state={`service-${ready.data.status}`} /> : ready.error ? ready.error.message : null],
            ["Ledger", ready.data?.ledger],
            ["Manifest", ready.data?.manifest],
            ["Circuit breakers", !admin ? null : breakers.length ? breakers.map((breaker) => <div key={breaker.tool}><a href={link("tools", breaker.tool)}>{breaker.tool}</a> <Chip tone="bad">{words(breaker.state)}</Chip></div>) : ready.data ? "all closed" : null],
            ["Replicas", replicas.data ? replicas.data.replicas.map((replica) => <div key={replica.replica}>{replica.self ? "this one" : replica.replica.slice(-8)} <span class="dim">{replica.version}, {replica.running} running, seen {moment(replica.seen_at)}</span></div>) : null],
            ["Version", session.value!.version],
          ]} />
        </Panel>
      </div>
    </div>
  );
}

const Tile = ({ name, value, note, tone }: { name: string; value: string; note: string; tone?: string }) => (
  <div class={`tile${tone ? ` tile-${tone}` : ""}`}><div class="tile-name">{name}</div><div class="tile-value">{value}</div><div class="tile-note">{note || "\u00a0"}</div></div>
);

/** The last hour by the minute, where the service counts by time. */
function RateChart() {
  const since = useRef(new Date(Date.now() - 3600_000).toISOString());
  const loaded = useData<{ buckets?: Bucket[] }>(withQuery("/usage", { bucket: "1m", since: since.current, by: "tool" }), [], 15000);
  const drawn = useMemo(() => {
    if (!loaded.data?.buckets) return null;
    const end = Math.floor(Date.now() / 60_000), times = Array.from({ length: 60 }, (_, index) => (end - 59 + index) * 60);
    const all = new Map<number, { calls: number; failed: number }>();
    for (const bucket of loaded.data.buckets) {
      const time = Math.floor(Date.parse(bucket.start) / 60_000) * 60, sum = all.get(time) ?? { calls: 0, failed: 0 };
      all.set(time, { calls: sum.calls + bucket.calls, failed: sum.failed + bucket.failed });
    }
    return { times, calls: times.map((time) => all.get(time)?.calls ?? 0), failed: times.map((time) => all.get(time)?.failed ?? 0) };
  }, [loaded.data]);
  const lines = useMemo(() => drawn && [
    { label: "calls a minute", values: drawn.calls, tone: "accent" as const }, { label: "failed", values: drawn.failed, tone: "bad" as const },
  ], [drawn]);
  if (!drawn || !lines) return null;
  return <Panel title="Last hour"><Chart times={drawn.times} lines={lines} label={`Calls a minute in the last hour, ${drawn.calls.reduce((a, b) => a + b, 0)} in all`} /></Panel>;
}
