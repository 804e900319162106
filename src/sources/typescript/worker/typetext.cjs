// The parameters of functions from their source text: types of TypeScript and of JSDoc, read without a compiler. It sees the
// types that stand in the file itself, and in the files that it imports by their path.
"use strict";
const vm = require("node:vm");

const NO_VALUE = { $js: "undefined" };
const SIMPLE = {
  string: { type: "string" }, number: { type: "number" }, boolean: { type: "boolean" }, bigint: { type: "integer", $js: "bigint" }, any: {}, unknown: {}, object: { type: "object" },
  null: { type: "null" }, undefined: NO_VALUE, void: NO_VALUE, never: NO_VALUE, Date: { type: "string", format: "date-time", $js: "date" }, URL: { type: "string", format: "uri", $js: "url" },
  Uint8Array: { type: "string", contentEncoding: "base64", $js: "bytes" }, Object: { type: "object" }, Function: { $js: "function" }, String: { type: "string" }, Number: { type: "number" }, Boolean: { type: "boolean" },
};
SIMPLE.Buffer = SIMPLE.Uint8Array;
const GENERIC = {
  Array: (item = {}) => ({ type: "array", items: item }), Set: (item = {}) => ({ type: "array", items: item, uniqueItems: true, $js: "set" }),
  Record: (key = {}, value = {}) => key.enum || key.const ? closed(Object.fromEntries((key.enum ?? [key.const]).map((name) => [name, value])), key.enum ?? [key.const]) : { type: "object", additionalProperties: value },
  Map: (_, value = {}) => ({ type: "object", additionalProperties: value, $js: "map" }), Promise: (value = {}) => value, Readonly: (value = {}) => value,
  Partial: ({ required, ...rest } = {}) => rest, Required: (value = {}) => ({ ...value, required: Object.keys(value.properties ?? {}) }),
};
GENERIC.ReadonlyArray = GENERIC.Iterable = GENERIC.Array;
GENERIC.ReadonlySet = GENERIC.Set;
GENERIC.ReadonlyMap = GENERIC.Map;
const KEYWORDS = /^(minimum|maximum|exclusiveMinimum|exclusiveMaximum|multipleOf|minLength|maxLength|minItems|maxItems|pattern|format|default|examples|title|deprecated)$/;
const TAG_STARTS = /(?:^|\n)\s*@(?=\w)|\s@(?=(?:param|arg|returns?|minimum|maximum|pattern|format|default|integer)\b)/; // also within a line
const HIDDEN = [[/\bToolContext\b/, "context"], [/\bAbortSignal\b/, "signal"]];

const CONTEXT_NAME = /^(context|ctx|toolContext)$/;
const CONTEXT_FIELD = /^(invocationId|toolUseId|runId|caller|agent|attempt|state|deadline|signal|abortSignal|ask|progress|onProgress)\b/;

const closed = (properties, required) => ({ type: "object", properties, ...(required.length && { required }), additionalProperties: false });

/** The role of a parameter that no model sees, by its type and its name. */
function hiddenRole(type, name) {
  if (type === undefined && (CONTEXT_NAME.test(name) || (name.startsWith("{") && splitList(name.slice(1, -1)).every((part) => CONTEXT_FIELD.test(part.trim()))))) return "context";
  return HIDDEN.find(([pattern]) => pattern.test(type ?? ""))?.[1] ?? (name === "onProgress" ? "progress" : undefined);
}

/** The schema of a union. */
function unionOf(parts) {
  const choices = [], literals = new Set();
  for (const part of parts.flatMap((part) => (part.anyOf && Object.keys(part).length === 1 ? part.anyOf : [part]))) {
    if (part.$js === "undefined") continue;
    if ("const" in part) literals.add(part.const);
    else if (part.enum && Object.keys(part).every((word) => word === "enum" || word === "type")) part.enum.forEach((value) => literals.add(value));
    else if (!choices.some((choice) => JSON.stringify(choice) === JSON.stringify(part))) choices.push(part);
  }
  if (literals.has(true) && literals.has(false) && literals.delete(true) && literals.delete(false)) choices.unshift(SIMPLE.boolean);
  const values = [...literals], types = new Set(values.map((value) => typeof value));
  if (values.length) choices.unshift({ ...(types.size === 1 && { type: [...types][0] }), ...(values.length === 1 ? { const: values[0] } : { enum: values }) });
  if (choices.some((choice) => Object.keys(choice).length === 0)) return {};
  return choices.length < 2 ? choices[0] ?? NO_VALUE : { anyOf: choices };
}

