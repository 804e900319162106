// JSON with colours, a difference of two values, and the content of results.

import { useEffect, useMemo, useState } from "preact/hooks";
import type { Block, Json, Obj } from "../types";
import { bytes, number, visible } from "../format";
import { Icon } from "./icons";
import { copy, IconButton } from "./parts";

const SHOWN = 20_000;
const TOKEN = /("(?:\\.|[^"\\])*")(\s*:)?|\b(true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

export function JsonText({ value, label }: { value: unknown; label: string }) {
  const text = useMemo(() => JSON.stringify(value, null, 2) ?? "null", [value]);
  const [whole, setWhole] = useState(false);
  const shown = whole ? text : text.slice(0, SHOWN);
  const parts = useMemo(() => {
    const found = [];
    let at = 0;
    for (const match of shown.matchAll(TOKEN)) {
      if (match.index > at) found.push(shown.slice(at, match.index));
      const kind = match[1] ? (match[2] ? "key" : "text") : match[3] ? "word" : "number";
      found.push(<span class={`json-${kind}`}>{match[1] ?? match[0]}</span>);
      if (match[2]) found.push(match[2]);
      at = match.index + match[0].length;
    }
    found.push(shown.slice(at));
    return found;
  }, [shown]);
  return (
    <div class="code">
      <IconButton icon="copy" label={`Copy ${label}`} onClick={() => void copy(text)} />
      <pre tabIndex={0} role="group" aria-label={label}>{parts}</pre>
      {!whole && text.length > SHOWN && <button type="button" class="quiet" onClick={() => setWhole(true)}>Show all {bytes(text.length)}</button>}
    </div>
  );
}

const isObject = (value: unknown): value is Obj => typeof value === "object" && value !== null && !Array.isArray(value);

/** Rows of objects with the same few fields are a table. */
function columnsOf(value: Json): string[] | null {
  if (!Array.isArray(value) || value.length === 0 || !value.every(isObject)) return null;
  const names = [...new Set(value.slice(0, 50).flatMap((row) => Object.keys(row)))];
  return names.length > 0 && names.length <= 14 ? names : null;
}

const ROWS = 100;

