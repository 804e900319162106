"""The worker below the service: a manifest with `typescript_modules`."""

import functools
import json
import os
import subprocess
import textwrap
import time

import harness
import pytest
from conftest import nodes, project, version
from harness import Starter, error_result, ok, parallel, problem, text_of
from streams import open_stream

SHOP = """
    import type { ToolContext } from "toolcrib";

    /** Adds. @param a One number. */
    export async function add(a: number, b = 2): Promise<{ sum: number }> { return { sum: a + b } }
    /** Gives exact integers. */
    export function exact(id: bigint) { return { id, twice: id * 2n } }
    /** Counts. */
    export async function* count(to: number) { for (let n = 1; n <= to; n++) yield { n }; return "counted" }
    /** Tells who calls. */
    export function tell(input: {}, { caller, runId, state, signal }: ToolContext) { return { caller, runId, state, isAborted: signal.aborted } }
    /** Fails. */
    export function fail() { throw new TypeError("it is closed") }
    /** Spins. */
    export function spin() { for (;;); }
    /** Ends the worker. */
    export function leave() { process.exit(7) }
    /** Waits. */
    export const wait = (input: { ms: number }, { signal }: ToolContext) =>
      new Promise((resolve, reject) => {
        const timer = setTimeout(() => resolve(input.ms), input.ms);
        signal.addEventListener("abort", () => { clearTimeout(timer); console.log("the wait was aborted"); reject(signal.reason) });
      });
    /** Gives a picture. */
    export const picture = () => Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "base64");
    /** Reads its standard input. */
    export async function input() { let text = ""; for await (const piece of process.stdin) text += piece; return text }
"""


@functools.lru_cache(maxsize=None)
def has_typescript():
    return os.access(harness.BIN, os.X_OK) and b"typescript_modules" in subprocess.check_output([harness.BIN, "schema"])


@pytest.fixture
def serve(tmp_path, newest_node):
    """serve(text, **entry): a service with one module of TypeScript, which is ready."""
    if not has_typescript():
        pytest.skip(f"no binary with `typescript_modules` at {harness.BIN}: build it, or name one in TOOLCRIB_BIN")
    starter = Starter(tmp_path)

    def start(text, name="shop.ts", tools=None, packages=None, **entry):
        folder = tmp_path / "crib0"
        folder.mkdir()
        (folder / name).write_text(textwrap.dedent(text))
        if packages:
            (folder / "node_modules").symlink_to(project(packages) / "node_modules")
        module = {"module": f"./{name}", "runtime": newest_node, "tools": tools or {}, **entry}
        return starter({"typescript_modules": {"shop": module}}, folder=folder).ready(120)

    yield start
    starter.close()


READ = {"effect": "read"}


def test_functions_are_tools(serve):
    crib = serve(SHOP, tools={"add": READ})
    tool = crib.get("/tools/add").json
    assert (tool["kind"], tool["effect"], tool["description"]) == ("typescript", "read", "Adds.")
    assert tool["input_schema"]["properties"]["a"] == {"type": "number", "description": "One number."}
    assert tool["input_schema"]["properties"]["b"] == {"type": "number", "default": 2}
    answer = ok(crib.invoke("add", {"a": 1}))
    assert (answer["structured_content"], text_of(answer)) == ({"sum": 3}, '{"sum":3}')
    assert problem(crib.invoke("add", {"a": "x"}), 422)["violations"][0]["pointer"] == "/a"
    source = next(source for source in crib.get("/sources").json["sources"] if source["name"] == "shop")
    assert source["kind"] == "typescript"


def test_integers_stay_exact(serve):
    crib = serve(SHOP)
    reply = crib.post("/tools/exact/invoke", '{"arguments": {"id": 9007199254740993}}')
    assert b'"id":9007199254740993,"twice":18014398509481986' in reply.body
    reply = crib.post("/tools/add/invoke", '{"arguments": {"a": 9007199254740993}}')
    assert problem(reply, 422)["violations"][0]["pointer"] == "/a"


def test_progress_reaches_the_client(serve):
    crib = serve(SHOP)
    stream = open_stream(crib, "count", arguments={"to": 2})
    events = list(iter(stream.next_block, None))
    assert [data["data"] for name, data in events if name == "progress"] == [{"n": 1}, {"n": 2}]
    assert text_of(events[-1][1]) == "counted"


def test_the_context_reaches_the_function(serve):
    crib = serve(SHOP, context=["tenant"])
    answer = ok(crib.invoke("tell", {}, run_id="r-7", context={"tenant": "acme"}))
    assert answer["structured_content"] == {"caller": "anonymous", "runId": "r-7", "state": {"tenant": "acme"}, "isAborted": False}


