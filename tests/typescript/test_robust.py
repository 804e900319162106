"""What a hostile or careless module does to its worker."""

import json
import os
import signal
import time

import pytest
from worker_process import error_text, ok, text_of


def test_exit_ends_the_worker_with_a_reason(workshop):
    worker, _ = workshop.load("/** Ends. */\nexport function end() { process.exit(3) }")
    worker.start_call("end", {})
    assert worker.wait_for_end() == 3
    assert "process.exit(3) ends the worker" in worker.log
    assert "tools_here.mjs:2" in worker.log


@pytest.mark.parametrize("code", ["Promise.reject(new Error('forgotten'))", "setTimeout(() => { throw new Error('forgotten') })"])
def test_a_forgotten_error_ends_the_worker(workshop, code):
    worker, _ = workshop.load(f"/** Forgets. */\nexport async function forget() {{ {code}; await new Promise(() => {{}}) }}")
    worker.start_call("forget", {})
    assert worker.wait_for_end() == 1
    assert "forgotten" in worker.log
    assert "tools_here.mjs:2" in worker.log


def test_a_full_heap_ends_the_worker(workshop):
    path = workshop.write("/** Fills. */\nexport function fill() { const all = []; for (;;) all.push(new Array(1e5).fill(all.length)) }")
    worker, _ = workshop.load_named(path, options=["--max-old-space-size=40"])
    worker.start_call("fill", {})
    assert worker.wait_for_end() == -signal.SIGABRT
    assert "heap out of memory" in worker.log


def test_a_spinning_call_holds_only_its_worker(workshop):
    worker, _ = workshop.load("/** Spins. */\nexport function spin() { for (;;); }\n/** A. */\nexport function a() { return 1 }")
    worker.start_call("spin", {})
    worker.send({"op": "cancel", "id": 1})
    worker.start_call("a", {})
    time.sleep(0.2)
    assert worker.process.poll() is None and worker.lines.empty()
    worker.process.kill()


def test_output_goes_to_the_log(workshop):
    worker, _ = workshop.load(
        """
        import fs from "node:fs";
        import { execSync, spawnSync } from "node:child_process";
        /** Writes. */
        export function write() {
          console.log("by console"); process.stdout.write("by stream\\n"); fs.writeSync(1, '{"op":"result","id":1}\\n');
          execSync("echo by a shell", { stdio: "inherit" });
          return spawnSync("cat", { stdio: ["inherit", "pipe", "inherit"] }).stdout.toString();
        }
        console.log("while loading");
        """
    )
    assert text_of(worker.call("write", {})) == ""
    worker.wait_for_log("by console", "by stream", '{"op":"result","id":1}', "by a shell", "while loading")


def test_standard_input_is_empty(workshop):
    worker, _ = workshop.load(
        """
        import fs from "node:fs";
        /** Reads. */
        export async function read() { let text = ""; for await (const piece of process.stdin) text += piece; return JSON.stringify([text, fs.readFileSync(0, "utf8")]) }
        """
    )
    assert text_of(worker.call("read", {})) == '["",""]'


def test_much_output(workshop):
    worker, _ = workshop.load("/** Prints. */\nexport function print() { for (let i = 0; i < 2e4; i++) console.log('x'.repeat(100)); return 'done' }")
    assert text_of(worker.call("print", {})) == "done"


def test_many_calls_at_once(workshop):
    worker, _ = workshop.load("/** Waits. */\nexport async function wait(ms) { await new Promise((done) => setTimeout(done, ms)); return ms }")
    began = time.monotonic()
    numbers = {worker.start_call("wait", {"ms": 300 + number}): 300 + number for number in range(50)}
    for _ in range(50):
        answer = worker.receive()
        assert text_of(answer) == str(numbers.pop(answer["id"]))
    assert time.monotonic() - began < 10


def test_lines_that_cannot_be_read(workshop):
    worker, _ = workshop.load("/** Gives. */\nexport function give(a) { return a }")
    worker.send_raw(b"not json")
    worker.send_raw(b'{"op":"call","id":7,"tool":"give","arguments":{"a":"\xff\xfe"}}')
    answer = worker.receive()
    assert (answer["op"], answer["id"], "UTF-8" in answer["violations"][0]["message"]) == ("invalid", 7, True)
    worker.send_raw(b'{"op":"call","id":8,"tool":"give","arguments":{"a":')
    assert worker.receive()["op"] == "invalid"
    worker.send_raw(b'{"op":"cancel","id":99}')
    worker.send_raw(b'{"op":"answer","id":99,"question":1,"action":"accept"}')
    worker.send_raw(b'{"op":"unknown","id":1}')
    worker.wait_for_log("a line that cannot be read")
    assert text_of(worker.call("give", {"a": "\ufffd"})) == "\ufffd"
    assert worker.call("absent", {})["message"] == "this worker has no tool 'absent'"


def test_lines_in_pieces(workshop):
    worker, _ = workshop.load("/** Gives. */\nexport function give(a) { return a }")
    text = "\u20ac" * 100_000
    line = json.dumps({"op": "call", "id": 1, "tool": "give", "arguments": {"a": text}}, ensure_ascii=False).encode() + b"\n"
    for start in range(0, len(line), 65_537):
        worker.process.stdin.write(line[start : start + 65_537])
        worker.process.stdin.flush()
        time.sleep(0.01)
    assert text_of(worker.receive()) == text


