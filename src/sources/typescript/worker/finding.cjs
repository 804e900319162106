// Finding the tools of a module or of an object.
"use strict";
const path = require("node:path");
const { checkTool, NotOffered } = require("./tools.cjs");
const { frameworkOf, serverTools, wantsApproval } = require("./frameworks.cjs");
const { functionTools } = require("./functions.cjs");
const { formatPlace, findLine, readText } = require("./locations.cjs");
const { isRecord, messageOf } = require("./results.cjs");

const isFunction = (value) => typeof value === "function" && !/^class\b/.test(Function.prototype.toString.call(value));
const isPlainObject = (value) => isRecord(value) && [Object.prototype, null].includes(Object.getPrototypeOf(value));

/**
 * {tools, warnings, failures} of a module.
 * - values: its exports by name; instance: the object that `object` names
 * - only: the names that are wanted, or undefined for all
 */
async function findTools({ values, instance, object, file, source, project, files, only }) {
  const wanted = only && new Set(only), candidates = new Map(), functions = [], tools = [], problems = [], failures = [];
  const lineOf = (key) => findLine(file, new RegExp(`^.*\\b(?:const|let|var|function|class)\\s*\\*?\\s*${escape(key)}\\b`, "m"), new RegExp(`^\\s*(?:async\\s+)?\\*?["']?${escape(key)}["']?\\s*[:(,]`, "m"), new RegExp(`\\bas\\s+${escape(key)}\\b`));
  const problem = (key, reason, error) => {
    const place = { file, line: lineOf(key) };
    problems.push({ key, place, error, message: `${formatPlace(place)}: '${key}' cannot be offered: ${reason}` });
  };

  // A tool inside of an object of tools has the name of its key there, as in the AI SDK. So these objects come first.
  const entries = instance === undefined ? Object.entries(values) : objectEntries(instance);
  const stem = path.basename(file).split(".")[0], ownName = (value) => (/(^|_)default$/.test(value?.name) ? undefined : value?.name);
  const groups = entries.flatMap(([key, value]) => groupEntries(key, value));
  for (const [key, value, name] of [...groups, ...entries.map(([key, value]) => [key, value, key === "default" ? ownName(value) ?? object ?? stem : key])]) {
    if (value === null || (typeof value !== "object" && typeof value !== "function")) continue;
    const kind = frameworkOf(value);
    if (kind && !candidates.has(value)) candidates.set(value, { key, value, kind, name });
    else if (!kind && isFunction(value) && !candidates.has(value) && !key.includes(".")) candidates.set(value, { key, value, name });
  }
  // Some frameworks hide the function of a tool, so the file tells.
  const readsContext = () => /\b(?:configurable|requestContext|runtimeContext|RunContext|ToolRuntime)\b|\.context\b/.test(source ?? readText(file));
  const hasFrameworkTools = [...candidates.values()].some(({ kind }) => kind);
  for (const { key, value, kind, name } of candidates.values()) {
    if (!kind) {
      if (wanted ? wanted.has(key) || wanted.has(name) : !hasFrameworkTools) functions.push({ key, value, name });
      continue;
    }
    try {
      const made = kind === "mcp" ? await serverTools(value, key) : [await kind(value, name, project)];
      const needsApproval = await wantsApproval(value);
      for (const tool of made) tools.push({ ...tool, takesContext: tool.takesContext ?? readsContext(), needsApproval, key: made.length > 1 || kind === "mcp" ? tool.name : key, file, line: lineOf(made.length > 1 || kind === "mcp" ? tool.name : key) });
    } catch (error) {
      problem(key, messageOf(error), error instanceof NotOffered ? undefined : error);
    }
  }
  const described = await functionTools(functions, { file, source, files, project, object, instance });
  for (const { key, tool, reason } of described) {
    if (reason) problem(key, reason);
    else tools.push({ ...tool, key, file: tool.file ?? file, line: tool.line ?? lineOf(key) });
  }
  const usable = tools.filter((tool) => {
    try { checkTool(tool); return !wanted || wanted.has(tool.name) || wanted.has(tool.key); } catch (error) {
      const isMaker = !object && tool.framework === "function" && !tool.description.trim();
      problem(tool.key, messageOf(error) + (isMaker ? `. If it makes tools, set \`object: ${tool.key}\`` : ""));
      return false;
    }
  });
  const { unique, warnings } = removeDuplicates(usable);
  for (const tool of unique.filter(({ needsApproval }) => needsApproval)) warnings.push(`${formatPlace(tool)}: '${tool.name}' is marked as needing an approval, which its framework asks for. Here only \`approval\` in the policy of the tool does that`);
  for (const name of wanted ?? []) {
    if (usable.some((tool) => tool.name === name || tool.key === name)) continue;
    const reason = problems.find(({ key }) => key === name);
    const known = [...new Set([...tools.map((tool) => tool.name), ...entries.filter(([, value]) => typeof value === "function").map(([key]) => key)])];
    failures.push(reason ? { kind: "invalid", ...reason } : { kind: "not_found", message: `there is no tool or function '${name}' in ${file}${known.length ? `; it has ${known.slice(0, 20).join(", ")}` : "; it exports nothing that is a tool"}`, place: { file } });
  }
  if (!unique.length && !failures.length) {
    const classes = instance === undefined ? Object.keys(values).filter((key) => typeof values[key] === "function" && !isFunction(values[key])) : [];
    const hint = classes.length ? `to use the methods of a class, set \`object: ${classes[0]}\`` : Object.keys(values).length ? "export functions with a comment /** … */, or tools of a framework" : `it exports nothing${unexported(source ?? readText(file))}`;
    failures.push(problems[0] ? { kind: "not_found", ...problems[0], message: `no tool was found in ${file}; ${problems[0].message}` } : { kind: "not_found", message: `no tool was found in ${file}: ${hint}`, place: { file } });
  }
  const relevant = problems.filter(({ key }) => !wanted || wanted.has(key));
  return { tools: unique, failures, warnings: [...warnings, ...relevant.map(({ message }) => message)] };
}