/** The value of an expression of literals; undefined for others. A call, such as `Date.now()`, has another value each time. */
function literalValue(text) {
  const bare = text.replace(/"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`/g, (quoted) => (quoted.includes("${") ? "x()" : "0"));
  if (/[\w$)\]]\s*\(|\bnew\b|=>/.test(bare)) return undefined;
  if (/^(-?\d+(\.\d+)?|true|false|null|"[^"\\]*")$/.test(text)) return JSON.parse(text);
  try {
    return JSON.parse(JSON.stringify(vm.runInNewContext(`(${text})`, Object.create(null), { timeout: 1000 })));
  } catch {}
}

/** {text, tags: [[name, text]]} of a comment. */
function readComment(comment) {
  const lines = comment.replace(/^\/\*\*|\*\/$/g, "").split("\n").map((line) => line.replace(/^\s*\* ?/, "").trimEnd());
  const [text, ...tags] = lines.join("\n").split(TAG_STARTS);
  return { text: text.trim(), tags: tags.map((tag) => [/^\w+/.exec(tag)[0], tag.replace(/^\w+\s*/, "").trim()]) };
}

/** The schema with the description and the keywords of a comment, e.g. `@minimum 1`. */
function withDocs(schema, description, tags = []) {
  const words = { ...(description && { description }) };
  for (const [name, text] of tags) {
    if (name === "integer" || (name === "asType" && text === "integer")) words.type = "integer";
    else if (KEYWORDS.test(name)) words[name] = literalValue(text) ?? (name === "deprecated" ? true : text);
  }
  return schema.$ref && Object.keys(words).length ? { allOf: [schema], ...words } : { ...schema, ...words };
}

const NAMED_IMPORT = /\b(?:import|export)\s+(?:type\s+)?(?:[\w$]+\s*,\s*)?(?:\{([^}]*)\}|\*)\s*from\s*["'](\.[^"'\n]*)["']/g;

/** [name, source] of each place where a name may stand: the source itself, and what it imports or exports again. */
function* placesOf(name, source, seen = new Set()) {
  const place = `${source.file} ${name}`;
  if (seen.has(place)) return;
  seen.add(place);
  yield [name, source];
  for (const [, names, target] of source.text.matchAll(NAMED_IMPORT)) {
    const own = names === undefined ? name : names.split(",").map((item) => item.trim().replace(/^type\s+/, "").split(/\s+as\s+/)).find((words) => words.at(-1) === name)?.[0];
    const other = own && source.from?.(target);
    if (other) yield* placesOf(own, other, seen);
  }
}

/** Reads types. `source`: {file, text, from}, for the types that it names. */
class TypeReader {
  constructor(text, source, open = []) {
    this.tokens = text.match(/\/\*\*[\s\S]*?\*\/|\/\/[^\n]*|\/\*[\s\S]*?\*\/|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`|-?\d[\d_.]*n?|[\w$]+(?:\.[\w$]+)*|=>|\.\.\.|\S/g)?.filter((token) => !/^\/(\/|\*[^*])/.test(token)) ?? [];
    Object.assign(this, { at: 0, source, open });
  }

  take(token) { return this.tokens[this.at] === token && ++this.at > 0; }

  comment() {
    let found;
    while (this.tokens[this.at]?.startsWith("/**")) found = this.tokens[this.at++];
    return found;
  }

  type() {
    this.take("|");
    const parts = [this.intersection()];
    while (this.take("|")) parts.push(this.intersection());
    return parts.length === 1 ? parts[0] : unionOf(parts);
  }

  intersection() {
    const parts = [this.postfix()];
    while (this.take("&")) parts.push(this.postfix());
    return parts.reduce(merged);
  }

  postfix() {
    this.comment();
    if (this.take("?")) return unionOf([this.postfix(), SIMPLE.null]); // of JSDoc: {?string}
    this.take("!");
    if (this.tokens[this.at] === "readonly" || this.tokens[this.at] === "keyof") this.at++;
    let found = this.primary();
    for (; this.tokens[this.at] === "[" && this.tokens[this.at + 1] === "]"; this.at += 2) found = GENERIC.Array(found);
    return found;
  }

  primary() {
    const token = this.tokens[this.at++];
    if (token === undefined || token === "*") return {};
    if (token === "{") return this.object("}");
    if (token === "[") return this.tuple();
    if (token === "(") return this.parenthesis();
    if (/^["'`]/.test(token)) return token[0] === "`" && token.includes("${") ? SIMPLE.string : { type: "string", const: literalValue(token) };
    if (/^-?\d/.test(token)) return { type: "number", const: literalValue(token.replaceAll("_", "")) };
    if (token === "true" || token === "false") return { type: "boolean", const: token === "true" };
    const parameters = [];
    if (this.take("<") || (this.tokens[this.at] === "." && this.tokens[this.at + 1] === "<" && (this.at += 2))) {
      do parameters.push(this.type());
      while (this.take(","));
      this.take(">");
    }
    if (Object.hasOwn(GENERIC, token)) return GENERIC[token](...parameters);
    if (token === "Pick" || token === "Omit") return pick(parameters[0] ?? {}, parameters[1] ?? {}, token === "Pick");
    return Object.hasOwn(SIMPLE, token) ? SIMPLE[token] : this.named(token);
  }

  /** The place after the bracket that ends a parenthesis. */
  afterParenthesis() {
    let depth = 1, end = this.at;
    for (; end < this.tokens.length && depth; end++) depth += { "(": 1, ")": -1 }[this.tokens[end]] ?? 0;
    return end;
  }

  parenthesis() {
    const end = this.afterParenthesis();
    if (this.tokens[end] !== "=>") return [this.type(), this.take(")")][0];
    this.at = end + 1;
    return [SIMPLE.Function, this.type()][0];
  }

  tuple() {
    const items = [];
    let rest, least = 0;
    while (this.at < this.tokens.length && !this.take("]")) {
      const spread = this.take("...");
      if (/^[\w$]+$/.test(this.tokens[this.at]) && /^[:?]$/.test(this.tokens[this.at + 1]) && this.tokens[this.at + 2] !== ",") this.at += this.tokens[this.at + 1] === "?" ? 1 : 2;
      const optional = [this.take("?"), this.take(":")][0], item = this.type();
      if (spread) rest = item.items ?? {};
      else if (items.push(item) && !this.take("?") && !optional) least++;
      this.take(",");
    }
    return { type: "array", prefixItems: items, items: rest ?? false, minItems: least, ...(rest === undefined && { maxItems: items.length }) };
  }

  object(end) {
    const properties = {}, required = [];
    let more = false;
    while (this.at < this.tokens.length && !this.take(end)) {
      const { text, tags } = readComment(this.comment() ?? "");
      if (this.tokens[this.at] === "readonly" && !/^[:?(]$/.test(this.tokens[this.at + 1])) this.at++;
      if (this.take("[")) { // an index signature
        while (this.at < this.tokens.length && !this.take("]")) this.at++;
        more = [this.take(":"), this.type()][1];
      } else {
        const word = this.tokens[this.at++], name = /^["']/.test(word) ? literalValue(word) : word, isOptional = this.take("?"), start = this.at;
        const isMethod = this.take("("), type = isMethod ? [SIMPLE.Function, (this.at = this.afterParenthesis()), this.take(":") && this.type()][0] : this.take(":") ? this.type() : {};
        if (type.$js !== "function") properties[name] = withDocs(type, text, tags);
        if (type.$js !== "function" && !isOptional && !this.tokens.slice(start, this.at).includes("undefined")) required.push(name);
      }
      this.take(";") || this.take(",");
    }
    return { ...closed(properties, required), ...(more !== false && { additionalProperties: more }) };
  }

  /** A type of the file, or one that it imports. An unknown one permits every value. */
  named(name) {
    if (/^[\w$.]+$/.test(name)) for (const place of placesOf(name, this.source)) { const found = this.declared(...place); if (found) return found; }
    return {};
  }

  declared(name, source) {
    const { file, text } = source;
    if (this.open.includes(`${file} ${name}`)) return {};
    const word = name.replaceAll("$", "\\$"), read = (part) => new TypeReader(part, source, [...this.open, `${file} ${name}`]);
    const find = (pattern) => new RegExp(pattern).exec(text), after = (found) => read(text.slice(found.index + found[0].length));
    let found = find(`\\binterface\\s+${word}\\b(?:\\s*<[^>{]*>)?(?:\\s+extends\\s+([^{]+))?\\s*\\{`);
    if (found) return [...(found[1]?.split(",") ?? []).map((base) => read(base).type()), after(found).object("}")].reduce(merged);
    found = find(`\\btype\\s+${word}\\b(?:\\s*<[^=]*>)?\\s*=`);
    if (found) return after(found).type();
    found = find(`\\benum\\s+${word}\\s*\\{([^}]*)\\}`);
    if (found) return unionOf(enumValues(found[1]).map((value) => ({ const: value })));
    for (const [comment] of text.matchAll(/\/\*\*(?:(?!\*\/)[\s\S])*?\*\//g)) {
      const { tags } = readComment(comment), typedef = tags.map(([tag, text]) => tag === "typedef" && braced(text)).find((one) => one && one.rest.split(/\s/)[0] === name);
      const fields = tags.filter(([tag]) => /^prop(erty)?$/.test(tag)).map(([, text]) => readParam(text));
      if (typedef) return fields.length ? closed(Object.fromEntries(fields.map((field) => [field.name, withDocs(read(field.type ?? "*").type(), field.text)])), fields.filter(({ optional }) => !optional).map((field) => field.name)) : read(typedef.type).type();
    }
  }
}

/** The schema of two object types together. */
function merged(one, two) {
  if (/^(string|number|integer)$/.test(one.type)) return one; // string & {}, and types with a brand
  if (!one.properties || !two.properties) return { allOf: [one, two] };
  return closed({ ...one.properties, ...two.properties }, [...new Set([...(one.required ?? []), ...(two.required ?? [])])]);
}

function pick(schema, keys, keeps) {
  const names = new Set(keys.enum ?? [keys.const]);
  const chosen = Object.entries(schema.properties ?? {}).filter(([name]) => names.has(name) === keeps);
  return closed(Object.fromEntries(chosen), chosen.map(([name]) => name).filter((name) => schema.required?.includes(name)));
}

/** The value of a default: a literal, a member of an enum, or a constant. */
function defaultValue(text, source) {
  const value = literalValue(text), [, owner, member] = /^([\w$]+)(?:\.([\w$]+))?$/.exec(text) ?? [];
  if (value !== undefined || !owner) return value;
  for (const [name, { text: inside }] of placesOf(owner, source)) {
    const constant = !member && new RegExp(`\\bconst\\s+${name}\\b[^=\\n]*=\\s*([^;\\n]+)`).exec(inside)?.[1];
    if (constant) return literalValue(constant);
    const body = member && new RegExp(`\\benum\\s+${name}\\s*\\{([^}]*)\\}`).exec(inside)?.[1].replace(/\/\*[\s\S]*?\*\/|\/\/[^\n]*/g, "");
    if (body) return enumValues(body)[splitList(body).findIndex((item) => item.split("=")[0].trim() === member)];
  }
}

function enumValues(body) {
  let last = -1;
  return splitList(body.replace(/\/\*[\s\S]*?\*\/|\/\/[^\n]*/g, "")).filter((item) => item.trim()).map((item) => (last = literalValue(item.split("=")[1] ?? String(last + 1))));
}

/** {type, rest} of a text that begins with a type in braces. */
function braced(text) {
  const end = text.startsWith("{") && [...scan(text)].find(([token, depth]) => token === "}" && depth === 0)?.[2];
  return end ? { type: text.slice(1, end), rest: text.slice(end + 1).trim() } : undefined;
}

/** {name, type, text, optional, fallback} of the text of `@param`. */
function readParam(text) {
  const { type, rest } = braced(text) ?? { rest: text };
  const [, bracket, plain, more] = /^(?:\[((?:[^[\]"']|\[[^\]]*\]|"[^"]*"|'[^']*')*)\]|([\w$.]+))?\s*(?:-\s*)?([\s\S]*)$/.exec(rest);
  const [name, ...fallback] = (bracket ?? plain ?? "").split("=");
  return { name: name.trim(), type: type?.replace(/=$/, ""), text: more.trim(), optional: bracket !== undefined || type?.endsWith("=") === true, fallback: fallback.join("=").trim() || undefined };
}

/** The tokens of a text, with their depth in brackets and their index. Strings and comments are one token. */
function* scan(text) {
  let depth = 0;
  for (const { 0: token, index } of text.matchAll(/"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`|\/\*[\s\S]*?\*\/|\/\/[^\n]*|=>|[\s\S]/g)) {
    yield [token, /^[([{<]$/.test(token) ? depth++ : /^[)\]}>]$/.test(token) ? --depth : depth, index];
  }
}

/** The parts of a list of parameters or values, which ends before a bracket that it does not open. */
function splitList(text) {
  const parts = [""];
  for (const [token, depth] of scan(text)) {
    if (depth < 0) break;
    if (token === "," && depth === 0) parts.push("");
    else if (!token.startsWith("//") && !/^\/\*[^*]/.test(token)) parts[parts.length - 1] += token;
  }
  return parts;
}

/** The text after the bracket that ends such a list. */
function afterList(text) {
  for (const [, depth, at] of scan(text)) if (depth < 0) return text.slice(at + 1);
  return "";
}

/** {name, optional, isRest, type, fallback} of one parameter. */
function readParameter(text) {
  const plain = text.trim().replace(/^(?:\/\*[\s\S]*?\*\/\s*)+/, "").replace(/^(?:@[\w.]+(?:\([^)]*\))?\s+)*(?:(?:public|private|protected|readonly)\s+)*/, "");
  const tokens = [...scan(plain)], find = (sign) => tokens.find(([token, depth]) => token === sign && depth === 0)?.[2];
  const equals = find("="), end = equals ?? plain.length, colon = find(":") < end ? find(":") : undefined, name = plain.slice(0, colon ?? end).trim();
  return {
    name: name.replace(/\?$/, "").replace(/^\.\.\./, ""), optional: name.endsWith("?") || equals !== undefined, isRest: name.startsWith("..."),
    type: colon && plain.slice(colon + 1, end).trim(), fallback: equals && plain.slice(equals + 1).trim(),
  };
}

/** The text with blanks in place of comments, strings and patterns, which may have the text of another function. */
const withoutComments = (text) => text.replace(/"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`|\/\*[\s\S]*?\*\/|\/\/[^\n]*|(?<=[=(,:[!&|?]\s*)\/(?:[^/\\\n[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\//g, (found) => found.replace(/[^\n]/g, " "));

/**
 * Where a function stands in a text: {comment, list, returns: the text that begins with its type, line}. `name`: undefined for
 * a text that is only the function. `code`: the text without comments.
 */
function findFunction(text, name, code = text) {
  const word = name?.replaceAll("$", "\\$"), generic = "(?:<[^()]*>)?\\s*\\(", value = `(?:async\\s*)?(?:function\\s*\\*?\\s*[\\w$]*\\s*)?(?:${generic}|(?=[\\w$]+\\s*=>))`;
  const patterns = name === undefined ? [/\(|^\s*(?:async\s+)?(?=[\w$]+\s*=>)/] : name === "default" ? [/(?<=export\s+default\s+(?:async\s+)?)(?:function\s*\*?\s*)?\(/] : [
    new RegExp(`(?<=[^.\\w$])function\\s*\\*?\\s*${word}\\s*${generic}`),
    new RegExp(`(?:(?:const|let|var)\\s+|(?:module\\.)?exports\\.)${word}\\s*(?::[^=]+)?=\\s*${value}`),
    new RegExp(`(?<=(?:^|[;{}\\n]|\\*/)[ \\t]*(?:(?:public|static|override|async|export|default|function)\\s+)*\\*?\\s*)${word}\\s*${generic}`),
    new RegExp(`(?<=(?:[{,;\\n]|\\*/)[ \\t]*)["']?${word}["']?\\s*[:=]\\s*${value}`), // a member of an object or a class
  ];
  const search = (where) => { for (const pattern of patterns) { const found = pattern.exec(where); if (found) return found; } };
  const found = search(code) ?? search(text);
  if (!found) return undefined;
  const start = found.index + found[0].length, parts = found[0].endsWith("(") ? splitList(text.slice(start)) : [/^[\w$]+/.exec(text.slice(start))[0]], before = text.slice(0, found.index);
  const comment = /\/\*\*(?:(?!\*\/)[\s\S])*\*\/\s*(?:(?:export|default|async|public|static|override|declare)\s+|\*\s*|@[\w.]+(?:\([^)]*\))?\s+)*$/.exec(before)?.[0].match(/^\/\*\*[\s\S]*?\*\//)?.[0];
  return { comment, list: parts.map(readParameter).filter(({ name }) => name && name !== "this"), returns: /^\s*:([\s\S]{1,2000})/.exec(afterList(text.slice(start)))?.[1], line: before.split("\n").length };
}

/** {description, parameters: [{name, schema, required, role?}], output, line} of a function; undefined if the source does not have it. */
function describe(source, name) {
  const { text, code } = source, found = findFunction(text, name, code);
  if (!found) return undefined;
  const { text: description, tags } = readComment(found.comment ?? "");
  const documented = tags.filter(([tag]) => /^(param|arg|argument)$/.test(tag)).map(([, rest]) => readParam(rest));
  const read = (type) => new TypeReader(type ?? "*", source).type();
  const parameters = found.list.map((parameter, at) => {
    const isPattern = parameter.name.startsWith("{");
    const docs = documented.find((one) => one.name === parameter.name) ?? (isPattern ? documented.filter((one) => !one.name.includes("."))[at] : undefined);
    const type = parameter.type ?? docs?.type, role = hiddenRole(type, parameter.name);
    if (role) return { name: parameter.name, role };
    let schema = read(type);
    const owner = docs?.name ?? parameter.name;
    const inner = documented.filter(({ name: path }) => path.includes(".") && (isPattern || path.startsWith(`${owner}.`))).map((one) => ({ ...one, name: one.name.slice(one.name.indexOf(".") + 1) }));
    const elements = isPattern ? splitList(parameter.name.slice(1, -1)).map(readParameter).map((one) => ({ ...one, key: one.name })) : [];
    if (!schema.properties && (inner.length || isPattern)) {
      const names = inner.length ? inner : elements.filter((one) => !one.isRest).map((one) => ({ name: one.key, type: "*" }));
      schema = closed(Object.fromEntries(names.map((one) => [one.name, read(one.type)])), names.filter((one) => !one.optional).map((one) => one.name));
    }
    for (const one of inner) if (schema.properties?.[one.name]) schema.properties[one.name] = withDocs(schema.properties[one.name], one.text, one.fallback ? [["default", one.fallback]] : []);
    for (const { key, fallback } of elements.filter((one) => one.fallback !== undefined && schema.properties?.[one.key])) schema = withDefault(schema, key, literalValue(fallback));
    const fallback = parameter.fallback ?? docs?.fallback, value = fallback === undefined ? undefined : defaultValue(fallback, source);
    if (type === undefined && /^(string|number|boolean)$/.test(typeof value)) schema = SIMPLE[typeof value];
    if (!isPattern) schema = withDocs(schema, docs?.text);
    if (value !== undefined && !isPattern) schema = { ...schema, default: value };
    return { name: parameter.name, schema, required: !parameter.optional && !docs?.optional, isRest: parameter.isRest };
  });
  const declared = found.returns ?? braced(tags.find(([tag]) => /^returns?$/.test(tag))?.[1] ?? "")?.type, output = declared && read(declared);
  return { description, parameters, output: output?.type === "object" && output.properties && !output.$js ? open(output) : undefined, line: found.line };
}

/** The schema of a result: an object may have more than its type says. */
const open = (schema) => JSON.parse(JSON.stringify(schema, (key, value) => (key === "additionalProperties" && value === false ? undefined : value)));

/** The object schema with a default for one of its properties, which is then not required. */
function withDefault(schema, key, value) {
  const { required, ...rest } = schema, left = required?.filter((name) => name !== key) ?? [];
  const property = value === undefined ? schema.properties[key] : { ...schema.properties[key], default: value };
  return { ...rest, properties: { ...schema.properties, [key]: property }, ...(left.length && { required: left }) };
}

module.exports = { describe, findFunction, withoutComments, unionOf, withDocs, withDefault, literalValue, hiddenRole, closed, SIMPLE, GENERIC, NO_VALUE };
