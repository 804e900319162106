// Loading: the module or object of the message `load`, and its tools.
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const { spawnSync } = require("node:child_process");
const { createRequire } = require("node:module");
const { pathToFileURL, fileURLToPath } = require("node:url");
const { installHooks, DECORATOR } = require("./hooks.cjs");
const { errorPlace, formatPlace, findLine } = require("./locations.cjs");
const { messageOf } = require("./results.cjs");
const { findTools } = require("./finding.cjs");
const { parameterNames } = require("./functions.cjs");

/** Why a module cannot be loaded, for the message `failed`. `cause`: the exception of the user's code, if any. */
class LoadFailure extends Error {
  constructor(kind, message, { file, line } = {}, cause = undefined) {
    super(message);
    Object.assign(this, { kind, file, line, cause });
  }
}

/** The place of a syntax error, which only the output of Node names. */
function syntaxPlace(files) {
  for (const file of files) {
    const { stderr } = spawnSync(process.execPath, ["--check", file], { encoding: "utf8", timeout: 5000 });
    const found = /^(?:file:\/\/)?(\/[^\n:]+):(\d+)\n/.exec(stderr ?? "");
    if (found) return { file: found[1], line: Number(found[2]) };
  }
  return {};
}

/** The failure for an exception of the user's code. `action`: what failed; `files`: the files that were loaded. */
function loadFailure(error, action, files = []) {
  if (error instanceof LoadFailure) return error;
  const message = messageOf(error), name = error instanceof Error ? error.name : "Error";
  let place = errorPlace(error), kind = name === "SyntaxError" ? "syntax" : "exception", reason = message.split("\n")[0], hint = "";
  const missing = /^Cannot find (package|module) '([^']+)' imported from (\S+)/.exec(message) ?? /^(Cannot find module) '([^']+)'\nRequire stack:\n- (\S+)/.exec(message);
  if (missing) {
    const [, what, target, from] = missing, importer = from.startsWith("file:") ? fileURLToPath(from) : from;
    const wanted = path.isAbsolute(target) ? path.basename(target) : target.replace(/^file:.*\//, "");
    kind = "import";
    place = { file: importer, line: findLine(importer, new RegExp(`^.*(?:from|import|require).*${wanted.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}`, "m")) };
    reason = what === "package" || !/^[./]|^file:/.test(target) ? `the package '${target}' is not installed` : `there is no file ${target.replace(/^file:\/\//, "")}`;
    hint = reason.includes("package") ? ": add it to the package.json that `requirements` names, or run npm install" : "";
  } else if (/does not provide an export named|Named export/.test(message)) {
    kind = "import";
    hint = /\.[mc]?ts$/.test(place.file ?? "") && !reason.startsWith("Named") ? ". If it is a type, write `import type` or `export type`" : "";
  } else if (name === "ReferenceError" && /before initialization/.test(message)) {
    hint = ": two files import each other, and one uses a value before it exists. Move what both need to a third file";
  }
  if (kind === "syntax" && !place.file) place = syntaxPlace(files);
  const decorator = kind === "syntax" && place.file ? findLine(place.file, DECORATOR) : undefined;
  if (decorator) place = { ...place, line: decorator };
  if (decorator) hint = ": Node.js runs no decorators. Add `esbuild` or `typescript` (5 or 6) to the project (npm install --save-dev esbuild)";
  const label = kind === "import" || name === "Error" ? "" : `${name}: `;
  const at = place.file ? ` (${formatPlace(place)})` : "";
  return new LoadFailure(kind, `${action} fails: ${label}${reason}${hint}${at}`, place, error instanceof Error ? error : undefined);
}

/** The packages that the user's project has. */
class Project {
  /** `packages`: another folder with `node_modules`, or nothing. */
  constructor(folder, packages) {
    this.folder = folder;
    this.packages = packages ?? undefined;
    this.require = createRequire(path.join(folder, "toolcrib.cjs"));
    this.loaded = new Map();
  }

  /** The exports of a package, as `import` loads it; undefined if the project has none. */
  async import(name) {
    if (!this.loaded.has(name)) {
      const file = this.find(name);
      this.loaded.set(name, file && importModule(pathToFileURL(file).href).catch(() => undefined));
    }
    return this.loaded.get(name);
  }

  version(name) { return JSON.parse(fs.readFileSync(this.packageFile(name, this.folder), "utf8")).version; }

  /** The package.json of a package, in the nearest folder node_modules. */
  packageFile(name, folder) {
    for (let at = folder; ; at = path.dirname(at)) {
      const file = path.join(at, "node_modules", name, "package.json");
      if (fs.existsSync(file)) return file;
      if (path.dirname(at) === at) break;
    }
    const installed = this.packages && path.join(this.packages, "node_modules", name, "package.json");
    return installed && fs.existsSync(installed) ? installed : undefined;
  }

  /** The file that `import` loads for a package, or a part of it. */
  find(name) {
    const [, owner, part] = /^((?:@[^/]+\/)?[^/]+)(\/.*)?$/.exec(name), file = this.packageFile(owner, this.folder);
    if (!file) return undefined;
    const { exports, main } = JSON.parse(fs.readFileSync(file, "utf8"));
    const target = exports === undefined ? (part ? `.${part}` : main ?? "index.js") : pickExport(exports, `.${part ?? ""}`);
    return target && path.join(path.dirname(file), target);
  }
}

/** The file of an entry of `exports` in a package.json. */
function pickExport(exports, entry) {
  if (typeof exports === "string") return entry === "." ? exports : undefined;
  let found = Object.keys(exports).some((key) => key.startsWith(".")) ? exports[entry] : entry === "." ? exports : undefined;
  while (found && typeof found === "object") {
    const key = Object.keys(found).find((condition) => /^(node|import|module-sync|require|default)$/.test(condition));
    found = key && found[key];
  }
  return found;
}

/** {tools, warnings, files} of a module. Throws LoadFailure. */
async function loadTools(request) {
  const { module: target, is_file: isFile, object, init } = request, files = new Set();
  const folder = isFile ? path.dirname(target) : process.cwd();
  const project = new Project(folder, request.packages);
  process.argv[1] = path.join(folder, "toolcrib-worker");
  let url, file = target;
  if (isFile) {
    if (typeof request.source !== "string" && !fs.existsSync(target)) throw new LoadFailure("not_found", `there is no file ${target}`, { file: target });
    url = pathToFileURL(target).href;
  } else {
    file = project.find(target);
    if (!file) throw new LoadFailure("import", `there is no package '${target}' in ${path.join(folder, "node_modules")}: add it to the package.json that \`requirements\` names, or give the path of a file`);
    url = pathToFileURL(file).href;
  }
  const isPinned = isFile && typeof request.source === "string" && (!fs.existsSync(file) || fs.readFileSync(file, "utf8") !== request.source);
  const reportFiles = installHooks({ sources: isPinned ? { [url]: request.source } : {}, project: path.join(folder, "toolcrib.cjs"), packages: request.packages ? path.join(request.packages, "toolcrib.cjs") : null }, (loaded) => {
    if (loaded.startsWith("file:") && !loaded.includes("/node_modules/")) files.add(fileURLToPath(loaded));
  });
  let exports;
  try { exports = await importModule(url); } catch (error) {
    reportFiles();
    throw loadFailure(error, `importing ${target}`, new Set([file, ...files]));
  }
  reportFiles();
  // Modules of CommonJS: what they export is the default, too.
  const names = Object.keys(exports).filter((name) => name !== "default" && name !== "module.exports");
  const values = Object.fromEntries(names.map((name) => [name, exports[name]]));
  const whole = exports.default ?? undefined, isWhole = ("module.exports" in exports || names.length > 0) && names.every((name) => whole?.[name] === exports[name]);
  if (isWhole) Object.assign(values, whole); // Node does not see all names
  if ("default" in exports && !(isWhole && names.length)) values.default = exports.default;
  const source = isPinned ? request.source : undefined;
  const instance = object ? await makeObject(values, object, init ?? {}, file) : undefined;
  if (!object && Object.keys(init ?? {}).length) throw new LoadFailure("invalid", `\`init\` is set, but no \`object\` is named for ${target}`, { file });
  const found = await findTools({ values, instance, object, file, source, project, files, only: request.functions ?? undefined });
  for (const { kind, message, place, error } of found.failures) throw new LoadFailure(kind, message, place, error);
  return { tools: found.tools, warnings: found.warnings, files: [...files] };
}

/** The instance of the class, or the result of the function, that the manifest names as `object`. */
async function makeObject(values, name, init, file) {
  const make = values[name] ?? (name === values.default?.name ? values.default : undefined);
  const line = findLine(file, new RegExp(`^.*(?:class|function|const|let|var)\\s+${name}\\b`, "m"));
  if (make === undefined) {
    const known = Object.keys(values).filter((key) => typeof values[key] === "function");
    throw new LoadFailure("not_found", `${file} exports no '${name}'${known.length ? `; it exports ${known.slice(0, 20).join(", ")}` : ""}`, { file });
  }
  if (typeof make === "object" && make !== null && !Object.keys(init).length) return make;
  if (typeof make !== "function") throw new LoadFailure("not_found", `'${name}' in ${formatPlace({ file, line })} is not a class or a function`, { file, line });
  const isClass = /^class\b/.test(Function.prototype.toString.call(make)), names = parameterNames(make);
  const keys = Object.keys(init);
  const isByName = keys.length > 0 && keys.every((key) => names.includes(key));
  if (keys.length && !isByName && names.length > 1) {
    const unknown = keys.find((key) => !names.includes(key));
    throw new LoadFailure("invalid", `\`init\` does not fit ${name}(${names.join(", ")}): it has no parameter '${unknown}' (${formatPlace({ file, line })})`, { file, line });
  }
  if (keys.length && !names.length) throw new LoadFailure("invalid", `\`init\` does not fit ${name}(): it takes no arguments (${formatPlace({ file, line })})`, { file, line });
  const values_ = isByName ? names.map((key) => init[key]) : keys.length ? [init] : [];
  let made;
  try { made = await (isClass ? new make(...values_) : make(...values_)); } catch (error) {
    throw loadFailure(error, `making ${name}(${keys.join(", ")})`);
  }
  if (made === null || (typeof made !== "object" && typeof made !== "function")) throw new LoadFailure("invalid", `${name}() gives ${made === null ? "null" : typeof made}, not an object with functions (${formatPlace({ file, line })})`, { file, line });
  return made;
}

module.exports = { loadTools, loadFailure, LoadFailure };
