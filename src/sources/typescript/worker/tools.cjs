// A tool as the worker calls it, from any framework.
"use strict";

const TOOL_NAME = /^[a-zA-Z0-9_-]{1,64}$/; // a name that every model provider accepts

/** Arguments that do not fit. `violations`: [{pointer, message}]. */
class InvalidArguments extends Error {
  constructor(violations) { super("the arguments do not fit"); this.violations = violations; }
}

/** Why a value cannot be offered as a tool. */
class NotOffered extends Error {}

/**
 * A tool:
 * - name, description, inputSchema, outputSchema, framework
 * - start(arguments, call): a value, a promise or a generator
 * - schemaOwner: "own", "derived" (this worker, from types) or "foreign" (a framework, which checks the arguments itself)
 * - takesContext: whether it gets the context of the caller; undefined if only its file tells
 * - render(value, writer, call), formatError(error): its results and exceptions, if they differ from those of functions
 * - key: its name in the module; file, line
 */
function makeTool(fields) { return { schemaOwner: "foreign", takesContext: false, resultAsAnswer: false, ...fields }; }

/** Throws NotOffered if the tool cannot be offered. */
function checkTool({ name, description, inputSchema }) {
  if (typeof name !== "string" || !TOOL_NAME.test(name)) throw new NotOffered(`its name is ${JSON.stringify(name)}; a name is 1 to 64 of a-z, A-Z, 0-9, _ and -`);
  if (typeof description !== "string" || !description.trim()) throw new NotOffered("it has no description: a model chooses tools by it. Write a comment /** … */ before the function, or set `description`");
  if (inputSchema?.type !== "object") throw new NotOffered(`the type at the root of its schema is ${JSON.stringify(inputSchema?.type)}; arguments are always an object`);
}

/** The definition, for the message `ready`. */
const toolJson = (tool) => ({
  name: tool.name, description: tool.description.trim(), input_schema: tool.inputSchema, output_schema: tool.outputSchema ?? null,
  schema_owner: tool.schemaOwner, mode: "async", takes_context: tool.takesContext, framework: tool.framework,
  result_as_answer: tool.resultAsAnswer, file: tool.file ?? null, line: tool.line ?? null,
});

module.exports = { InvalidArguments, NotOffered, makeTool, checkTool, toolJson };
