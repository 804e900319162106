// A form made from a JSON Schema. The service validates; the form only helps to write the arguments. What it has no field for, such as
// `oneOf` and deep objects, is written as JSON. Form libraries compile schemas with `new Function`, which the page's policy refuses.

import { useId, useState } from "preact/hooks";
import type { Json, Obj } from "../types";
import { Icon } from "./icons";
import { IconButton } from "./parts";

type Schema = Obj;
const DEEPEST = 4;

function typeOf(schema: Schema): string {
  if (Array.isArray(schema.enum)) return "enum";
  const choices = (schema.anyOf ?? schema.oneOf) as Schema[] | undefined;
  if (choices) {
    const real = choices.filter((choice) => choice.type !== "null");
    return real.length === 1 ? typeOf(real[0]!) : "json";
  }
  if (Array.isArray(schema.type)) {
    const real = schema.type.filter((name) => name !== "null");
    return real.length === 1 ? String(real[0]) : "json";
  }
  return typeof schema.type === "string" ? schema.type : schema.properties ? "object" : "json";
}

/** The one schema beside `null`. */
function inner(schema: Schema): Schema {
  const choices = (schema.anyOf ?? schema.oneOf) as Schema[] | undefined;
  const real = choices?.filter((choice) => choice.type !== "null");
  return real?.length === 1 ? { ...schema, ...real[0] } : schema;
}

