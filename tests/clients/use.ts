// A program against the generated types. tsc holds it against them, the service against the truth.

import createClient from "openapi-fetch";
import type { components, paths } from "./toolcrib.js";

declare const process: { argv: string[] };

function check(holds: boolean, what: unknown): asserts holds {
  if (!holds) throw new Error(JSON.stringify(what));
}

const client = createClient<paths>({ baseUrl: process.argv[2] });

// A typed result, to the innermost field.
const { data: answer, error: failure } = await client.POST("/tools/get_weather/invoke", {
  body: { arguments: { city: "Oslo", days: 2, units: "fahrenheit", place: { lat: 59.9, lon: 10.7 } }, run_id: "typescript-1" },
});
check(answer !== undefined && !answer.is_error, failure);
const weather = answer.structured_content;
check(weather !== null, answer);
check(weather.sky === "cloudy" && weather.days[1]?.note?.toUpperCase() === "RAIN", weather);
const first = answer.content[0];
check(first?.type === "text" && first.text.includes("cloudy"), first);

// A typed problem: what the types let pass and the schema does not.
const { error: problem, response } = await client.POST("/tools/get_weather/invoke", {
  body: { arguments: { city: "Oslo", days: 9 } },
});
check(response.status === 422 && problem !== undefined, response.status);
const kind: components["schemas"]["ErrorKind"] = problem.kind;
check(kind === "invalid_arguments" && problem.violations?.[0]?.pointer === "/days", problem);

const tree: components["schemas"]["prune_Node"] = { name: "a", kids: [{ name: "b", kids: [] }] };
const { data: pruned } = await client.POST("/tools/prune/invoke", { body: { arguments: { tree } } });
check(pruned?.structured_content?.kids[0]?.name === "b", pruned);

const odd = { class: "c", $ref: "r", from: "f", type: "odd", "x-y": { properties: "p" } } as const;
const { data: echoed } = await client.POST("/tools/odd.names/invoke", { body: { arguments: odd } });
check(JSON.stringify(echoed?.structured_content).includes('"$ref":"r"'), echoed);

const { data: pair } = await client.POST("/tools/tool/invoke", { body: { arguments: { pair: [1, "a"] } } });
check(pair?.is_error === false, pair);

// The fixed routes.
const { data: listed } = await client.GET("/tools");
check(listed !== undefined && !Array.isArray(listed), listed);
check(listed.tools.some((tool) => tool.name === "get_weather" && tool.effect === "read"), listed);
const { data: byText } = await client.POST("/tools/{name}/invoke", {
  params: { path: { name: "odd_names" } },
  body: { arguments: '{"text": "words"}' },
});
// This route may also stream, or say where to look: which it does is for who asks to say, and for the types not to know.
check(typeof byText === "object" && "is_error" in byText && byText.content[0]?.type === "text", byText);
const { data: page } = await client.GET("/invocations", { params: { query: { tool: "prune", limit: 1 } } });
check(page?.invocations[0]?.state === "succeeded", page);

console.log("done");