def test_results_and_errors(serve):
    crib = serve(SHOP)
    assert ok(crib.invoke("picture"))["content"][0]["mimeType"] == "image/png"
    assert text_of(error_result(crib.invoke("fail"))) == "Error: TypeError: it is closed"
    crib.wait_for_log("shop.ts:")
    assert text_of(ok(crib.invoke("input"))) == ""


def test_a_worker_that_ends_is_replaced(serve):
    crib = serve(SHOP, tools={"leave": READ})
    assert problem(crib.invoke("leave"), 502)["kind"] == "tool_unavailable"
    crib.wait_for_log("process.exit(7) ends the worker")
    assert ok(crib.invoke("add", {"a": 1}))["structured_content"] == {"sum": 3}


def test_a_spinning_call_ends_alone(serve):
    crib = serve(SHOP, tools={"spin": {"effect": "read", "timeout": "500ms"}, "wait": {"effect": "read", "timeout": "20s"}})
    waiting = harness.in_background(lambda: crib.invoke("wait", {"ms": 3000}))
    time.sleep(0.3)
    assert problem(crib.invoke("spin"), 504)["kind"] == "attempt_timed_out"
    assert text_of(ok(waiting(60))) == "3000"
    assert ok(crib.invoke("add", {"a": 1}))["structured_content"] == {"sum": 3}


def test_a_deadline_aborts_the_signal(serve):
    crib = serve(SHOP, tools={"wait": {"effect": "read", "timeout": "300ms"}})
    assert problem(crib.invoke("wait", {"ms": 60_000}), 504)["kind"] == "attempt_timed_out"
    crib.wait_for_log("the wait was aborted")


def test_many_calls_share_one_worker(serve):
    crib = serve(SHOP, tools={"wait": READ})
    began = harness.now()
    answers = parallel(12, lambda number: crib.invoke("wait", {"ms": 500 + number}))
    assert sorted(text_of(ok(answer)) for answer in answers) == [str(500 + number) for number in range(12)]
    assert harness.elapsed(began) < 6


def test_an_edited_file_is_loaded(serve):
    crib = serve("/** Gives. */\nexport function give() { return 'old' }")
    assert text_of(ok(crib.invoke("give"))) == "old"
    (crib.folder / "shop.ts").write_text("/** Gives. */\nexport function give(): string { return 'new' }")
    harness.poll(lambda: text_of(ok(crib.invoke("give"))) == "new", 30, "the new file")


def test_a_module_that_cannot_be_loaded(serve):
    crib = serve("import { z } from 'zod';\nexport const a = z.string();", functions=["give"])
    assert crib.get("/tools/give").json["available"] is False
    answer = problem(crib.invoke("give"), 503)
    assert answer["kind"] == "tool_unavailable"
    assert "the package 'zod' is not installed" in json.dumps(crib.get("/sources").json)


@pytest.mark.parametrize("packages", ["oldest", "newest"])
def test_tools_of_the_ai_sdk(serve, packages):
    crib = serve(
        """
        import { tool } from "ai";
        import { z } from "zod";
        export const weather = tool({
          description: "Tells the weather of a city.",
          inputSchema: z.object({ city: z.string() }),
          execute: async ({ city }) => ({ city, temperature: 12 }),
        });
        """,
        "weather.ts",
        packages=packages,
    )
    assert crib.get("/tools/weather").json["input_schema"]["properties"] == {"city": {"type": "string"}}
    assert ok(crib.invoke("weather", {"city": "Oslo"}))["structured_content"] == {"city": "Oslo", "temperature": 12}


@pytest.mark.parametrize("runtime", ["bun", "deno"])
def test_other_runtimes(serve, runtime):
    from test_runtimes import PROGRAMS

    program = project("core") / "node_modules" / PROGRAMS[runtime]
    if not program.exists():
        pytest.skip(f"the project `core` has no {runtime} for this machine")
    crib = serve("/** Adds. */\nexport async function add(a: number, b = 2) { return a + b }", runtime=str(program))
    assert text_of(ok(crib.invoke("add", {"a": 1}))) == "3"


def test_an_old_node_with_a_compiler(serve):
    if len(nodes()) < 2:
        pytest.skip("there is one Node.js")
    crib = serve("enum Kind { A = 'a' }\n/** Gives. */\nexport function give(kind: Kind = Kind.A): string { return kind }", packages="core", runtime=next(iter(nodes().values())))
    assert text_of(ok(crib.invoke("give", {}))) == "a"


def test_the_reason_of_v8_is_in_the_fault(serve, newest_node):
    """V8 prints the reason, and then a native stack of many lines."""
    if version(newest_node) < (24,):
        pytest.skip("this Node.js starts with so little memory")
    crib = serve("/** A. */\nexport function a() { return 1 }", sandbox={"memory": "300MiB"})
    [source] = crib.get("/sources").json["sources"]
    assert "Failed to reserve virtual memory" in source["fault"] and ": 0x" not in source["fault"]
