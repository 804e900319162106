// The operations of the OpenAPI document, each with a form to try it.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { headers, session } from "../api";
import { bytes, milliseconds, number } from "../format";
import { useData, useSettled } from "../query";
import { filter, link, place } from "../router";
import type { Json, Obj } from "../types";
import { Icon } from "../ui/icons";
import { JsonText } from "../ui/json";
import { Chip, copy, Empty, Failure, Loading, Panel } from "../ui/parts";
import { Fields, Prose, resolve, sample, typeWords } from "../ui/schema";

interface Parameter { name: string; in: "path" | "query" | "header"; description?: string; required?: boolean; example?: Json; schema: Obj }
interface Content { schema?: Obj; example?: Json }
interface Operation {
  id: string; method: string; path: string; tag: string; summary: string; description: string; parameters: Parameter[];
  body: { kind: string; content: Content; required: boolean } | null; responses: [string, Obj][]; search: string;
}

const METHODS = ["get", "post", "put", "patch", "delete"];
/** A group with more operations than this is closed at first. */
const MANY = 40;
const SHOWN = 100_000;

function operationsOf(document: Obj): Operation[] {
  return Object.entries(document.paths as Record<string, Obj>).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method]).map((method) => {
      const raw = item[method] as Obj, content = (raw.requestBody as Obj | undefined)?.content as Record<string, Content> | undefined;
      const kind = content && (content["application/json"] ? "application/json" : Object.keys(content)[0]!);
      const summary = String(raw.summary ?? ""), text = String(raw.description ?? ""), id = String(raw.operationId ?? `${method}_${path}`);
      return {
        id, method, path, summary, tag: String((raw.tags as string[] | undefined)?.[0] ?? "other"), description: text === summary ? "" : text,
        parameters: (raw.parameters ?? []) as unknown as Parameter[],
        body: kind ? { kind, content: content![kind]!, required: Boolean((raw.requestBody as Obj).required) } : null,
        responses: Object.entries((raw.responses ?? {}) as Record<string, Obj>), search: `${method} ${path} ${id} ${summary} ${text}`.toLowerCase(),
      };
    }));
}

const startOf = (parameter: Parameter) => (parameter.example === undefined ? "" : typeof parameter.example === "string" ? parameter.example : JSON.stringify(parameter.example));
const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;
/** Which answer an operation is asked for. */
const accepted = (operation: Operation) => (operation.path === "/events" ? "text/event-stream" : operation.path === "/metrics" ? "text/plain" : operation.path === "/mcp" ? "application/json, text/event-stream" : "application/json");

interface Outcome { status: number; text: string; took: number; kind: string; open: boolean }

