// A JSON Schema of the OpenAPI document in words: its fields, each with its type and description.

import type { ComponentChildren } from "preact";
import type { Json, Obj } from "../types";

const DEEPEST = 4;

/** The schema that a reference names. */
export function resolve(schema: Obj, root: Obj): Obj {
  let at: Json | undefined = schema;
  for (let turn = 0; turn < 8 && at && typeof (at as Obj).$ref === "string"; turn++) {
    const steps: string[] = ((at as Obj).$ref as string).replace(/^#\//, "").split("/");
    at = steps.reduce((value: Json | undefined, step) => (value as Obj | undefined)?.[decodeURIComponent(step).replaceAll("~1", "/").replaceAll("~0", "~")], root);
  }
  return (at as Obj | undefined) ?? {};
}

/** All fields of a schema, those of its `allOf` too. */
function fieldsOf(schema: Obj, root: Obj): { fields: [string, Obj][]; required: Set<string> } {
  const whole = resolve(schema, root);
  const parts = ((whole.allOf ?? []) as Obj[]).map((part) => fieldsOf(part, root));
  return {
    fields: [...parts.flatMap((part) => part.fields), ...(Object.entries(whole.properties ?? {}) as [string, Obj][])],
    required: new Set([...parts.flatMap((part) => [...part.required]), ...((whole.required ?? []) as string[])]),
  };
}

export function typeWords(schema: Obj, root: Obj, depth = 0): string {
  const whole = resolve(schema, root);
  const choices = (whole.oneOf ?? whole.anyOf) as Obj[] | undefined;
  if (Array.isArray(whole.enum)) return whole.enum.map((value) => JSON.stringify(value)).join(", ");
  if (whole.const !== undefined) return JSON.stringify(whole.const);
  if (choices && depth < 3) return [...new Set(choices.map((choice) => typeWords(choice, root, depth + 1)))].join(" or ");
  if (whole.type === "array" || (whole.items && !whole.type)) return `list of ${depth < 3 ? typeWords((whole.items ?? {}) as Obj, root, depth + 1) : "values"}`;
  const type = Array.isArray(whole.type) ? whole.type.join(" or ") : typeof whole.type === "string" ? whole.type : whole.properties || whole.allOf ? "object" : "any value";
  return whole.format && type.startsWith("string") ? `${type} (${String(whole.format)})` : type;
}

/** The schema whose fields describe a value: of a list its items, of alternatives the first with fields. */
function inside(schema: Obj, root: Obj, depth = 0): Obj {
  const whole = resolve(schema, root);
  if (depth > 3) return whole;
  if (whole.items) return inside(whole.items as Obj, root, depth + 1);
  const choices = (whole.oneOf ?? whole.anyOf) as Obj[] | undefined;
  if (choices && !whole.properties) return choices.map((choice) => inside(choice, root, depth + 1)).find((choice) => fieldsOf(choice, root).fields.length > 0) ?? whole;
  return whole;
}

/** A value to begin with. */
export function sample(schema: Obj, root: Obj, depth = 0): Json {
  const whole = resolve(schema, root);
  if (whole.example !== undefined) return whole.example;
  if (whole.default !== undefined) return whole.default;
  if (Array.isArray(whole.examples) && whole.examples.length) return whole.examples[0]!;
  if (Array.isArray(whole.enum)) return whole.enum[0]!;
  if (depth > DEEPEST) return null;
  const choices = (whole.oneOf ?? whole.anyOf) as Obj[] | undefined;
  if (choices?.length && !whole.properties) return sample(choices[0]!, root, depth + 1);
  const type = Array.isArray(whole.type) ? whole.type[0] : whole.type;
  if (type === "string") return "text";
  if (type === "integer" || type === "number") return typeof whole.minimum === "number" ? whole.minimum : 1;
  if (type === "boolean") return true;
  if (type === "array") return [];
  const { fields, required } = fieldsOf(whole, root);
  return Object.fromEntries(fields.filter(([name]) => required.has(name)).map(([name, part]) => [name, sample(part, root, depth + 1)]));
}

/** Text in which words between backticks are code. */
export function Prose({ text }: { text: string }) {
  const parts: ComponentChildren[] = text.split(/`([^`]*)`/).map((part, index) => (index % 2 ? <code key={index}>{part}</code> : part.replace(/\s*\n(?!\n)/g, " ")));
  return <>{parts}</>;
}

export function Fields({ schema, root, depth = 0 }: { schema: Obj; root: Obj; depth?: number }) {
  const { fields, required } = fieldsOf(inside(schema, root), root);
  if (fields.length === 0) return depth === 0 ? <p class="dim small">{typeWords(schema, root)}</p> : null;
  return (
    <dl class="fields">
      {fields.map(([name, part]) => {
        const whole = resolve(part, root), words = typeWords(part, root);
        const text = (part.description ?? whole.description) as string | undefined;
        return (
          <div key={name}>
            <dt><code>{name}</code> <span class="dim small">{words}{required.has(name) ? "" : ", optional"}</span></dt>
            <dd>
              {text && <div class="small"><Prose text={text} /></div>}
              {depth < DEEPEST && /object|list of object/.test(words) && fieldsOf(inside(part, root), root).fields.length > 0 && (
                <details><summary class="small">Fields</summary><Fields schema={part} root={root} depth={depth + 1} /></details>
              )}
            </dd>
          </div>
        );
      })}
    </dl>
  );
}