/** What to export: the first tool or server that the text makes, else its first function. */
function unexported(text) {
  const found = /^(const|let|var)\s+\w+\s*(?::[^=\n]+)?=\s*(?:await\s+)?(?:new\s+)?[\w.]*(?:tool|server)\w*\s*[(<]/im.exec(text) ?? /^((?:async\s+)?function\b|const|let|var)\*?\s+\w+/m.exec(text);
  return found ? `. Write \`export\` before \`${/^(?:async\s+)?\w+\*?\s+\w+/.exec(found[0])[0]}\`` : "";
}

const escape = (text) => String(text).split(".").at(-1).replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

/** The tools of an object or a list of tools, or of an agent: [key, value, name]. */
function groupEntries(key, value) {
  if (value === null || typeof value !== "object" || frameworkOf(value)) return [];
  let group = value;
  try { if (!isPlainObject(value) && !Array.isArray(value)) group = value.tools ?? {}; } catch { return []; } // a getter that throws
  const items = Object.entries(group).filter(([, item]) => frameworkOf(item)); // a tool of a model's provider may stand beside them
  return items.map(([name, item]) => [`${key}.${name}`, item, Array.isArray(group) ? item.name ?? `${key}_${name}` : name]);
}

/** The values of an object, and its methods, those of its base classes first. */
function objectEntries(instance) {
  if (frameworkOf(instance)) return [["default", instance]];
  const names = new Map();
  for (let kind = Object.getPrototypeOf(instance); kind && kind !== Object.prototype; kind = Object.getPrototypeOf(kind)) {
    const own = Object.entries(Object.getOwnPropertyDescriptors(kind)).filter(([name, { value }]) => name !== "constructor" && typeof value === "function");
    for (const [name] of own.reverse()) if (!names.has(name)) names.set(name, instance[name].bind(instance));
  }
  return [...[...names].reverse(), ...Object.entries(instance)].filter(([name]) => !name.startsWith("_"));
}

/** The last definition of a name is used, with a warning. */
function removeDuplicates(tools) {
  const unique = new Map(), warnings = [];
  for (const tool of tools) {
    const first = unique.get(tool.name);
    if (first) warnings.push(`${formatPlace(first)}: '${tool.name}' is defined again at ${formatPlace(tool)}; the later definition is used`);
    unique.set(tool.name, tool);
  }
  return { unique: [...unique.values()], warnings };
}

module.exports = { findTools };