function Try({ operation, root }: { operation: Operation; root: Obj }) {
  const [values, setValues] = useState<Record<string, string>>(() => Object.fromEntries(operation.parameters.map((parameter) => [parameter.name, startOf(parameter)])));
  const [body, setBody] = useState(() => {
    if (!operation.body) return "";
    const { example, schema } = operation.body.content;
    return JSON.stringify(example ?? (schema ? sample(schema, root) : {}), null, 2);
  });
  const [outcome, setOutcome] = useState<Outcome | null>(null);
  const [fault, setFault] = useState<string | null>(null);
  const running = useRef<AbortController | null>(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => () => running.current?.abort(), []);
  const given = (place: string) => operation.parameters.filter((parameter) => parameter.in === place && values[parameter.name]);
  const query = new URLSearchParams(given("query").map((parameter) => [parameter.name, values[parameter.name]!])).toString();
  const path = operation.path.replace(/\{([^}]+)\}/g, (_, name: string) => encodeURIComponent(values[name] ?? "")) + (query ? `?${query}` : "");
  const extra: Record<string, string> = Object.fromEntries(given("header").map((parameter) => [parameter.name, values[parameter.name]!]));
  if (operation.body && body.trim()) extra["content-type"] = operation.body.kind;
  const curl = [
    `curl -s${operation.method === "get" ? "" : ` -X ${operation.method.toUpperCase()}`} ${quoted(location.origin + path)}`,
    ...(session.value?.needs_key ? [`-H "authorization: Bearer $TOOLCRIB_KEY"`] : []),
    ...(accepted(operation) === "application/json" ? [] : [`-H ${quoted(`accept: ${accepted(operation)}`)}`]),
    ...Object.entries(extra).map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`),
    ...(operation.body && body.trim() ? [`-d ${quoted(body)}`] : []),
  ].join(" \\\n  ");
  const run = async () => {
    const own = (running.current = new AbortController());
    const began = performance.now();
    setBusy(true);
    setFault(null);
    setOutcome(null);
    try {
      const response = await fetch(path, { method: operation.method.toUpperCase(), headers: headers({ accept: accepted(operation), ...extra }), body: operation.body && body.trim() ? body : undefined, signal: own.signal, cache: "no-store" });
      const kind = response.headers.get("content-type") ?? "", reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const part = reader ? await reader.read() : { done: true as const, value: undefined };
        text += part.value ?? "";
        if (part.done || kind.startsWith("text/event-stream")) setOutcome({ status: response.status, text, took: performance.now() - began, kind, open: !part.done });
        if (part.done) return;
      }
    } catch (error) {
      if (own.signal.aborted) setOutcome((old) => old && { ...old, open: false });
      else setFault(error instanceof TypeError ? "The service cannot be reached." : String(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <form class="try" onSubmit={(event) => { event.preventDefault(); void run(); }}>
      {operation.parameters.map((parameter) => {
        const id = `${operation.id}-${parameter.name}`, schema = resolve(parameter.schema, root), choices = schema.enum as Json[] | undefined;
        const change = (event: { currentTarget: { value: string } }) => setValues({ ...values, [parameter.name]: event.currentTarget.value });
        return (
          <div class="field" key={id}>
            <label for={id}>{parameter.name}<span class="dim"> {parameter.in}, {choices ? "a choice" : typeWords(parameter.schema, root)}{parameter.required ? "" : ", optional"}</span></label>
            {choices && !parameter.required ? (
              <select id={id} value={values[parameter.name]} onChange={change}><option value="">not given</option>{choices.map((choice) => <option key={String(choice)}>{String(choice)}</option>)}</select>
            ) : <input id={id} value={values[parameter.name]} required={parameter.required} onInput={change} spellcheck={false} />}
            {parameter.description && <div class="hint"><Prose text={parameter.description} /></div>}
          </div>
        );
      })}
      {operation.body && (
        <div class="field">
          <label for={`${operation.id}-body`}>Body<span class="dim"> {operation.body.kind}{operation.body.required ? "" : ", optional"}</span></label>
          <textarea id={`${operation.id}-body`} class="mono" rows={Math.min(16, body.split("\n").length + 1)} spellcheck={false} value={body} onInput={(event) => setBody(event.currentTarget.value)} />
        </div>
      )}
      <div class="actions">
        <button type="submit" class="primary" disabled={busy}><Icon name="play" /> Send</button>
        <button type="button" onClick={() => void copy(curl)}><Icon name="copy" /> Copy as curl</button>
        {busy && <button type="button" onClick={() => running.current?.abort()}>Stop</button>}
      </div>
      <div class="outcome" aria-live="polite">
        {fault && <div class="note note-bad">{fault}</div>}
        {outcome && <Answer outcome={outcome} />}
      </div>
    </form>
  );
}

function Answer({ outcome }: { outcome: Outcome }) {
  const value = useMemo(() => {
    if (!outcome.kind.includes("json")) return undefined;
    try {
      return JSON.parse(outcome.text) as Json;
    } catch {
      return undefined;
    }
  }, [outcome]);
  return (
    <>
      <p class="small"><Chip tone={outcome.status < 400 ? "good" : "bad"}><span class="status">{outcome.status}</span></Chip> <span class="dim">{outcome.open ? "open" : milliseconds(outcome.took)}, {bytes(outcome.text.length)}, {outcome.kind || "no content"}</span></p>
      {value !== undefined ? <JsonText value={value} label="Answer" /> : outcome.text && <div class="code"><pre class="wrap" tabIndex={0} role="group" aria-label="Answer">{outcome.text.slice(-SHOWN)}</pre></div>}
    </>
  );
}

function Detail({ operation, root }: { operation: Operation; root: Obj }) {
  const answers = operation.responses.filter(([status]) => Number(status) < 400).map(([status, answer]) => [status, resolve(answer, root)] as const);
  const problems = operation.responses.filter(([status]) => Number(status) >= 400).map(([status, answer]) => `${status} ${String(resolve(answer, root).description ?? "")}`);
  return (
    <div class="operation-body">
      {operation.description && operation.description.split("\n\n").map((text) => <p class="lead" key={text}><Prose text={text} /></p>)}
      <div class="detail">
        <div><h3>Try it</h3><Try operation={operation} root={root} /></div>
        <aside aria-label={`Schemas of ${operation.id}`}>
          {operation.body?.content.schema && <details open><summary><h3>Body</h3></summary><Fields schema={operation.body.content.schema} root={root} /></details>}
          {answers.map(([status, answer]) => {
            const content = Object.values((answer.content ?? {}) as unknown as Record<string, Content>)[0];
            return (
              <details key={status}>
                <summary><h3>Answer {status}</h3> <span class="dim small"><Prose text={String(answer.description ?? "")} /></span></summary>
                {content?.schema && <Fields schema={content.schema} root={root} />}
                {content?.example !== undefined && <JsonText value={content.example} label={`Example of ${status}`} />}
              </details>
            );
          })}
          {problems.length > 0 && (
            <details>
              <summary><h3>Problems</h3></summary>
              <p class="small"><Prose text="As `application/problem+json`: `kind` and `detail` name the fault, `retryable` whether the same request may succeed later." /></p>
              <ul class="plain small">{problems.map((text) => <li key={text}><Prose text={text} /></li>)}</ul>
            </details>
          )}
        </aside>
      </div>
    </div>
  );
}

function Row({ operation, root, open }: { operation: Operation; root: Obj; open: boolean }) {
  const [shown, setShown] = useState(open);
  const at = useRef<HTMLLIElement>(null);
  useEffect(() => {
    if (!open) return;
    setShown(true);
    at.current?.scrollIntoView({ block: "start" });
  }, [open]);
  return (
    <li ref={at} class="operation" id={`operation-${operation.id}`}>
      <button type="button" class="operation-head" aria-expanded={shown} onClick={() => setShown(!shown)}>
        <span class={`method method-${operation.method}`}>{operation.method.toUpperCase()}</span>
        <code class="path">{operation.path}</code>
        <span class="dim summary">{operation.summary}</span>
      </button>
      {shown && <Detail operation={operation} root={root} />}
    </li>
  );
}

export function ApiPage({ chosen }: { chosen: string | null }) {
  const loaded = useData<Obj>("/openapi.json", ["tools"]);
  const [text, setText] = useState(place.value.filters.q ?? "");
  const settled = useSettled(text, 120);
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set());
  const root = loaded.data;
  const operations = useMemo(() => (root ? operationsOf(root) : []), [root]);
  const groups = useMemo(() => {
    const words = settled.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = operations.filter((operation) => words.every((word) => operation.search.includes(word)));
    const named = ((root?.tags ?? []) as Obj[]).map((tag): [string, string] => [String(tag.name), String(tag.description ?? "")]);
    const others = [...new Set(fits.map((operation) => operation.tag))].filter((tag) => !named.some(([name]) => name === tag));
    return [...named, ...others.map((tag): [string, string] => [tag, ""])].map(([name, about]) => ({ name, about, all: fits.filter((operation) => operation.tag === name) })).filter((group) => group.all.length > 0);
  }, [operations, settled, root]);
  const who = session.value;
  return (
    <div class="view">
      <div class="view-head">
        <h1>API {root && <span class="dim count">{number(operations.length)} operations</span>}</h1>
        <div class="actions"><a class="button" href="/openapi.json"><Icon name="download" /> OpenAPI document</a></div>
      </div>
      {who?.needs_key && who.caller === null && <div class="note note-warn" role="status"><span>Sign in with a caller's key. Then the page also shows the tools of that caller. <a href={link("now")}>Sign in</a></span></div>}
      <form class="filters" role="search" aria-label="Search the operations" onSubmit={(event) => event.preventDefault()}>
        <label class="grow"><span>Search</span><input type="search" value={text} placeholder="path, name or words of the description" onInput={(event) => { setText(event.currentTarget.value); filter({ q: event.currentTarget.value }); }} /></label>
      </form>
      {loaded.error && <Failure error={loaded.error} retry={loaded.reload} />}
      {!root ? !loaded.error && <Loading /> : groups.length === 0 ? <Empty>No operation fits.</Empty> : groups.map((group) => {
        const closed = group.all.length > MANY && !settled && !opened.has(group.name) && !group.all.some((operation) => operation.id === chosen);
        const shown = closed ? [] : group.all.slice(0, settled && !opened.has(group.name) ? 200 : undefined);
        return (
          <Panel key={group.name} title={group.name} action={<span class="dim small">{group.about}</span>} flush>
            <ul class="operations">{shown.map((operation) => <Row key={`${operation.method} ${operation.path}`} operation={operation} root={root} open={operation.id === chosen} />)}</ul>
            {shown.length < group.all.length && <div class="list-end"><button type="button" class="quiet" onClick={() => setOpened(new Set([...opened, group.name]))}>Show all {number(group.all.length)} operations</button></div>}
          </Panel>
        );
      })}
    </div>
  );
}
