// The program of `node -e`: reads the worker's other files from standard input, and runs them from memory.
//
// The input begins with a line with a number, and so many bytes of JSON: {name of a file in this folder: its text}. The
// messages of the protocol follow on the same pipe. `import()` stands here, because code from memory cannot import.
"use strict";
Promise.all([import("node:fs"), import("node:module")]).then(([fs, { createRequire }]) => {
  const cell = new Int32Array(new SharedArrayBuffer(4));

  /** The next bytes, and none after them: those are for the worker. Ends the process at the end of the input. */
  function read(count) {
    const data = Buffer.alloc(count);
    for (let at = 0; at < count; ) {
      let got = 0;
      try {
        got = fs.readSync(0, data, at, count - at, null);
      } catch (error) {
        if (error.code !== "EAGAIN") throw error;
        Atomics.wait(cell, 0, 0, 1);
        continue;
      }
      if (got === 0) process.exit(0);
      at += got;
    }
    return data.toString();
  }

  let length = "";
  while (!length.endsWith("\n")) length += read(1);
  const files = JSON.parse(read(Number(length)));
  const modules = new Map();
  const builtin = createRequire("file:///toolcrib/");

  function load(name) {
    if (!(name in files)) return builtin(name);
    if (!modules.has(name)) {
      const module = { exports: {} };
      modules.set(name, module);
      const text = `${files[name]}\n//# sourceURL=toolcrib-worker/${name.slice(2)}`;
      new Function("require", "module", "exports", "importModule", "files", text)(load, module, module.exports, (url) => import(url), files);
    }
    return modules.get(name).exports;
  }

  for (const name of Object.keys(files)) {
    files[`./${name}`] = files[name];
    delete files[name];
  }
  for (const name of ["require", "module", "exports", "__filename", "__dirname"]) delete globalThis[name]; // of `-e`: they are of no file of the user
  load("./main.cjs").main();
});
