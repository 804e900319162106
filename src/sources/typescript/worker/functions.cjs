// Plain functions and methods as tools.
"use strict";
const path = require("node:path");
const { spawnSync } = require("node:child_process");
const { describe, closed, findFunction, withoutComments } = require("./typetext.cjs");
const { InvalidArguments, makeTool } = require("./tools.cjs");
const { bytesOf } = require("./results.cjs");
const { readText } = require("./locations.cjs");
const { pointerTo, TOO_LARGE } = require("./json.cjs");

const { parse, stringify } = JSON; // a tool may replace the global one

/** The names of a function's parameters, or of those of a class's constructor, from its source. */
function parameterNames(make) {
  const text = Function.prototype.toString.call(make);
  if (!/^class\b/.test(text)) return findFunction(text)?.list.map(({ name }) => name) ?? [];
  const found = findFunction(text, "constructor"), base = Object.getPrototypeOf(make);
  return found ? found.list.map(({ name }) => name) : typeof base === "function" && base !== Function.prototype ? parameterNames(base) : [];
}

/** [{key, tool} or {key, reason}] of functions: their types come from the compiler of the project, else from their text. */
function functionTools(functions, { file, source, files, project, object }) {
  if (!functions.length) return [];
  const keys = functions.map(({ key }) => key);
  const typed = typesOf({ file, source, keys, object, typescript: findCompiler(project) });
  const sources = [sourceOf(file, source), ...[...files].filter((other) => other !== file).map((other) => sourceOf(other))];
  return functions.map(({ key, value, name }) => {
    const found = typed?.[key] ?? describeFromText(sources, key, value);
    const callback = found.parameters.find(({ schema, required }) => required && schema?.$js === "function");
    return callback ? { key, reason: `its parameter ${callback.name} is a function, and a model cannot write one` } : { key, tool: functionTool(name, value, found) };
  });
}

/** A text with types: {file, text, code: the text without comments, from(path of an import): another one}. */
function sourceOf(file, text = readText(file)) {
  const from = (target) => {
    const base = path.resolve(path.dirname(file), target.replace(/\.[mc]?js$/, ""));
    const other = [base, `${base}.ts`, `${base}.mts`, `${base}.d.ts`, path.join(base, "index.ts")].find(readText);
    return other && sourceOf(other);
  };
  return { file, text, code: withoutComments(text), from };
}

function describeFromText(sources, key, value) {
  // Under its own name, too: it may be exported under another one.
  for (const name of key === "default" ? [value.name || "default"] : [key, String(value.name).replace(/^bound /, "")]) {
    for (const source of sources) {
      const found = name && describe(source, name);
      if (found) return found;
    }
  }
  return describe({ text: Function.prototype.toString.call(value) }) ?? { description: "", parameters: [] };
}

/** The folder of `typescript` in the project, if its version has the compiler API. */
function findCompiler(project) {
  const file = project.packageFile("typescript", project.folder);
  return file && Number.parseInt(project.version("typescript")) < 7 ? path.dirname(file) : undefined;
}

/** {key: description} by the compiler, in a process of its own: it needs 100 MB, and the worker lives long. */
function typesOf(request) {
  if (!request.typescript || process.versions.bun || process.versions.deno) return undefined;
  const program = `const { files, request } = JSON.parse(require("node:fs").readFileSync(0)), loaded = {};
    const load = (name) => name in files ? (loaded[name] ??= (() => { const module = { exports: {} }; new Function("require", "module", "exports", files[name])(load, module, module.exports); return module.exports; })()) : require(name);
    require("node:fs").writeFileSync(1, JSON.stringify(load("./types.cjs").describeAll(request)));`;
  const { stdout, stderr } = spawnSync(process.execPath, ["-e", program], { input: JSON.stringify({ files, request }), encoding: "utf8", maxBuffer: 64 << 20 });
  try { return JSON.parse(stdout); } catch {
    process.stderr.write(`the compiler cannot read the types of ${request.file}, so they are read from its text: ${stderr ?? "it cannot be started"}\n`);
  }
}