def test_cancelled_calls(workshop):
    worker, _ = workshop.load(
        """
        let seen = "";
        /** Listens. */
        export function listen(input, { signal }) {
          return new Promise((_, reject) => signal.addEventListener("abort", () => { seen = signal.reason.name; reject(signal.reason) }));
        }
        /** Ignores. */
        export function ignore() { return new Promise((done) => setTimeout(done, 60_000)) }
        /** Yields. */
        export async function* yields() { try { for (;;) { yield 1; await new Promise((done) => setTimeout(done, 10)) } } finally { seen = "closed" } }
        /** What was seen. */
        export function last() { return seen }
        """
    )
    for tool, after in {"listen": "AbortError", "ignore": "AbortError", "yields": "closed"}.items():
        number = worker.start_call(tool, {})
        worker.send({"op": "cancel", "id": number})
        assert worker.receive() == {"op": "cancelled", "id": number}
        assert text_of(worker.call("last", {})) == after
    number = worker.start_call("listen", {}, deadline_ms=0)
    worker.send({"op": "cancel", "id": number})
    worker.receive()
    assert text_of(worker.call("last", {})) == "TimeoutError"
    assert worker.tracebacks == []


def test_a_cancelled_call_answers_once(workshop):
    worker, _ = workshop.load("/** Waits. */\nexport async function wait(ms) { await new Promise((done) => setTimeout(done, ms)); return 1 }")
    number = worker.start_call("wait", {"ms": 900})
    worker.send({"op": "cancel", "id": number})
    worker.send({"op": "cancel", "id": number})
    assert worker.receive() == {"op": "cancelled", "id": number}
    assert text_of(worker.call("wait", {"ms": 900})) == "1"
    assert worker.lines.empty()


def test_the_end_of_the_input_ends_the_worker(workshop):
    worker, _ = workshop.load("setInterval(() => {}, 1000);\n/** Waits. */\nexport function wait() { return new Promise(() => {}) }")
    worker.start_call("wait", {})
    assert worker.close() == 0


def test_replaced_globals(workshop):
    worker, _ = workshop.load(
        """
        import fs from "node:fs";
        process.exit = () => {}; JSON.stringify = () => "{}"; process.stdout.write = () => { throw 1 }; console.log = undefined; fs.writeSync = () => { throw 1 };
        /** Gives. */
        export function give() { return { a: 1 } }
        """
    )
    assert ok(worker.call("give", {}))["structured_content"] == {"a": 1}
    assert worker.process.poll() is None


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no /proc here")
def test_a_child_has_no_pipe_of_the_protocol(workshop):
    worker, _ = workshop.load(
        """
        import { spawnSync } from "node:child_process";
        /** Lists. */
        export function list() { return spawnSync("ls", ["/proc/self/fd"], { stdio: ["inherit", "pipe", "inherit"] }).stdout.toString() }
        """
    )
    assert text_of(worker.call("list", {})).split() == ["0", "1", "2", "3"]  # 3: the folder that `ls` reads


def test_the_protocol_on_another_descriptor(node, workshop):
    path = workshop.write("/** Gives. */\nexport function give() { process.stdout.write('to the log'); return String(process.env.TOOLCRIB_PROTOCOL_FD) }")
    read, write = os.pipe()
    worker = workshop.worker({"TOOLCRIB_PROTOCOL_FD": str(write)}, pass_fds=[write])
    os.close(write)
    lines = os.fdopen(read, "rb")
    worker.send({"op": "load", "module": str(path), "is_file": True})
    assert json.loads(lines.readline())["op"] == "ready"
    worker.send({"op": "call", "id": 1, "tool": "give"})
    assert text_of(json.loads(lines.readline())) == "undefined"
    lines.close()
    worker.close()


def test_an_error_after_the_end(workshop):
    worker, _ = workshop.load("/** Throws. */\nexport async function late() { throw new Error('a'.repeat(2_000_000)) }")
    assert len(error_text(worker.call("late", {}))) == 1 << 20
    assert len(worker.tracebacks[-1]) < 10_000


def test_a_generator_that_never_waits_leaves_turns_to_other_calls(workshop):
    worker, _ = workshop.load("/** Counts. */\nexport function* count() { for (let n = 0; ; n++) yield n }\n/** A. */\nexport function a() { return 1 }")
    number = worker.start_call("count", {})
    assert text_of(worker.call("a")) == "1"
    worker.send({"op": "cancel", "id": number})
    assert worker.receive() == {"op": "cancelled", "id": number}


def test_an_exception_that_cannot_be_read(workshop):
    worker, _ = workshop.load("/** Throws. */\nexport function fail() { throw new Proxy({}, { get() { throw 1 }, getPrototypeOf() { throw 2 } }) }")
    assert worker.call("fail") == {"op": "failed_call", "id": 1, "kind": "bad_output", "message": "the exception of the function cannot be read", "warnings": []}
    assert worker.process.poll() is None


def test_a_forgotten_promise_at_import_has_a_place(workshop):
    failed = workshop.fail("export const data = Promise.reject(new Error('no network'));\n/** A. */\nexport function a() { return 1 }")
    assert "no network" in failed["message"] and failed["message"].endswith("tools_here.mjs:1)")


def test_long_lists_of_numbers_are_refused_early(workshop):
    worker, _ = workshop.load("/** Lists. */\nexport function list() { return { numbers: new Array(3e6).fill(1) } }")
    assert "longer than the limit" in worker.call("list")["message"]
