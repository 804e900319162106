// One tool: a form to try it, and what the operator decided for it.

import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError, get, post, readEvents, request, send, session } from "../api";
import { limitWords, milliseconds, number, percent, words } from "../format";
import { touch } from "../live";
import { useData } from "../query";
import { link, place } from "../router";
import type { Answer, CallDetail, ChangedTool, Json, Limit, Obj, Problem, Question, Source, ToolDetail, Totals } from "../types";
import { Fields, RawJson, startValues } from "../ui/form";
import { Icon } from "../ui/icons";
import { Content, Diff, JsonText } from "../ui/json";
import { Action, Chip, Facts, Failure, Loading, Meter, Panel, Segments, StateMark } from "../ui/parts";
import { QuestionForm } from "../ui/question";
import { EffectMark, switchTool } from "./tools";

type Outcome = { answer: Answer } | { problem: Problem } | { waiting: string; question?: Question } | { text: string };

function Try({ tool }: { tool: ToolDetail }) {
  const [values, setValues] = useState<Obj>(() => startValues(tool.input_schema));
  const [mode, setMode] = useState<"form" | "json">("form");
  const [outcome, setOutcome] = useState<Outcome | null>(null);
  const [news, setNews] = useState<Json[]>([]);
  const [faults, setFaults] = useState<Map<string, string>>(new Map());
  const running = useRef<AbortController | null>(null);
  const [busy, setBusy] = useState(false);
  const from = place.value.filters.from;
  useEffect(() => {
    if (from) get<CallDetail>(`/invocations/${encodeURIComponent(from)}`).then((call) => call.arguments && setValues(call.arguments), () => undefined);
  }, [from]);
  useEffect(() => () => running.current?.abort(), []);

  // What was wrong with the values before is no longer beside them.
  const change = (next: Obj) => {
    setValues(next);
    setFaults(new Map());
  };
  const show = (problem: Problem) => {
    setFaults(new Map(problem.violations?.map((fault) => [fault.pointer, fault.message])));
    setOutcome({ problem });
  };
  const check = async () => {
    const response = await send("POST", `/tools/${encodeURIComponent(tool.name)}/validate`, { arguments: values });
    const body = (await response.json()) as Problem;
    setFaults(new Map());
    if (response.ok) setOutcome({ text: "The arguments are valid. Nothing was run." });
    else show(body);
  };
  const run = async () => {
    const own = (running.current = new AbortController());
    setBusy(true);
    setOutcome(null);
    setNews([]);
    setFaults(new Map());
    try {
      const response = await send("POST", `/tools/${encodeURIComponent(tool.name)}/invoke`, { arguments: values }, { signal: own.signal, accept: "text/event-stream" });
      if (!(response.headers.get("content-type") ?? "").startsWith("text/event-stream")) {
        const body = await response.json();
        if (!response.ok) show(body as Problem);
        else if ("state" in body && body.state === "waiting") setOutcome({ waiting: body.invocation_id as string });
        else setOutcome({ answer: body as Answer });
        return;
      }
      for await (const event of readEvents(response)) {
        const data = JSON.parse(event.data);
        if (event.event === "progress") setNews((old) => [...old.slice(-49), data.data as Json]);
        else if (event.event === "waiting") setOutcome({ waiting: data.invocation_id as string, question: data.question as Question | undefined });
        else if (event.event === "result") {
          if (data.state === "waiting") setOutcome({ waiting: data.invocation_id as string });
          else if ("is_error" in data && "meta" in data) setOutcome({ answer: data as Answer });
          else show(data as Problem);
        }
      }
    } catch (error) {
      setOutcome({ text: own.signal.aborted ? "Cancelled." : (error as ApiError).message });
    } finally {
      setBusy(false);
      touch("calls", "tools");
    }
  };
  return (
    <Panel title="Try it" action={<Segments label="Input" options={[["form", "Form"], ["json", "JSON"]]} value={mode} choose={setMode} />}>
      <form class="try" noValidate onSubmit={(event) => { event.preventDefault(); void run(); }}>
        {mode === "form" ? <Fields schema={tool.input_schema} root={tool.input_schema} value={values} change={change} faults={faults} /> : <RawJson label="Arguments as JSON" value={values} change={change} />}
        {tool.effect === "write" && <p class="small dim">This tool changes something outside. A call here is a real call.</p>}
        <div class="actions">
          <button type="submit" class="primary" disabled={busy || !tool.policy.enabled}><Icon name="play" /> Run</button>
          <button type="button" onClick={() => void check()} disabled={busy}>Check only</button>
          {busy && <button type="button" onClick={() => running.current?.abort()}>Stop</button>}
        </div>
      </form>
      <div aria-live="polite">
        {busy && <p class="dim">The tool runs.</p>}
        {news.length > 0 && <div class="progress"><h3>Progress</h3><JsonText value={news[news.length - 1]} label="Progress" /><p class="dim small">{news.length} reports</p></div>}
        {outcome && "text" in outcome && <p class="note">{outcome.text}</p>}
        {/* The result may come before the response to the answer, and then stays. */}
        {outcome && "waiting" in outcome && outcome.question && <QuestionForm key={outcome.question.name} call={outcome.waiting} question={outcome.question} answered={() => setOutcome((now) => (now === outcome ? null : now))} />}
        {outcome && "waiting" in outcome && !outcome.question && <p class="note note-warn">The call waits for an approval. <a href={link("approvals")}>Open the inbox</a></p>}
        {outcome && "problem" in outcome && (
          <div class="note note-bad">
            <div><strong>{outcome.problem.title}</strong> <span class="dim">{words(outcome.problem.kind)}</span></div>
            <div class="wrap">{outcome.problem.detail}</div>
            {outcome.problem.invocation_id && <a href={link("calls", outcome.problem.invocation_id)}>Open the call</a>}
          </div>
        )}
        {outcome && "answer" in outcome && (
          <div class="outcome">
            <h3>Result</h3>
            <p class="small dim">
              <StateMark state={outcome.answer.is_error ? "failed" : "succeeded"} /> in {milliseconds(outcome.answer.meta.duration_ms)}, cache {words(outcome.answer.meta.cache)}. <a href={link("calls", outcome.answer.invocation_id)}>Open the call</a>
            </p>
            <Content blocks={outcome.answer.content} structured={outcome.answer.structured_content} />
          </div>
        )}
      </div>
    </Panel>
  );
}

