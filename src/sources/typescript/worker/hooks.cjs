// Files that Node cannot run by itself: TypeScript on older versions, enums, imports of types, and imports without their suffix.
"use strict";
const module_ = require("node:module");

const DECORATOR = /^[ \t]*@\w+/m; // Node reports other syntax that it cannot remove

/**
 * The hooks of Node's module loader. This function also runs as text on the thread of older hooks, so it uses only what it
 * gets. `config`: {sources: {url: text}, project: a file of the project, packages: a file beside the installed node_modules, or null}. Each hook is a generator that yields what it awaits.
 */
function makeHooks(config, require, decorator, onFile) {
  const fs = require("node:fs"), path = require("node:path"), { fileURLToPath, pathToFileURL } = require("node:url"), Module = require("node:module");
  const isNative = Boolean(process.features.typescript);
  const bases = [config.project, config.packages].filter(Boolean).map((file) => Module.createRequire(file));
  const optional = (name) => bases.reduce((found, base) => { try { return found ?? base(name); } catch {} }, undefined);
  const isTypeScript = (url) => /^file:.*\.[mc]?tsx?$/.test(url) && !url.includes("/node_modules/");

  function compile(text, file) {
    if (isNative && !file.endsWith("x") && !decorator.test(text)) {
      try { return Module.stripTypeScriptTypes(text, { sourceUrl: file }); } catch (error) { if (error.code !== "ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX") throw error; }
    }
    const loader = file.endsWith("x") ? "tsx" : "ts", esbuild = optional("esbuild");
    if (esbuild?.transformSync) return esbuild.transformSync(text, { loader, format: "esm", target: "es2022", sourcemap: "inline", sourcefile: file, tsconfigRaw: { compilerOptions: { experimentalDecorators: false } } }).code;
    const ts = optional("typescript");
    if (ts?.transpileModule) return ts.transpileModule(text, { fileName: file, compilerOptions: { module: 99, target: 9, inlineSourceMap: true, jsx: 2 } }).outputText;
    if (Module.stripTypeScriptTypes) return Module.stripTypeScriptTypes(text, { mode: "transform", sourceMap: true, sourceUrl: file });
    throw new Error(`Node ${process.versions.node} cannot run ${file}: use Node 22.18 or newer, or add \`esbuild\` or \`typescript\` (5 or 6) to the project (npm install --save-dev esbuild)`);
  }

  /** The code without imported names that it does not use: those of types. The compiler of TypeScript leaves them out, too. */
  function withoutTypeImports(code) {
    const step = /\s+|#!.*|\/\/.*|\/\*[\s\S]*?\*\/|(["'])use \w+\1;?|(import|export)\b\s*([^"'`();=]*?)(\s*(?:\bfrom\s*)?(?:"[^"\n]*"|'[^'\n]*')[^\n;]*;?)/y, head = [];
    let end = 0;
    for (let found; (found = step.exec(code)); end = step.lastIndex) head.push(found);
    const rest = [...head.filter(([, , word]) => word === "export").map(([all]) => all), code.slice(end)].join("\n").replace(/("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`)|\/\*[\s\S]*?\*\/|(?<=^|[\s;,{}()])\/\/.*/gm, "$1");
    const isUsed = (item) => { const name = /[\w$]+(?=\s*$)/.exec(item ?? "")?.[0]; return name && new RegExp(`(?<![\\w$]|[^.]\\.)${name.replaceAll("$", "\\$")}(?![\\w$])`).test(rest); };
    return head.map(([all, , word, clause, from]) => {
      const [, name, space, list] = (word === "import" && clause && /^([\w$]+)?\s*,?\s*(?:(\*\s*as\s+[\w$]+)|\{([^}]*)\})?\s*$/.exec(clause)) || [all];
      const names = list?.split(",").filter(isUsed), kept = [isUsed(name) && name, isUsed(space) && space, names?.length && `{${names.join(",")}}`].filter(Boolean);
      if (!(name ?? space ?? list)) return all;
      const left = kept.length ? `import ${kept.join(", ")}${from}` : "";
      return left + "\n".repeat(all.split("\n").length - left.split("\n").length); // each line keeps its number
    }).join("") + code.slice(end);
  }

  /** The code of a module with the words of CommonJS that it uses: a compiled project may write imports and be CommonJS. */
  function withRequire(code, file) {
    const made = { require: "toolcrib$(import.meta.url)", module: "{}", __filename: JSON.stringify(file), __dirname: JSON.stringify(path.dirname(file)) };
    const names = Object.keys(made).filter((name) => new RegExp(`(?<![\\w$.])${name}(?![\\w$:])`).test(code) && !new RegExp(`\\b(?:const|let|var|function|class|import)\\s+(?:[\\w$\\s,{]*[\\s,{])?${name}\\b|,\\s*${name}\\s*=[^=]`).test(code));
    return code.replace(/^(?:#!.*\n)?/, (start) => (names.length ? `${start}import { createRequire as toolcrib$ } from "node:module"; const ${names.map((name) => `${name} = ${made[name]}`).join(", ")}; ` : start));
  }

  function isModule(text, file) {
    if (/\.m[jt]s$/.test(file)) return true;
    if (/\.c[jt]s$/.test(file)) return false;
    return /^\s*(?:import|export)\b/m.test(text) || !/\b(?:require\s*\(|module\.exports|exports\.)/.test(text);
  }

  /** The files that `paths` and `baseUrl` of the nearest tsconfig.json give for a specifier. */
  function mapPath(specifier, folder) {
    const file = path.join(folder, "tsconfig.json"), above = path.dirname(folder);
    if (!fs.existsSync(file)) return above === folder ? [] : mapPath(specifier, above);
    const { folder: base, paths = {} } = readPaths(file);
    return Object.entries(paths).sort(([a], [b]) => b.length - a.length).flatMap(([pattern, targets]) => {
      const [start, end] = pattern.split("*"), isFitting = end === undefined ? specifier === pattern : specifier.startsWith(start) && specifier.endsWith(end);
      return isFitting ? targets.map((target) => path.resolve(base, target.replace("*", () => specifier.slice(start.length, specifier.length - (end ?? "").length)))) : [];
    });
  }

  /** {folder, paths} of a tsconfig.json, or of one that it extends. */
  function readPaths(file) {
    const noise = /("(?:[^"\\]|\\.)*")|\/\/.*|\/\*[\s\S]*?\*\/|,(?=\s*[}\]])/g; // comments, and commas at the end
    try {
      const { compilerOptions: { baseUrl, paths } = {}, extends: parents = [] } = JSON.parse(fs.readFileSync(file, "utf8").replace(noise, "$1").replace(noise, "$1"));
      if (baseUrl !== undefined || paths) return { folder: path.resolve(path.dirname(file), baseUrl ?? "."), paths: { ...paths, ...(baseUrl !== undefined && { "*": ["*"] }) } };
      return [parents].flat().map((parent) => readPaths(/^[./]/.test(parent) ? path.resolve(path.dirname(file), parent.replace(/(\.json)?$/, ".json")) : Module.createRequire(file).resolve(parent))).find(({ paths: inherited }) => inherited) ?? {};
    } catch { return {}; }
  }

  function* resolve(specifier, context, next) {
    try {
      const found = yield next(specifier, context);
      return /^file:.*\.json$/.test(found.url) && context.importAttributes ? { ...found, importAttributes: { type: "json" } } : found;
    } catch (error) {
      // Files import the types of this package. It need not be installed.
      if (specifier === "toolcrib") return { url: "data:text/javascript,export%20{}", format: "module", shortCircuit: true };
      if (config.packages && !/^(\.|\/|[a-z]+:)/.test(specifier) && !context.parentURL?.includes("/node_modules/")) {
        try {
          return yield next(specifier, { ...context, parentURL: pathToFileURL(config.packages).href });
        } catch {} // the first error names the importing file
      }
      if (context.parentURL?.includes("/node_modules/")) throw error;
      for (const target of context.parentURL?.startsWith("file:") && !/^(\.|\/|[a-z]+:)/.test(specifier) ? mapPath(specifier, path.dirname(fileURLToPath(context.parentURL))) : []) {
        try { return yield* resolve(pathToFileURL(target).href, context, next); } catch {}
      }
      if (!/^(\.|\/|file:)/.test(specifier)) throw error;
      const base = specifier.replace(/\?.*$/, ""), bare = base.replace(/\.([mc]?)jsx?$/, ".$1ts");
      for (const candidate of [bare, `${bare}x`, `${base}.ts`, `${base}.tsx`, `${base}.mts`, `${base}.js`, `${base}.mjs`, `${base}/index.ts`, `${base}/index.js`]) {
        if (candidate !== base && fs.existsSync(new URL(candidate, context.parentURL))) return yield next(candidate, context);
      }
      throw error;
    }
  }

  function* load(url, context, next) {
    const bare = url.replace(/[?#].*$/, "");
    onFile?.(bare);
    const pinned = config.sources[bare];
    if (pinned === undefined && !isTypeScript(bare)) return yield next(url, context);
    const file = fileURLToPath(bare), text = pinned ?? fs.readFileSync(file, "utf8"), suffix = isModule(text, file) ? "module" : "commonjs";
    if (!isTypeScript(bare)) return { format: suffix, source: text, shortCircuit: true };
    const code = withoutTypeImports(compile(text, file));
    return { format: suffix, source: suffix === "module" ? withRequire(code, file) : code, shortCircuit: true };
  }

  return { resolve, load };
}

/** Installs the hooks. Bun and Deno need none. Returns a function that reports the files so far. */
function installHooks(config, onFile) {
  if (process.versions.bun || process.versions.deno) return () => {};
  if (!process.features.typescript) process.setSourceMapsEnabled(true);
  if (module_.registerHooks) {
    const hooks = makeHooks(config, require, DECORATOR, onFile);
    const run = (hook) => (...values) => {
      const steps = hook(...values);
      for (let step = steps.next(); ; ) { if (step.done) return step.value; step = steps.next(step.value); }
    };

    module_.registerHooks({ resolve: run(hooks.resolve), load: run(hooks.load) });
    return () => {};
  }
  const text = `import { createRequire } from "node:module";
    const hooks = (${makeHooks})(${JSON.stringify(config)}, createRequire("file:///toolcrib/"), ${DECORATOR}, (file) => port.postMessage(file));
    let port;
    export const initialize = (data) => { port = data.port; };
    const run = (hook) => async (...values) => {
      const steps = hook(...values);
      let step = steps.next();
      while (!step.done) { try { step = steps.next(await step.value); } catch (error) { step = steps.throw(error); } }
      return step.value;
    };
    export const resolve = run(hooks.resolve), load = run(hooks.load);`;
  const { MessageChannel, receiveMessageOnPort } = require("node:worker_threads");
  const { port1, port2 } = new MessageChannel();
  port1.unref();
  module_.register(`data:text/javascript,${encodeURIComponent(text)}`, { data: { port: port2 }, transferList: [port2] });
  return () => { for (let read; (read = receiveMessageOnPort(port1)); ) onFile(read.message); };
}

module.exports = { installHooks, DECORATOR };
