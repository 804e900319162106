"""The Node package: packed, installed into a clean project, and used against the real service."""

import os
import re
import shutil
import subprocess

import pytest
from conftest import first_call, interrupt, only_the_ledger, run, without_program
from harness import REPO

PACKAGE = REPO / "node"
pytestmark = pytest.mark.skipif(not shutil.which("npm"), reason="npm is not installed")

MANIFEST = """
tools:
  calculator: {kind: native}
  wait:
    kind: command
    description: Waits for some seconds.
    parameters: {seconds: {type: number, description: How long}}
    command: [/bin/sleep, "{{ seconds }}"]
    effect: read
  checked: {kind: native, use: calculator, approval: {by: [anonymous], wait: 1ms}}
toolsets:
  clock: {tools: [wait]}
"""

TESTS = r"""
import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, ToolcribError } from "toolcrib";

const toolcrib = new Client(process.env.TOOLCRIB_URL);

async function problem(promise) {
  try {
    await promise;
  } catch (error) {
    assert(error instanceof ToolcribError, error);
    return error;
  }
  assert.fail("no error");
}

test("invoke returns the answer", async () => {
  const answer = await toolcrib.invoke("calculator", { expression: "6*7" }, { runId: "r-1", timeout: 5 });
  assert.equal(answer.content[0].text, "42");
  for await (const row of toolcrib.invocations({ runId: "r-1" })) assert.equal(row.state, "succeeded");
});

test("error of a tool is an answer", async () => {
  assert.equal((await toolcrib.invoke("calculator", { expression: "1/0" })).is_error, true);
});

test("problem is thrown", async () => {
  const error = await problem(toolcrib.invoke("calculator", { expr: "1" }));
  assert.deepEqual([error.kind, error.status, error.retryable, error.violations.length > 0], ["invalid_arguments", 422, false, true]);
  assert.deepEqual((await problem(toolcrib.invoke("calculater"))).didYouMean, ["calculator"]);
});

test("unknown option is refused", async () => {
  await assert.rejects(toolcrib.invoke("calculator", {}, { runid: "x" }), /there is no option runid/);
});

test("stream yields the result", async () => {
  const events = [];
  for await (const event of toolcrib.stream("calculator", { expression: "2+2" })) events.push(event);
  assert.equal(events.at(-1).type, "result");
  assert.equal(events.at(-1).data.content[0].text, "4");
  await assert.rejects(toolcrib.stream("calculator", {}).next(), { kind: "invalid_arguments" });
});

test("cancel ends a running call", async () => {
  const { invocation_id: id } = await toolcrib.invoke("wait", { seconds: 60 }, { prefer: "respond-async" });
  await toolcrib.cancel(id);
  let state;
  do ({ state } = await toolcrib.invocation(id)); while (state === "running");
  assert.equal(state, "cancelled");
});

test("calls takes a message of a model", async () => {
  const call = { id: "c1", type: "function", function: { name: "calculator", arguments: '{"expression": "3*3"}' } };
  const completion = { object: "chat.completion", choices: [{ message: { role: "assistant", content: null, tool_calls: [call] } }] };
  for (const [message, options] of [[completion, {}], [JSON.stringify(completion), { runId: "r-2" }]]) {
    const done = await toolcrib.calls(message, options);
    assert.equal(done.messages[0].content, "9");
  }
  const text = '[TOOL_CALL]{"tool_name": "calculator", "arguments": {"expression": "1+1"}}[/TOOL_CALL]';
  assert.equal((await toolcrib.calls(text)).results[0].content[0].text, "2");
});

test("tools come in the shape of a provider", async () => {
  assert.deepEqual((await toolcrib.tools()).map((tool) => tool.name).sort(), ["calculator", "checked", "wait"]);
  assert.equal((await toolcrib.tools({ format: "openai" }))[0].type, "function");
  assert.equal((await toolcrib.definition("wait")).effect, "read");
  assert.equal((await toolcrib.validate("calculator", { expression: "1" })).valid, true);
});

test("a part of the tools is listed", async () => {
  const names = async (options) => (await toolcrib.tools(options)).map((tool) => tool.name);
  assert.deepEqual(await names({ toolset: "clock" }), ["wait"]);
  assert.deepEqual(await names({ query: "waiting", limit: 1 }), ["wait"]);
  assert.equal((await names({ runId: "r-1", discovery: "off" })).length, 3);
  const [brief, full] = [await toolcrib.tools({ detail: "brief" }), await toolcrib.tools()];
  assert(JSON.stringify(brief).length < JSON.stringify(full).length);
  const forModel = await toolcrib.tools({ format: "ai-sdk", toolset: "clock", detail: "brief", runId: "r-1" });
  assert.deepEqual(Object.keys(forModel), ["wait"]);
  await assert.rejects(toolcrib.tools({ toolsets: "clock" }), /there is no option toolsets/);
  assert.match((await problem(toolcrib.tools({ toolset: "clok" }))).detail, /there is no toolset `clok`; there are clock/);
});

test("invocations reads all pages", async () => {
  let count = 0;
  for await (const row of toolcrib.invocations({ limit: 2, tool: "calculator" })) count += row ? 1 : 0;
  assert(count >= 5, String(count));
  assert((await toolcrib.usage()).length > 0);
});

test("waiting call is decided", async () => {
  const asked = [];
  for (let at = 0; at < 2; at++) asked.push((await toolcrib.invoke("checked", { expression: "1+1" })).invocation_id);
  const waiting = [];
  for await (const row of toolcrib.approvals({ state: "waiting" })) waiting.push(row.invocation_id);
  assert.deepEqual(waiting.sort(), asked.sort());
  await toolcrib.approve(asked[0], { note: "fine", arguments: { expression: "2+2" } });
  assert.equal((await toolcrib.wait(asked[0])).result.content[0].text, "4");
  await toolcrib.deny(asked[1], { note: "no" });
  assert.equal((await toolcrib.wait(asked[1])).kind, "approval_denied");
  assert.equal((await problem(toolcrib.answer(asked[0], {}))).status, 409);
});

test("tools are switched and sources listed", async () => {
  await toolcrib.disable("calculator");
  assert.equal((await problem(toolcrib.invoke("calculator", { expression: "1" }))).kind, "tool_disabled");
  await toolcrib.enable("calculator");
  assert.deepEqual(await toolcrib.sources(), []);
});

test("events of the service have ids", async () => {
  setTimeout(() => toolcrib.invoke("calculator", { expression: "1" }), 500);
  for await (const event of toolcrib.events()) {
    if (event.type !== "invocation.ended") continue;
    assert.equal(event.data.tool, "calculator");
    assert(event.id);
    break;
  }
});

test("clear error when nothing listens", async () => {
  const error = await problem(new Client("http://127.0.0.1:1").tools());
  assert.equal(error.kind, "unreachable");
  assert.match(error.message, /Is the service running/);
});
"""

