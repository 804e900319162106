// Schemas of libraries: as JSON Schema, and to check arguments. The library of the project converts its own schemas.
"use strict";
const { InvalidArguments, NotOffered } = require("./tools.cjs");
const { isRecord } = require("./results.cjs");
const { pointerTo } = require("./json.cjs");

const { parse, stringify } = JSON; // a tool may replace the global one

const JSON_SCHEMA_WORDS = ["type", "properties", "$ref", "anyOf", "oneOf", "allOf", "$schema", "additionalProperties"];
const AI_SCHEMA = Symbol.for("vercel.ai.schema");

/** The Standard Schema of a value. The JSON Schema that zod writes has this field, too: that of another schema. */
const standardOf = (schema) => ((typeof schema === "object" || typeof schema === "function") && schema !== null && !("$schema" in schema) ? schema["~standard"] : undefined);
const isJsonSchema = (schema) => isRecord(schema) && !standardOf(schema) && JSON_SCHEMA_WORDS.some((word) => word in schema);

/** Whether a value is a schema that this file reads. */
const isSchema = (schema) => Boolean(standardOf(schema)) || isJsonSchema(schema) || (isRecord(schema) && AI_SCHEMA in schema);

/** {json, check(value)} of a schema. `check` gives the value as the schema makes it; it throws InvalidArguments. */
async function readSchema(schema, project) {
  if (schema === undefined || schema === null) return { json: { type: "object", properties: {} }, check: (value) => value };
  if (isRecord(schema) && AI_SCHEMA in schema) return { json: await schema.jsonSchema, check: aiCheck(schema) };
  if (standardOf(schema)) return { json: tidy(await convert(schema, project)), check: standardCheck(schema) };
  if (isJsonSchema(schema)) return { json: schema, check: (value) => value };
  throw new NotOffered("its schema is not one: use a schema of zod, valibot or arktype, or JSON Schema");
}

function aiCheck(schema) {
  return async (value) => {
    const result = await schema.validate?.(value);
    if (result === undefined || result.success) return result ? result.value : value;
    throw new InvalidArguments(violationsOf(result.error?.cause?.issues ?? result.error?.issues ?? [{ message: String(result.error?.message ?? result.error) }]));
  };
}

function standardCheck(schema) {
  return async (value) => {
    const result = await standardOf(schema).validate(value);
    if (result.issues) throw new InvalidArguments(violationsOf(result.issues));
    return result.value;
  };
}

/** The violations of the issues of a library. */
const violationsOf = (issues) => issues.map(({ path = [], message }) => ({ pointer: pointerTo(...[...path].map((step) => (isRecord(step) ? step.key : step))), message: String(message) }));

/** The version of zod in the project that made a schema: `zod` itself, or the other one that it contains. */
async function zodOf(schema, project) {
  const isFour = "_zod" in schema;
  const fits = (zod) => zod?.object && "_zod" in zod.object({}) === isFour;
  for (const name of ["zod", isFour ? "zod/v4" : "zod/v3"]) {
    const zod = await project.import(name);
    if (fits(zod)) return zod;
  }
}

async function convert(schema, project) {
  const { vendor, jsonSchema } = standardOf(schema), missing = (name) => new NotOffered(`its schema is of ${vendor}, and \`${name}\`, which writes such schemas as JSON Schema, is not in the project: npm install ${name}`);
  if (vendor === "zod") {
    const zod = await zodOf(schema, project);
    if (zod?.toJSONSchema) return zod.toJSONSchema(schema, { io: "input", target: "draft-2020-12" });
    if ("_zod" in schema && typeof schema.toJSONSchema === "function") return schema.toJSONSchema({ io: "input" });
    const { zodToJsonSchema } = (await project.import("zod-to-json-schema")) ?? {};
    if (zodToJsonSchema) return zodToJsonSchema(schema, { strictUnions: true });
    throw missing("zod-to-json-schema");
  }
  if (jsonSchema?.input) return jsonSchema.input({ target: "draft-2020-12" });
  if (vendor === "valibot") {
    const library = await project.import("@valibot/to-json-schema");
    if (!library) throw missing("@valibot/to-json-schema");
    return library.toJsonSchema(schema, { typeMode: "input" });
  }
  if (typeof schema.toJsonSchema === "function") return schema.toJsonSchema();
  throw new NotOffered(`its schema is of ${vendor}, which does not write JSON Schema: use zod, valibot or arktype`);
}

/**
 * A schema of draft 2020-12 without `$schema`, which says nothing to a model. Most frameworks write an older draft, whose only
 * difference here is in tuples. Arguments are always an object, also if the schema is only a union.
 */
function tidy({ "~standard": _, ...given }) {
  const { $schema, ...schema } = parse(stringify(given), (_, value) => {
    if (value?.type !== "array" || !Array.isArray(value.items)) return value;
    const { items: prefixItems, additionalItems: items = true, ...rest } = value;
    return { ...rest, prefixItems, items };
  });
  return { type: "object", ...schema };
}

module.exports = { readSchema, isSchema, standardOf, tidy, violationsOf };