function follow(schema: Schema, root: Schema): Schema {
  let at: Json | undefined = schema;
  for (let turn = 0; turn < 8 && at && typeof (at as Obj).$ref === "string"; turn++) {
    const steps: string[] = ((at as Obj).$ref as string).replace(/^#\/?/, "").split("/").filter(Boolean);
    at = steps.reduce((value: Json | undefined, step) => (value as Obj | undefined)?.[step.replaceAll("~1", "/").replaceAll("~0", "~")], root);
  }
  return (at as Schema | undefined) ?? {};
}

function first(schema: Schema): Json | undefined {
  if (schema.default !== undefined) return schema.default;
  const example = (schema.examples as Json[] | undefined)?.[0];
  return example;
}

/** Arguments to begin with: defaults and examples. */
export function startValues(schema: Schema): Obj {
  const values: Obj = {};
  for (const [name, part] of Object.entries((schema.properties ?? {}) as Record<string, Schema>)) {
    const value = first(follow(part, schema));
    if (value !== undefined) values[name] = value;
  }
  return values;
}

interface FieldProps { name: string; schema: Schema; root: Schema; value: Json | undefined; required: boolean; change: (value: Json | undefined) => void; faults: Map<string, string>; pointer: string; depth: number }

function Field(props: FieldProps) {
  const { name, root, value, required, change, faults, pointer, depth } = props;
  const schema = inner(follow(props.schema, root));
  const id = useId();
  const kind = depth >= DEEPEST ? "json" : typeOf(schema);
  const fault = faults.get(pointer);
  const hint = typeof schema.description === "string" ? schema.description : null;
  const described = [hint && `${id}-hint`, fault && `${id}-fault`].filter(Boolean).join(" ") || undefined;
  const common = { id, "aria-describedby": described, "aria-invalid": fault ? true : undefined, required };
  const notes = (
    <>
      {hint && <div class="hint" id={`${id}-hint`}>{hint}</div>}
      {fault && <div class="fault" id={`${id}-fault`}>{fault}</div>}
    </>
  );
  if (kind === "object" && schema.properties) {
    return (
      <fieldset>
        <legend>{name}{required ? "" : <span class="dim"> optional</span>}</legend>
        {notes}
        <Fields schema={schema} root={root} value={(value ?? {}) as Obj} change={change} faults={faults} pointer={pointer} depth={depth + 1} />
      </fieldset>
    );
  }
  if (kind === "array" && schema.items && typeOf(inner(follow(schema.items as Schema, root))) !== "json") {
    const list = Array.isArray(value) ? value : [];
    return (
      <fieldset>
        <legend>{name}{required ? "" : <span class="dim"> optional</span>}</legend>
        {notes}
        {list.map((entry, index) => (
          <div class="entry" key={index}>
            <Field name={`${name} ${index + 1}`} schema={schema.items as Schema} root={root} value={entry} required faults={faults} pointer={`${pointer}/${index}`} depth={depth + 1}
              change={(next) => change(list.map((old, place) => (place === index ? (next ?? "") : old)))} />
            <IconButton icon="close" label={`Remove ${name} ${index + 1}`} onClick={() => change(list.length === 1 ? undefined : list.filter((_, place) => place !== index))} />
          </div>
        ))}
        <button type="button" class="quiet" onClick={() => change([...list, ""])}><Icon name="plus" /> Add</button>
      </fieldset>
    );
  }
  return (
    <div class="field">
      <label for={id}>{name}{required ? "" : <span class="dim"> optional</span>}</label>
      {kind === "enum" ? (
        <select {...common} value={value === undefined ? "" : JSON.stringify(value)} onChange={(event) => change(event.currentTarget.value === "" ? undefined : (JSON.parse(event.currentTarget.value) as Json))}>
          {(!required || value === undefined) && <option value="">not given</option>}
          {(schema.enum as Json[]).map((choice) => <option key={JSON.stringify(choice)} value={JSON.stringify(choice)}>{String(choice)}</option>)}
        </select>
      ) : kind === "boolean" ? (
        <select {...common} value={value === undefined ? "" : String(value)} onChange={(event) => change(event.currentTarget.value === "" ? undefined : event.currentTarget.value === "true")}>
          <option value="">not given</option>
          <option value="true">true</option>
          <option value="false">false</option>
        </select>
      ) : kind === "number" || kind === "integer" ? (
        <input {...common} type="number" step={kind === "integer" ? 1 : "any"} value={value === undefined ? "" : String(value)}
          onInput={(event) => change(event.currentTarget.value === "" ? undefined : Number(event.currentTarget.value))} />
      ) : kind === "string" ? (
        String(value ?? "").length > 60 || String(value ?? "").includes("\n") ? (
          <textarea {...common} rows={4} value={String(value ?? "")} onInput={(event) => change(event.currentTarget.value || undefined)} />
        ) : (
          <input {...common} type="text" value={value === undefined || value === null ? "" : String(value)} onInput={(event) => change(event.currentTarget.value === "" ? undefined : event.currentTarget.value)} />
        )
      ) : (
        <JsonField common={common} value={value} change={change} />
      )}
      {notes}
    </div>
  );
}

function JsonField({ common, value, change }: { common: Record<string, unknown>; value: Json | undefined; change: (value: Json | undefined) => void }) {
  const [text, setText] = useState(value === undefined ? "" : JSON.stringify(value, null, 2));
  const [bad, setBad] = useState(false);
  const read = (next: string) => {
    setText(next);
    try {
      change(next.trim() === "" ? undefined : (JSON.parse(next) as Json));
      setBad(false);
    } catch {
      setBad(true);
    }
  };
  return (
    <>
      <textarea {...common} class="mono" rows={3} spellcheck={false} value={text} onInput={(event) => read(event.currentTarget.value)} />
      {bad && <div class="fault">This is not JSON yet.</div>}
    </>
  );
}

export function Fields({ schema, root, value, change, faults, pointer = "", depth = 0 }: { schema: Schema; root: Schema; value: Obj; change: (value: Obj) => void; faults: Map<string, string>; pointer?: string; depth?: number }) {
  const required = new Set((schema.required ?? []) as string[]);
  const names = Object.entries((schema.properties ?? {}) as Record<string, Schema>);
  return (
    <>
      {names.map(([name, part]) => (
        <Field key={name} name={name} schema={part} root={root} value={value[name]} required={required.has(name)} faults={faults} depth={depth}
          pointer={`${pointer}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`}
          change={(next) => {
            const { [name]: _old, ...rest } = value;
            change(next === undefined ? rest : { ...value, [name]: next });
          }} />
      ))}
      {names.length === 0 && depth === 0 && <p class="dim">This tool takes no arguments.</p>}
    </>
  );
}

/** Arguments as JSON, for what the form has no fields for. */
export function RawJson({ label, value, change }: { label: string; value: Obj; change: (value: Obj) => void }) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <JsonField common={{ id }} value={value} change={(next) => next !== undefined && typeof next === "object" && !Array.isArray(next) && change((next ?? {}) as Obj)} />
    </div>
  );
}
