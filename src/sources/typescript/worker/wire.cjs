// The pipes to the service. Tools cannot reach them through the descriptors 0 and 1.
"use strict";
const fs = require("node:fs");
const { isUtf8 } = require("node:buffer");

const exit = process.exit.bind(process), { writeSync } = fs; // a tool may replace them
const cell = new Int32Array(new SharedArrayBuffer(4));

class Wire {
  constructor() {
    this.maxLine = 4 << 20;
    this.sink = Number(process.env.TOOLCRIB_PROTOCOL_FD ?? 1);
    delete process.env.TOOLCRIB_PROTOCOL_FD;
    this.log = 2;
    this.source = this.moveDescriptors();
  }

  /**
   * Moves the pipes to other descriptors. Then 0 is empty and 1 is the log, for tools and for the programs that they start.
   * A descriptor is moved by opening it again, because Node has no `dup2`. Returns the stream of the protocol.
   */
  moveDescriptors() {
    const { bun, deno } = process.versions, { O_RDONLY, O_NONBLOCK } = fs.constants;
    if (deno) return this.replaceStreams(); // its numbers are not descriptors
    try {
      const source = fs.openSync("/dev/fd/0", bun ? O_RDONLY : O_RDONLY | O_NONBLOCK);
      const sink = fs.openSync(`/dev/fd/${this.sink}`, "w");
      fs.closeSync(0);
      fs.openSync("/dev/null", "r"); // gets the lowest free number
      fs.closeSync(this.sink);
      if (this.sink === 1) fs.openSync("/dev/fd/2", "a");
      this.sink = sink;
      return bun ? fs.createReadStream(null, { fd: source }) : new (require("node:net").Socket)({ fd: source, readable: true, writable: false });
    } catch {
      return this.replaceStreams();
    }
  }

  /** Replaces the streams of tools, where the descriptors cannot be moved. */
  replaceStreams() {
    const source = process.stdin;
    const { Console } = require("node:console");
    const { Readable } = require("node:stream");
    process.stdout.write = process.stderr.write.bind(process.stderr);
    const log = new Console({ stdout: process.stderr, stderr: process.stderr });
    for (const name of ["log", "info", "debug", "table", "dir", "group", "timeEnd", "timeLog", "count"]) console[name] = log[name].bind(log);
    Object.defineProperty(process, "stdin", { value: Readable.from([]), configurable: true });
    return source;
  }

  /** Calls `onLine(text)` for each line, and `onEnd()` at the end of the input. The text is null if it is not UTF-8. */
  listen(onLine, onEnd) {
    let pending = [];
    this.source.on("data", (data) => {
      let start = 0;
      for (let end = data.indexOf(10); end >= 0; end = data.indexOf(10, start)) {
        const piece = data.subarray(start, end);
        start = end + 1;
        const line = pending.length ? Buffer.concat([...pending, piece]) : piece;
        pending = [];
        onLine(line.toString(), line);
      }
      if (start < data.length) pending.push(data.subarray(start));
    });
    this.source.on("end", onEnd);
    this.source.on("error", onEnd);
  }

  /** Writes one line. It waits for the pipe, so that nothing is lost if a tool ends the process. */
  send(line) {
    const data = Buffer.from(`${line}\n`);
    for (let at = 0; at < data.length; ) {
      try { at += writeSync(this.sink, data, at); } catch (error) {
        if (error.code !== "EAGAIN") exit(1); // the service has closed the pipe
        Atomics.wait(cell, 0, 0, 1);
      }
    }
  }

  /** Writes to the log, whatever the tool did to its streams. */
  writeLog(text) {
    try {
      writeSync(this.log, `${String(text).trimEnd()}\n`);
    } catch {} // the log is closed
  }
}

module.exports = { Wire, exit, isUtf8 };