TYPES = """
import { Client, ToolcribError, type Answer } from "toolcrib";

const toolcrib = new Client("http://localhost:7411", "key");
const answer: Answer = await toolcrib.invoke("calculator", { expression: "1" }, { runId: "r", timeout: "5s" });
for await (const event of toolcrib.stream("x")) {
  if (event.type === "result") console.log(event.data.content[0]?.text);
}
for await (const row of toolcrib.invocations({ state: "failed" })) console.log(row.tool, row.state);
for await (const waiting of toolcrib.approvals({ state: "waiting" })) await toolcrib.deny(waiting.invocation_id, { note: "no" });
for await (const event of toolcrib.events()) console.log(event.type, event.id);
const names: string[] = (await toolcrib.tools({ toolset: "x", query: "y", limit: 3, detail: "brief" })).map((tool) => tool.name);
// @ts-expect-error there is no such detail
await toolcrib.tools({ format: "openai", detail: "short" });
try {
  await toolcrib.calls({});
} catch (error) {
  if (error instanceof ToolcribError) console.log(error.kind, error.retryAfterMs, answer.is_error, names);
}
// @ts-expect-error there is no such option
await toolcrib.invoke("calculator", {}, { runid: "r" });
"""


@pytest.fixture(scope="module")
def project(artefacts, tmp_path_factory):
    """A project with the client and the platform package."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "package.json").write_text('{"name": "project", "private": true, "type": "module"}')
    run("npm", "install", "--no-audit", "--no-fund", "--loglevel=error", *artefacts.glob("*.tgz"), "typescript@5", "@types/node@22", cwd=folder)
    return folder


def test_client_works_against_the_service(project, start):
    (project / "client.test.js").write_text(TESTS)
    output = run("node", "--test", "client.test.js", cwd=project, env={**os.environ, "TOOLCRIB_URL": start(MANIFEST).base})
    assert "fail 0" in output and f"pass {TESTS.count('test(')}" in output, output


def test_types_fit_the_client(project):
    (project / "use.ts").write_text(TYPES)
    run("npx", "tsc", "--strict", "--noEmit", "--module", "nodenext", "--target", "es2022", "--lib", "es2022,dom,dom.asynciterable", "use.ts", cwd=project)


def test_readme_of_the_package_is_valid(tmp_path):
    blocks = re.findall(r"```js\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    for at, block in enumerate(blocks):
        (tmp_path / f"{at}.mjs").write_text(block)
        run("node", "--check", tmp_path / f"{at}.mjs")


def test_package_starts_the_service(project, binary, tmp_path):
    # npm may print warnings about its own settings before.
    assert run("npx", "toolcrib", "--version", cwd=project, env=without_program()).endswith(run(binary, "--version"))
    first_call([project / "node_modules/.bin/toolcrib"], cwd=tmp_path, env=without_program())
    assert only_the_ledger(tmp_path)


def test_npx_takes_the_package_of_the_platform_from_the_registry(npm_registry, binary, tmp_path):
    assert run("npx", "--yes", "toolcrib", "--version", cwd=tmp_path, env=npm_registry).endswith(run(binary, "--version"))
    # npx does not hand on a SIGTERM of its own.
    first_call(["npx", "--yes", "toolcrib"], interrupt, cwd=tmp_path, env=npm_registry)
    assert only_the_ledger(tmp_path)


def test_package_without_the_program_says_so(project, tmp_path):
    shutil.copytree(project / "node_modules/toolcrib", tmp_path / "toolcrib")
    done = subprocess.run(["node", tmp_path / "toolcrib/bin/toolcrib.js", "--version"], env=without_program(), text=True, capture_output=True)
    assert done.returncode == 1
    assert "@toolcrib/linux-" in done.stderr and "is not installed" in done.stderr
