// One call: what was asked, what came back, and why.

import { useState } from "preact/hooks";
import { request, session, withQuery } from "../api";
import { bytes, clock, day, milliseconds, moment, words } from "../format";
import { progress, touch } from "../live";
import { useData } from "../query";
import { link } from "../router";
import type { Answer, Call, CallDetail, Problem } from "../types";
import { Icon } from "../ui/icons";
import { Content, Diff, JsonText } from "../ui/json";
import { Action, Chip, copy, Facts, Failure, Loading, Meter, Panel, Segments, StateMark } from "../ui/parts";
import { QuestionForm } from "../ui/question";
import { Waterfall } from "./runs";

const isAnswer = (result: Answer | Problem): result is Answer => "content" in result && "is_error" in result;

const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

/** A value of Python. */
function python(value: unknown): string {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([name, part]) => `${JSON.stringify(name)}: ${python(part)}`).join(", ")}}`;
  return JSON.stringify(value);
}

/** The call in other forms. The key is a variable of the shell, so that no copy holds it. */
export function recipes(call: Call & { result?: Answer | Problem | null }): Record<"curl" | "python" | "test", string> {
  const base = location.origin, args = call.arguments ?? {};
  const result = call.result;
  const expect = !result ? "is_error: false" : !isAnswer(result) ? `kind: ${result.kind}` : result.is_error ? "is_error: true"
    : result.structured_content !== null ? `is_error: false, structured_content: ${JSON.stringify(result.structured_content)}` : "is_error: false";
  return {
    curl: `curl -s ${quoted(`${base}/tools/${encodeURIComponent(call.tool)}/invoke`)} \\\n  -H "authorization: Bearer $TOOLCRIB_KEY" -H 'content-type: application/json' \\\n  -d ${quoted(JSON.stringify({ arguments: args }))}`,
    python: `import os\nfrom toolcrib import Client\n\nclient = Client(${JSON.stringify(base)}, os.environ.get("TOOLCRIB_KEY"))\nprint(client.invoke(${JSON.stringify(call.tool)}, ${python(args)}))`,
    test: `tests:\n  - tool: ${JSON.stringify(call.tool)}\n    arguments: ${JSON.stringify(args)}\n    expect: {${expect}}`,
  };
}

function Copies({ call }: { call: CallDetail }) {
  const [form, setForm] = useState<"curl" | "python" | "test">("curl");
  const text = recipes(call)[form];
  return (
    <Panel title="Use it elsewhere" action={<Segments label="Form" options={[["curl", "curl"], ["python", "Python"], ["test", "manifest test"]]} value={form} choose={setForm} />}>
      <div class="code"><pre tabIndex={0} role="group" aria-label={`The call for ${form}`}>{text}</pre></div>
      <button type="button" onClick={() => void copy(text)}><Icon name="copy" /> Copy as {form === "curl" ? "curl" : form === "python" ? "Python" : "manifest test"}</button>
    </Panel>
  );
}

function Attempts({ call }: { call: CallDetail }) {
  const total = Math.max(call.duration_ms ?? 0, call.attempt_errors.reduce((sum, attempt) => sum + attempt.duration_ms, 0), 0.001);
  return (
    <ol class="attempts">
      {call.attempt_errors.map((attempt) => (
        <li key={attempt.attempt}>
          <div><strong>Attempt {attempt.attempt}</strong> <Chip tone="bad">{words(attempt.kind)}</Chip> <span class="dim">{milliseconds(attempt.duration_ms)}</span></div>
          <svg class="bar bar-bad" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true"><rect class="bar-back" width="100" height="4" /><rect class="bar-fill" width={Math.max(0.8, (100 * attempt.duration_ms) / total)} height="4" /></svg>
          <div class="small wrap">{attempt.message}</div>
        </li>
      ))}
      {call.state === "succeeded" && <li><strong>Attempt {call.attempts}</strong> <Chip tone="good">succeeded</Chip></li>}
    </ol>
  );
}

function Outcome({ call, reload }: { call: CallDetail; reload: () => void }) {
  const { result, question } = call;
  if (!result && question) {
    const own = !session.value!.needs_key || call.caller === session.value!.caller;
    if (own) return <QuestionForm key={question.name} call={call.invocation_id} question={question} answered={reload} />;
    return <p class="wrap"><strong>{question.tool} asks {call.caller}:</strong> {question.message}</p>;
  }
  if (!result) {
    const now = progress.value.get(call.invocation_id);
    if (["running", "reserved"].includes(call.state)) return now !== undefined ? <JsonText value={now} label="Progress" /> : <p class="dim" role="status">The call runs.</p>;
    if (call.state === "waiting") return <p>The call waits for an approval. <a href={link("approvals")}>Open the inbox</a></p>;
    return <p class="dim">{call.result_digest ? `Only a digest of the result is kept (${bytes(call.result_digest.bytes)}).` : "No result is kept."}</p>;
  }
  if (isAnswer(result))
    return (
      <>
        {result.is_error && <div class="note note-bad">The tool ran, and answered with an error.</div>}
        <Content blocks={result.content} structured={result.structured_content} />
        {result.meta.warnings.map((warning) => <div class="note note-warn" key={warning}>{warning}</div>)}
        {result.meta.overflow && <p class="dim small">{result.meta.overflow.hint}</p>}
      </>
    );
  return (
    <>
      <div class="note note-bad">
        <div><strong>{result.title}</strong> <span class="dim">{words(result.kind)}, {result.source === "tool" ? "from the tool" : "from the service"}</span></div>
        <div class="wrap">{result.detail}</div>
        {result.retryable && <div class="small">A later try may succeed{result.retry_after_ms ? `, after ${milliseconds(result.retry_after_ms)}` : ""}.</div>}
      </div>
      {result.violations?.length ? <ul class="plain">{result.violations.map((fault) => <li key={fault.pointer + fault.keyword}><code>{fault.pointer || "/"}</code> {fault.message}</li>)}</ul> : null}
      {result.did_you_mean?.length ? <p>Did you mean {result.did_you_mean.map((name) => <a key={name} href={link("tools", name)}>{name} </a>)}?</p> : null}
    </>
  );
}

export function CallPage({ id }: { id: string }) {
  const loaded = useData<CallDetail>(`/invocations/${encodeURIComponent(id)}`, ["calls", "approvals"]);
  const children = useData<{ invocations: Call[] }>(withQuery("/invocations", { parent: id, limit: 200 }), ["calls"]);
  const call = loaded.data;
  if (!call) return <div class="view"><h1>Call</h1>{loaded.error ? <Failure error={loaded.error} retry={loaded.reload} /> : <Loading />}</div>;
  const answer = call.result && isAnswer(call.result) ? call.result : null;
  const runs = ["running", "reserved", "waiting"].includes(call.state);
  return (
    <div class="view">
      <div class="view-head">
        <div>
          <a class="crumb" href={link("calls")}><Icon name="back" /> Calls</a>
          <h1>{call.tool} <StateMark state={call.state} kind={call.kind} /></h1>
        </div>
        <div class="actions">
          {runs && <Action run={() => request("DELETE", `/invocations/${id}`).then(() => { touch("calls"); loaded.reload(); })} done="The call was cancelled">Cancel the call</Action>}
          <a class="button primary" href={link("tools", call.tool, { from: id })}><Icon name="play" /> Call again</a>
        </div>
      </div>
      <div class="detail">
        <div>
          <Panel title={runs ? "Progress" : "Result"}><Outcome call={call} reload={loaded.reload} /></Panel>
          <Panel title="Arguments">
            {call.arguments ? <JsonText value={call.arguments} label="Arguments" />
              : call.arguments_truncated ? <><p class="dim small">The beginning of {bytes(call.arguments_truncated.bytes)}:</p><div class="code"><pre class="wrap" tabIndex={0} role="group" aria-label="Arguments">{call.arguments_truncated.beginning}</pre></div></>
                : <p class="dim">{call.arguments_digest ? `Only a digest is kept (${bytes(call.arguments_digest.bytes)}).` : "None are kept."}</p>}
            {answer?.meta.coercions.map((change) => <p class="small dim" key={change.pointer}><code>{change.pointer}</code> was converted from {change.from} to {change.to}.</p>)}
            {call.approval?.original_arguments && <Diff before={call.approval.original_arguments} after={call.arguments} labels={["The caller's", "Approved"]} />}
          </Panel>
          {call.attempt_errors.length > 0 && <Panel title="Attempts"><Attempts call={call} /></Panel>}
          {children.data && children.data.invocations.length > 0 && <Panel title="Calls that this call made" flush><Waterfall calls={[call, ...children.data.invocations]} root={id} /></Panel>}
          <Copies call={call} />
        </div>
        <aside aria-label="About the call">
          <Panel title="About">
            <Facts rows={[
              ["Why it ended so", call.detail],
              ["Started", `${day(call.started_at)} ${clock(call.started_at, true)}`],
              ["Took", milliseconds(call.duration_ms)],
              ["Caller", call.caller],
              ["Run", call.run_id && <a href={link("runs", call.run_id)}>{call.run_id}</a>],
              ["Made by", call.parent && <a href={link("calls", call.parent)}>the call {call.parent.slice(-8)}</a>],
              ["Cache", words(call.cache)],
              ["Attempts", String(call.attempts)],
              ["Trace", call.trace_id && <code>{call.trace_id}</code>],
              ["Replica", call.replica && <code>{call.replica.slice(-8)}</code>],
              ["Tool use", call.tool_use_id && <code>{call.tool_use_id}</code>],
              ["Idempotency key", call.idempotency_key && <code>{call.idempotency_key}</code>],
              ["Equal refusals", call.count > 1 && String(call.count)],
              ["Model", answer?.meta.model && `${answer.meta.model.total_tokens} tokens in ${answer.meta.model.requests} requests`],
              ["Id", <code class="small">{call.invocation_id}</code>],
            ]} />
          </Panel>
          {answer && answer.meta.usage.length > 0 && <Panel title="Limits charged">{answer.meta.usage.map((limit, index) => <Meter key={index} limit={limit} />)}</Panel>}
          {call.approval && (
            <Panel title="Approval">
              <Facts rows={[
                ["State", <StateMark state={`approval-${call.approval.state}`} />],
                ["Decided by", call.approval.decided_by],
                ["When", call.approval.decided_at && moment(call.approval.decided_at)],
                ["Note", call.approval.note],
                ["Asked", moment(call.approval.requested_at)],
              ]} />
            </Panel>
          )}
        </aside>
      </div>
    </div>
  );
}