/** What remains of a caller's own limit, the scarcest one. */
function Left({ limits }: { limits: Limit[] }) {
  const own = limits.filter((limit) => limit.scope !== "tool").sort((a, b) => a.remaining / a.limit - b.remaining / b.limit)[0];
  if (!own) return <>–</>;
  return own.remaining === 0 ? <Chip tone="bad">used up</Chip> : <span title={limitWords(own)}>{number(own.remaining)} of {number(own.limit)}</span>;
}

function Quarantine({ tool, why, source }: { tool: string; why: string; source: string }) {
  const changes = useData<{ tools: ChangedTool[] }>(`/sources/${encodeURIComponent(source)}/changes`, ["sources"]);
  const change = changes.data?.tools.find((entry) => entry.tool === tool);
  return (
    <>
      <div class="note note-bad">
        <strong>Quarantined: {why}</strong>
        <span>The service refuses its calls, and no model sees the new definition. To approve what the source <code>{source}</code> offers now, run <code>toolcrib pin</code>. Other changes are approved as well: look at them first with <code>toolcrib pin --dry-run</code>.</span>
      </div>
      {changes.error && <Failure error={changes.error} retry={changes.reload} />}
      {change && (
        <Panel title="What has changed">
          {change.approved ? <Diff before={change.approved} after={change.offered} labels={["approved", "offered now"]} what="definitions" />
            : <><p class="dim small">There is no approved text to compare with. The source offers this definition:</p><Diff all before={{}} after={change.offered} labels={["approved", "offered now"]} what="definitions" /></>}
        </Panel>
      )}
    </>
  );
}

