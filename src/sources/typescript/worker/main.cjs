// Toolcrib's worker for TypeScript and JavaScript: loads one module, and answers calls over pipes until its input ends.
//
// The service starts `node -e BOOT`. BOOT is `boot.cjs`: it reads the files of this folder from standard input, and runs them
// from memory. After that, descriptor 0 and the one that TOOLCRIB_PROTOCOL_FD names (else 1) carry JSON in UTF-8, one object
// per line. The messages are those of the Python worker (`src/sources/python/worker/__init__.py`):
//
//     <- {"op":"load","module":"/abs/x.ts"|"package","is_file":true,"source":null|"…","object":null|"Class","init":{},
//         "functions":null|["f"],"packages":null|"/dir","max_result":4194304}     "role" is ignored: there is one;
//         "packages" has a further node_modules
//     -> {"op":"ready","runtime":"node 24.1.0","tools":[…],"warnings":[…],"files":["/abs/x.ts",…]}
//        or {"op":"failed","kind":…,"message":…,"file":…,"line":…,"traceback":…} and exit 1
//     <- {"op":"call","id":1,"deadline_ms":9000,"tool":"f","arguments":{},"context":{…},"watched":true,"asks":true}
//     -> {"op":"ask","id":1,"data":{"question":1,"message":"…","schema":{}|null,"name":"…"|null}}*
//     <- {"op":"answer","id":1,"question":1,"action":"accept","content":{}}      or "error":"…" in place of the action
//     -> {"op":"progress","id":1,"data":…}*  {"op":"warning","id":1,"message":"…"}*  {"op":"traceback","id":1,"message":"…"}?
//        then one of  result | invalid | failed_call | cancelled  with the same id
//     <- {"op":"cancel","id":1}
//
// `files` are the loaded files of the user, without packages. Every tool has the mode "async". A cancelled call is answered
// when its function ends, at the latest after half a second. The output of tools goes to descriptor 2, the log.
//
// The way of a module: loading (and hooks: files that Node cannot run by itself), finding, then functions (with types: the
// compiler of the project, or typetext: without one) and frameworks (with schemas: Standard Schema).
// The way of a call: wire, calls, json (arguments), results; locations: stacks.
"use strict";
const { Wire, exit } = require("./wire.cjs");
const { loadTools, LoadFailure, loadFailure } = require("./loading.cjs");
const { serve } = require("./calls.cjs");
const { toolJson } = require("./tools.cjs");
const { userStack } = require("./locations.cjs");

const { parse, stringify: write } = JSON; // a tool may replace the global one

function main() {
  const wire = new Wire();
  const early = [];
  let handlers;
  wire.listen(
    (text, bytes) => {
      if (handlers) handlers.onLine(text, bytes);
      else if (early.push([text, bytes]) === 1) start(parse(text));
    },
    () => (handlers ? handlers.onEnd() : exit(0)),
  );

  async function start(request) {
    wire.maxLine = request.max_result ?? wire.maxLine;
    const failed = (error) => {
      const { kind, message, file, line, cause } = error instanceof LoadFailure ? error : loadFailure(error, `loading ${request.module}`);
      wire.send(write({ op: "failed", kind, message, file: file ?? null, line: line ?? null, traceback: cause ? userStack(cause) : "" }));
      exit(1);
    };
    // While the module loads, its end is a failure with a place. Later Node itself writes the reason to the log.
    const exits = (code) => failed(loadFailure(new Error(`it calls process.exit(${code ?? ""})`), `importing ${request.module}`));
    process.on("uncaughtException", failed);
    process.exit = exits;
    try {
      const { tools, warnings, files } = await loadTools(request);
      await new Promise((done) => setImmediate(done)); // a promise that the module forgot, and that is rejected already, fails here
      wire.send(write({ op: "ready", runtime: runtimeName(), tools: tools.map(toolJson), warnings, files }));
      process.off("uncaughtException", failed);
      process.exit = (code) => {
        wire.writeLog(userStack(new Error(`process.exit(${code ?? ""}) ends the worker and all its calls`)));
        exit(code);
      };
      handlers = serve(wire, new Map(tools.map((tool) => [tool.name, tool])));
      for (const [text, bytes] of early.slice(1)) handlers.onLine(text, bytes);
    } catch (error) {
      failed(error);
    }
  }
}

function runtimeName() {
  const { bun, deno, node } = process.versions;
  return bun ? `bun ${bun}` : deno ? `deno ${deno}` : `node ${node}`;
}

module.exports = { main };