export function Value({ value, label }: { value: Json; label: string }) {
  const [raw, setRaw] = useState(false);
  const columns = columnsOf(value);
  if (!columns || raw) {
    return (
      <>
        <JsonText value={value} label={label} />
        {columns && <button type="button" class="quiet" onClick={() => setRaw(false)}>As a table</button>}
      </>
    );
  }
  const rows = value as Obj[];
  return (
    <>
      <div class="scroll" tabIndex={0} role="group" aria-label={label}>
        <table class="grid">
          <thead>
            <tr>{columns.map((name) => <th key={name} scope="col">{name}</th>)}</tr>
          </thead>
          <tbody>
            {rows.slice(0, ROWS).map((row, index) => (
              <tr key={index}>
                {columns.map((name) => {
                  const cell = row[name];
                  return <td key={name} class={typeof cell === "number" ? "num" : ""}>{cell === undefined ? "" : typeof cell === "string" ? cell : JSON.stringify(cell)}</td>;
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="dim small">
        {number(rows.length)} rows{rows.length > ROWS ? `, the first ${ROWS} shown` : ""} <button type="button" class="quiet" onClick={() => setRaw(true)}>As JSON</button>
      </p>
    </>
  );
}

function useBlob(data: string, type: string): string | null {
  const [address, setAddress] = useState<string | null>(null);
  useEffect(() => {
    let made: string;
    try {
      made = URL.createObjectURL(new Blob([Uint8Array.from(atob(data), (sign) => sign.charCodeAt(0))], { type }));
    } catch {
      return;
    }
    setAddress(made);
    return () => URL.revokeObjectURL(made);
  }, [data, type]);
  return address;
}

// A picture that may hold script, such as SVG, is harmless in <img>.
function Media({ data, type, name }: { data: string; type: string; name: string }) {
  const address = useBlob(data, type);
  if (!address) return <p class="dim">This file cannot be read.</p>;
  const size = bytes(Math.floor((data.length * 3) / 4));
  return (
    <figure class="media">
      {type.startsWith("image/") && <img src={address} alt={`Picture in the result, ${type}`} />}
      {type.startsWith("audio/") && <audio controls src={address} aria-label="Sound in the result" />}
      <figcaption>
        <span class="dim">{name}, {type}, {size}</span>
        <a class="button" href={address} download={name}><Icon name="download" /> Save</a>
      </figcaption>
    </figure>
  );
}

export function Content({ blocks, structured }: { blocks: Block[]; structured?: Json }) {
  return (
    <div class="content">
      {structured !== null && structured !== undefined && <Value value={structured} label="Structured content" />}
      {blocks.map((block, index) => {
        if (block.type === "text") {
          // A structured result repeats itself as text.
          if (structured !== null && structured !== undefined && blocks.length === 1) return null;
          return <TextBlock key={index} text={block.text} />;
        }
        if (block.type === "resource") {
          const { uri, mimeType, text, blob } = block.resource;
          const name = uri.split("/").pop() || "file";
          return blob !== undefined ? <Media key={index} data={blob} type={mimeType ?? "application/octet-stream"} name={name} /> : <TextBlock key={index} text={text ?? ""} title={uri} />;
        }
        if (block.type === "resource_link") {
          const about = [block.title ?? block.name, block.description, block.uri].filter((line) => line !== undefined);
          return <TextBlock key={index} text={about.join("\n")} title={block.uri} />;
        }
        return <Media key={index} data={block.data} type={block.mimeType} name={`${block.type}.${block.mimeType.split("/")[1] ?? "bin"}`} />;
      })}
      {blocks.length === 0 && (structured === null || structured === undefined) && <p class="dim">The result is empty.</p>}
    </div>
  );
}

function TextBlock({ text, title }: { text: string; title?: string }) {
  const [whole, setWhole] = useState(false);
  return (
    <div class="code">
      <IconButton icon="copy" label="Copy text" onClick={() => void copy(text)} />
      <pre class="wrap" tabIndex={0} role="group" aria-label={title ?? "Text"}>{whole ? text : text.slice(0, SHOWN)}</pre>
      {!whole && text.length > SHOWN && <button type="button" class="quiet" onClick={() => setWhole(true)}>Show all {bytes(text.length)}</button>}
    </div>
  );
}

interface Change { path: string; before?: Json; after?: Json; same: boolean }

/** Two values, field by field. */
function compare(before: Json | undefined, after: Json | undefined, path = ""): Change[] {
  if (isObject(before) && isObject(after))
    return [...new Set([...Object.keys(after), ...Object.keys(before)])].flatMap((name) => compare(before[name], after[name], path ? `${path}.${name}` : name));
  return [{ path: path || "(all)", before, after, same: JSON.stringify(before) === JSON.stringify(after) }];
}

/** What differs, field by field. With `all`, also what does not. */
export function Diff({ before, after, labels, all, what = "arguments" }: { before: Json; after: Json; labels: [string, string]; all?: boolean; what?: string }) {
  const found = compare(before, after).filter((change) => all || !change.same);
  if (found.length === 0) return <p class="dim">The {what} are the same as in {labels[0]}.</p>;
  const text = (value: Json | undefined) => (value === undefined ? <span class="dim">absent</span> : <code class="wrap">{visible(JSON.stringify(value))}</code>);
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label={`Difference of the ${what}`}>
      <table class="grid diff">
        <thead>
          <tr><th scope="col">Field</th><th scope="col">{labels[0]}</th><th scope="col">{labels[1]}</th></tr>
        </thead>
        <tbody>
          {found.map((change) => (
            <tr key={change.path}><th scope="row">{change.path}</th><td class={change.same ? "dim" : "removed"}>{text(change.before)}</td><td class={change.same ? "" : "added"}>{text(change.after)}</td></tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