export function ToolPage({ name }: { name: string }) {
  const path = `/tools/${encodeURIComponent(name)}`;
  const loaded = useData<ToolDetail>(path, ["tools", "calls"]);
  const usage = useData<Totals>("/usage", ["calls"]);
  const sources = useData<{ sources: Source[] }>(session.value!.admin ? "/sources" : null, ["sources"]);
  const stopped = sources.data?.sources.flatMap((source) => source.stopped.map((entry) => ({ ...entry, source: source.name }))).find((entry) => entry.tool === name);
  const findings = sources.data?.sources.flatMap((source) => source.findings).filter((finding) => finding.tool === name) ?? [];
  const tool = loaded.data;
  if (!tool) return <div class="view"><h1>{name}</h1>{loaded.error ? <Failure error={loaded.error} retry={loaded.reload} /> : <Loading />}</div>;
  const { policy } = tool;
  const each = policy.limits.some((limit) => limit.scope !== "tool");
  const rows = usage.data?.tools.filter((row) => row.tool === tool.name) ?? [];
  return (
    <div class="view">
      <div class="view-head">
        <div>
          <a class="crumb" href={link("tools")}><Icon name="back" /> Tools</a>
          <h1>{tool.name} <EffectMark effect={tool.effect} />{!policy.enabled ? <Chip tone="bad">disabled</Chip> : !tool.available && <Chip tone="bad">not available</Chip>}</h1>
        </div>
        <div class="actions">
          <a class="button" href={link("calls", null, { tool: tool.name })}>Its calls</a>
          {session.value!.admin && (
            <>
              {policy.cache && <Action run={() => request("DELETE", `${path}/cache`).then(() => touch("tools"))} done="Its stored results were removed">Purge cache</Action>}
              {policy.limits.length > 0 && <Action run={() => post(`${path}/usage/reset`).then(() => touch("tools"))} done="Its limits count from zero again" confirm="Count from zero again?">Reset usage</Action>}
              <Action run={() => switchTool(tool.name, !policy.enabled)} done={policy.enabled ? "The tool is disabled" : "The tool is enabled"} confirm={policy.enabled ? "Refuse all calls of this tool?" : undefined}>{policy.enabled ? "Disable" : "Enable"}</Action>
            </>
          )}
        </div>
      </div>
      {stopped && <Quarantine tool={name} why={stopped.why} source={stopped.source} />}
      {findings.length > 0 && <div class="note note-warn">{findings.map((finding) => <div key={finding.message}>{finding.message} <span class="dim">[{finding.rule}]</span></div>)}</div>}
      <p class="lead wrap">{tool.description}</p>
      <div class="detail">
        <div>
          <Try tool={tool} />
          <Panel title="Input schema"><JsonText value={tool.input_schema} label="Input schema" /></Panel>
          {tool.output_schema && <Panel title="Output schema"><JsonText value={tool.output_schema} label="Output schema" /></Panel>}
        </div>
        <aside aria-label="About the tool">
          {tool.usage.length > 0 && <Panel title="Limits">{tool.usage.map((limit, index) => <Meter key={index} limit={limit} />)}</Panel>}
          <Panel title="Usage" flush>
            {rows.length ? (
              <table class="list blocks"><thead><tr><th scope="col">Caller</th><th scope="col" class="num">Calls</th><th scope="col" class="num">Failed</th><th scope="col" class="num">Refused</th>{each && <th scope="col" class="num">Left</th>}<th scope="col" class="num">p99</th></tr></thead>
                <tbody>{rows.map((row) => <tr key={row.caller}><td class="name"><a href={link("calls", null, { tool: tool.name, caller: row.caller })}>{row.caller}</a></td><td class="num" data-label="calls">{number(row.calls)}</td><td class={`num nowrap${row.failed ? " fault" : ""}`} data-label="failed">{row.failed ? percent(row.failed, row.calls) : "0"}</td><td class="num nowrap" data-label="refused">{number(row.refused)}</td>{each && <td class="num nowrap" data-label="left"><Left limits={row.limits} /></td>}<td class="num nowrap" data-label="p99">{milliseconds(row.p99_ms)}</td></tr>)}</tbody></table>
            ) : <p class="empty">Not called yet.</p>}
          </Panel>
          <Panel title="Policy">
            <Facts rows={[
              ["Kind", tool.kind], ["Tags", tool.tags.join(", ")], ["Timeout", policy.timeout], ["Deadline", policy.deadline],
              ["Attempts", String(policy.retry.attempts)], ["Limits", policy.limits.length ? policy.limits.map((limit, index) => <div key={index}>{limitWords(limit)}</div>) : "none"],
              ["Cache", policy.cache ? `${policy.cache.ttl}, ${policy.cache.scope === "shared" ? "for all callers" : "for each caller"}` : "off"],
              ["At once", `${policy.concurrency.max}, queue ${policy.concurrency.queue}`], ["When its caller leaves", policy.on_disconnect],
              ["Circuit breaker", tool.breaker && words(tool.breaker)], ["Approval", policy.approval ? JSON.stringify(policy.approval) : null], ["Kept in the ledger", policy.capture],
              ["Sandbox", tool.sandbox && JSON.stringify(tool.sandbox)],
              ["Variables", tool.env.length > 0 && tool.env.map((variable) => <div key={variable.name}><code>{variable.name}</code> {variable.description}</div>)],
              ["Definition", <code>{tool.definition_hash.slice(0, 12)}</code>],
            ]} />
          </Panel>
        </aside>
      </div>
    </div>
  );
}