/** The tool of a function. */
function functionTool(name, run, { description, parameters, output, line, file }) {
  const visible = parameters.filter(({ role }) => !role), takesContext = parameters.some(({ role }) => role === "context");
  // A single object is the object of the arguments. Otherwise each parameter is one argument.
  const first = parameters[0], reference = first?.schema?.$ref ?? first?.schema?.allOf?.[0].$ref; // of a type that contains itself
  const shape = first?.definitions?.[reference?.split("/").at(-1)] ?? first?.schema;
  const isObject = visible.length <= 1 && first && !first.role && (shape.properties !== undefined || /^[{]/.test(first.name) || (shape.type === "object" && !shape.$js));
  const usesSecond = isObject && run.length > 1 && parameters.length === 1;
  const inputSchema = isObject ? { type: "object", properties: {}, ...shape } : closed(
    Object.fromEntries(visible.filter(({ schema }) => schema.$js !== "function").map((parameter) => [parameter.name, parameter.isRest ? { ...parameter.schema, type: "array" } : parameter.schema])),
    visible.filter(({ required, isRest, schema }) => required && !isRest && schema.$js !== "function").map((parameter) => parameter.name));
  const definitions = Object.assign({}, ...visible.map(({ definitions: own }) => own));
  if (Object.keys(definitions).length) inputSchema.$defs = definitions;
  const hidden = { context: (call) => call.context, signal: (call) => call.signal, progress: (call) => call.context.progress };
  const converts = stringify(inputSchema).includes('"$js":"');
  function start(given, call) {
    if (converts || call.hasBigIntegers) {
      const violations = [];
      given = toValue(given, inputSchema, "", violations, inputSchema.$defs);
      if (violations.length) throw new InvalidArguments(violations);
    }
    if (isObject && parameters.length === 1) return run(given, call.context);
    return run(...parameters.flatMap((parameter) => (parameter.role ? [hidden[parameter.role](call)] : isObject ? [given] : parameter.isRest ? given[parameter.name] ?? [] : [given[parameter.name]])));
  }
  return makeTool({
    name, description, start, framework: "function", schemaOwner: "derived", inputSchema: withoutMarks(inputSchema), outputSchema: output && withoutMarks(output), line, file,
    takesContext: takesContext || usesSecond, takesBigIntegers: true,
  });
}

/** A schema without the marks of this worker. */
const withoutMarks = (schema) => parse(stringify(schema, (key, value) => (key === "$js" ? undefined : value)));

/** The argument as the type of the parameter has it: dates, maps, sets, bytes and big integers. */
function toValue(value, schema, pointer, violations, definitions) {
  if (typeof schema !== "object" || schema === null || value === null || value === undefined) return value;
  const wrong = (message) => (violations.push({ pointer, message }), value), into = (item, part, key) => toValue(item, part, pointer + pointerTo(key), violations, definitions);
  if (schema.$ref) return toValue(value, definitions?.[schema.$ref.split("/").at(-1)], pointer, violations, definitions);
  if (schema.allOf) return schema.allOf.reduce((now, part) => toValue(now, part, pointer, violations, definitions), value);
  if (schema.anyOf) {
    const tries = schema.anyOf.filter((part) => fits(value, part)).map((part) => {
      const found = [];
      return { found, value: toValue(value, part, pointer, found, definitions) };
    });
    const best = tries.find(({ found }) => !found.length) ?? tries[0];
    violations.push(...(best?.found ?? []));
    return best ? best.value : value;
  }
  switch (schema.$js) {
    case "date": return Number.isNaN(new Date(value).getTime()) ? wrong("must be a date such as 2026-01-31 or 2026-01-31T12:00:00Z") : new Date(value);
    case "bigint": return typeof value === "string" || Number.isInteger(value) || typeof value === "bigint" ? BigInt(value) : wrong("must be an integer");
    case "url": return URL.canParse(value) ? new URL(value) : wrong("must be a URL such as https://example.com");
    case "bytes": return /^[\w+/-]*={0,2}$/.test(value) ? Buffer.from(value, "base64") : wrong("must be bytes as a base64 text");
  }
  if (typeof value === "bigint" && schema.type) return wrong(`${TOO_LARGE}: use bigint as the type of the parameter, or a text`);
  if (Array.isArray(value)) {
    const items = value.map((item, at) => into(item, schema.prefixItems?.[at] ?? schema.items, at));
    return schema.$js === "set" ? new Set(items) : items;
  }
  if (typeof value !== "object" || bytesOf(value)) return value;
  const fields = Object.entries(value).map(([name, item]) => [name, into(item, schema.properties?.[name] ?? schema.additionalProperties, name)]);
  return schema.$js === "map" ? new Map(fields) : Object.fromEntries(fields);
}

/** Whether a value may fit a schema, by its outermost type. */
function fits(value, { type, const: one, enum: several }) {
  if (one !== undefined) return value === one;
  if (several) return several.includes(value);
  const kind = value === null ? "null" : Array.isArray(value) ? "array" : typeof value === "bigint" ? "integer" : typeof value;
  return type === undefined || type === kind || (type === "integer" && Number.isInteger(value));
}

module.exports = { functionTools, parameterNames };
