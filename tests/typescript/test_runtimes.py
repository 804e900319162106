"""Bun and Deno as the runtime of a worker."""

import pytest
from conftest import PROJECTS, project
from worker_process import error_text, ok, text_of

PROGRAMS = {"bun": "bun-runtime/bin/bun", "deno": "deno-runtime/deno"}


@pytest.fixture(params=PROGRAMS)
def runtime(request, make_workshop):
    """`runtime("schemas")`: a workshop of this runtime with the packages of a project."""
    program = project("core") / "node_modules" / PROGRAMS[request.param]
    if not program.exists():
        pytest.skip(f"the project `core` has no {request.param} for this machine")
    return lambda packages=None: make_workshop(str(program), packages)


def test_functions(runtime):
    worker, tools = runtime().load(
        """
        import type { ToolContext } from "toolcrib";
        enum Size { Small = "small", Large = "large" }
        console.log("while loading");
        /** Adds. @param size The size. */
        export async function add(a: number, b = 2, size?: Size, context?: ToolContext) {
          console.log("by console"); process.stdout.write("by stream\\n");
          return { sum: a + b, id: 9007199254740993n, size, run: context?.runId };
        }
        /** Fails. */
        export function fail(): void { throw new TypeError("it is closed") }
        /** Counts. */
        export async function* count() { yield 1; yield 2 }
        /** Listens. */
        export const listen = (input: {}, { signal }: ToolContext) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
        """,
        "add.ts",
    )
    assert tools["add"]["input_schema"]["properties"] == {
        "a": {"type": "number"},
        "b": {"type": "number", "default": 2},
        "size": {"type": "string", "enum": ["small", "large"], "description": "The size."},
    }
    answer = ok(worker.call("add", {"a": 1, "size": "small"}, {"run_id": "r"}))
    assert answer["structured_content"] == {"sum": 3, "id": 9007199254740993, "size": "small", "run": "r"}
    worker.wait_for_log("by console", "by stream", "while loading")
    assert error_text(worker.call("fail")) == "Error: TypeError: it is closed"
    assert "add.ts:" in worker.tracebacks[-1]
    assert worker.watch("count")[0] == [1, 2]
    number = worker.start_call("listen", {})
    worker.send({"op": "cancel", "id": number})
    assert worker.receive() == {"op": "cancelled", "id": number}
    assert worker.close() == 0


def test_tools_of_the_ai_sdk(runtime):
    workshop = runtime("schemas")
    workshop.write((PROJECTS / "schemas" / "package.json").read_text(), "package.json")  # Deno asks for it
    worker, tools = workshop.load(
        """
        import { tool } from "ai";
        import * as z from "zod";
        export const weather = tool({ description: "Tells.", inputSchema: z.object({ city: z.string() }), execute: async ({ city }) => city });
        """,
        "tools.ts",
    )
    assert tools["weather"]["input_schema"]["required"] == ["city"]
    assert text_of(worker.call("weather", {"city": "Oslo"})) == "Oslo"


def test_a_module_that_cannot_be_loaded(runtime):
    failed = runtime().fail("import { z } from 'zod';\nexport const a = z.string();\n")
    assert "zod" in failed["message"]


def test_output_with_bun_goes_to_the_log(runtime, request):
    if "bun" not in request.node.callspec.id:
        pytest.skip("the numbers of Deno are not descriptors")
    worker, _ = runtime().load(
        """
        import fs from "node:fs";
        import { execSync, spawnSync } from "node:child_process";
        /** Writes. */
        export function write() {
          fs.writeSync(1, '{"op":"result","id":1}\\n'); Bun.write(Bun.stdout, "by bun\\n"); execSync("echo by a shell", { stdio: "inherit" });
          return JSON.stringify([fs.readFileSync(0, "utf8"), spawnSync("cat", { stdio: ["inherit", "pipe", "inherit"] }).stdout.toString()]);
        }
        """,
        "write.ts",
    )
    assert text_of(worker.call("write")) == '["",""]'
    worker.wait_for_log('{"op":"result","id":1}', "by bun", "by a shell")
    worker.start_call("write", {})
    assert worker.close() == 0
