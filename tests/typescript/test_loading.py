"""Modules that cannot be loaded: what is said, and where."""

import pytest
from conftest import version


def test_a_missing_file(workshop):
    failed = workshop.fail_named(workshop.folder / "absent.ts")
    assert failed["message"] == f"there is no file {workshop.folder}/absent.ts"
    assert failed["kind"] == "not_found"


def test_a_syntax_error(workshop):
    failed = workshop.fail("export const a = 1;\nexport function ( {\n")
    assert (failed["kind"], failed["line"]) == ("syntax", 2)
    assert "importing" in failed["message"] and "SyntaxError: " in failed["message"] and "tools_here.mjs:2)" in failed["message"]


def test_a_syntax_error_of_typescript(with_compiler):
    failed = with_compiler.fail("export const a: string = 1;\nexport function b(: string) {}\n", "bad.ts")
    assert failed["kind"] in ("syntax", "exception")
    assert "bad.ts" in failed["message"] and failed["line"] == 2


def test_a_missing_package(workshop):
    failed = workshop.fail("import fs from 'node:fs';\nimport { z } from 'zod';\n")
    assert (failed["kind"], failed["line"]) == ("import", 2)
    assert "the package 'zod' is not installed: add it to the package.json that `requirements` names" in failed["message"]


def test_a_missing_file_of_an_import(workshop):
    failed = workshop.fail("\nimport './absent.mjs';\n")
    assert (failed["kind"], failed["line"]) == ("import", 2)
    assert "there is no file" in failed["message"] and "absent.mjs" in failed["message"]


def test_a_missing_export(workshop):
    workshop.write("export const a = 1;", "other.mjs")
    failed = workshop.fail("import { b } from './other.mjs';\n")
    assert (failed["kind"], failed["line"]) == ("import", 1)
    assert "does not provide an export named 'b'" in failed["message"]


def test_files_that_import_each_other(workshop):
    workshop.write("import { a } from './tools_here.mjs';\nexport const b = a + 1;", "other.mjs")
    failed = workshop.fail("import { b } from './other.mjs';\nexport const a = b;\n")
    assert failed["kind"] == "exception"
    assert "import each other" in failed["message"] and "other.mjs:2" in failed["message"]


def test_an_exception(workshop):
    failed = workshop.fail("const settings = {};\nexport const a = settings.missing.field;\n")
    assert failed["line"] == 2
    assert "TypeError: Cannot read properties of undefined" in failed["message"]
    assert "tools_here.mjs:2" in failed["traceback"]


@pytest.mark.parametrize("code", ["throw 'text'", "throw undefined", "throw { get message() { throw 1 } }", "await Promise.reject(null)"])
def test_strange_exceptions(workshop, code):
    assert "importing" in workshop.fail(f"{code};\nexport const a = 1;\n")["message"]


def test_exit_while_loading(workshop):
    failed = workshop.fail("export const a = 1;\nprocess.exit(4);\n")
    assert "it calls process.exit(4)" in failed["message"]
    assert failed["line"] == 2


def test_a_forgotten_error_while_loading(workshop):
    failed = workshop.fail("setTimeout(() => { throw new Error('forgotten') });\nawait new Promise(() => {});\n")
    assert "forgotten" in failed["message"]


def test_a_module_without_tools(workshop):
    failed = workshop.fail("export const a = 1;\n")
    assert failed["message"].startswith("no tool was found in ")
    assert "comment /** … */" in failed["message"]
    failed = workshop.fail("export class Shop {}\n")
    assert "set `object: Shop`" in failed["message"]


def test_an_absent_function(workshop):
    failed = workshop.fail("/** A. */\nexport function add() {}\nexport function other() {}", functions=["sub"])
    assert failed["message"] == f"there is no tool or function 'sub' in {workshop.folder}/tools_here.mjs; it has add, other"


def test_a_wanted_function_that_cannot_be_used(workshop):
    failed = workshop.fail("\nexport function add() {}", functions=["add"])
    assert failed["line"] == 2
    assert "'add' cannot be offered: it has no description" in failed["message"]


def test_duplicate_names(workshop):
    worker, tools = workshop.load(
        """
        const run = (text) => ({ name: "same", description: text, inputSchema: { type: "object", properties: {} }, execute: () => text });
        export const first = run("one");
        export const second = run("two");
        """
    )
    assert tools["same"]["description"] == "two"
    assert worker.ready["warnings"] == [f"{workshop.folder}/tools_here.mjs:3: 'same' is defined again at {workshop.folder}/tools_here.mjs:4; the later definition is used"]


def test_names_that_no_model_takes(workshop):
    worker, tools = workshop.load(
        """
        export const bad = { name: "a b", description: "x", inputSchema: { type: "object" }, execute: () => 1 };
        export const good = { name: "ab", description: "x", inputSchema: { type: "object" }, execute: () => 1 };
        """
    )
    assert set(tools) == {"ab"}
    assert 'its name is "a b"' in worker.ready["warnings"][0]


def test_init_that_does_not_fit(workshop):
    text = "export class Shop { constructor(path, limit) {} }\nexport const none = 1;"
    failed = workshop.fail(text, object="Shop", init={"file": "x"})
    assert "`init` does not fit Shop(path, limit): it has no parameter 'file'" in failed["message"]
    assert failed["line"] == 1
    assert "exports no 'Store'; it exports Shop" in workshop.fail(text, object="Store")["message"]
    assert "is not a class or a function" in workshop.fail(text, object="none", init={"a": 1})["message"]
    assert "no `object` is named" in workshop.fail(text, init={"a": 1})["message"]


def test_an_exception_of_a_constructor(workshop):
    failed = workshop.fail("export class Shop {\n  constructor(path) { throw new Error('no such path ' + path) }\n}", object="Shop", init={"path": "x"})
    assert "making Shop(path) fails: no such path x" in failed["message"]
    assert failed["line"] == 2


def test_the_listed_text_runs(workshop):
    path = workshop.write("/** New. */\nexport function later() {}")
    _, tools = workshop.load_named(path, source="/** Old. */\nexport function before() {}")
    assert set(tools) == {"before"}


def test_the_listed_text_of_typescript_runs(with_compiler):
    path = with_compiler.write("/** New. */\nexport function later(): void {}", "x.ts")
    _, tools = with_compiler.load_named(path, source="/** Old. */\nexport function before(text: string): void {}")
    assert tools["before"]["input_schema"]["properties"] == {"text": {"type": "string"}}


def test_old_node_without_a_compiler(node, workshop):
    if version(node) >= (22, 18):
        pytest.skip("this Node.js runs types by itself")
    failed = workshop.fail("export const a: number = 1;", "a.ts")
    assert "use Node 22.18 or newer, or add `esbuild` or `typescript` (5 or 6) to the project" in failed["message"]


def test_imports_as_typescript_writes_them(with_compiler):
    with_compiler.write("import { one } from './deep';\nexport const two: number = one + 1;", "lib/other.ts")
    with_compiler.write("export enum One { A = 1 }\nexport const one: number = One.A;", "lib/deep/index.ts")
    worker, _ = with_compiler.load("import { two } from './lib/other.js';\n/** Gives. */\nexport function give(): number { return two }", "tools.ts")
    assert worker.call("give", {})["content"] == [{"type": "text", "text": "2"}]


def test_places_of_compiled_files(with_compiler):
    worker, _ = with_compiler.load("enum Kind {\n  A,\n  B,\n}\n/** Fails. */\nexport function fail(kind?: Kind): void {\n  throw new Error('no')\n}", "fail.ts")
    worker.call("fail", {})
    assert "fail.ts:7" in worker.tracebacks[-1]


def test_the_files_of_a_module_are_listed(workshop):
    workshop.write("export const a = 1;", "lib.mjs")
    worker, _ = workshop.load("import { a } from './lib.mjs';\n/** G. */\nexport function give() { return a }")
    assert worker.ready["files"] == [f"{workshop.folder}/tools_here.mjs", f"{workshop.folder}/lib.mjs"]


def test_a_package_by_its_name(workshop):
    workshop.write("/** Gives. */\nexport function give() { return 1 }", "node_modules/my-tools/main.mjs")
    workshop.write('{"name": "my-tools", "exports": {".": {"import": "./main.mjs"}}}', "node_modules/my-tools/package.json")
    _, tools = workshop.load_named("my-tools")
    assert set(tools) == {"give"}
    assert "there is no package 'absent'" in workshop.fail_named("absent")["message"]


def test_packages_of_another_folder(workshop):
    """The service installs the packages of `requirements` elsewhere."""
    workshop.write("export { answer } from 'deep';", "installed/node_modules/lib/main.mjs")
    workshop.write('{"name": "lib", "exports": "./main.mjs"}', "installed/node_modules/lib/package.json")
    workshop.write("export const answer = 42;", "installed/node_modules/deep/main.mjs")
    workshop.write('{"name": "deep", "exports": "./main.mjs"}', "installed/node_modules/deep/package.json")
    workshop.write("/** Gives. */\nexport function give() { return 1 }", "installed/node_modules/my-tools/main.mjs")
    workshop.write('{"name": "my-tools", "exports": "./main.mjs"}', "installed/node_modules/my-tools/package.json")
    installed = str(workshop.folder / "installed")
    source = "import { answer } from 'lib';\n/** Gives. */\nexport function give() { return answer }"
    worker, _ = workshop.load(source, packages=installed)
    assert worker.call("give", {})["content"][0]["text"] == "42"
    assert set(workshop.load_named("my-tools", packages=installed)[1]) == {"give"}
    failed = workshop.fail("import 'absent';", packages=installed)
    assert "the package 'absent' is not installed" in failed["message"] and failed["file"].endswith("tools_here.mjs")


def test_a_package_json_of_commonjs(with_compiler):
    with_compiler.write('{"type": "commonjs"}', "package.json")
    _, tools = with_compiler.load("/** Gives. */\nexport function give(): number { return 1 }", "tools.ts")
    assert set(tools) == {"give"}


def test_imports_of_types_without_the_word_type(with_compiler):
    """Node.js alone refuses such names: they do not exist when the program runs."""
    with_compiler.write("export interface User { id: string }\nexport type Level = 1 | 2;\nexport const admin: User = { id: 'a' };\nexport default interface Site { url: string }", "lib/types.ts")
    source = """
        #!/usr/bin/env node
        // It's said that `import` can stand late.
        import fs from "node:fs";
        import Site, {
          User,
          Level as Step, // a User
          admin as root,
        } from "./lib/types";
        import * as types from "./lib/types";
        import { JSONSchema7 } from "only-types";
        import { readFileSync } from 'node:fs'
        const sample = `
          import { admin } from "./lib/types";
        `;

        /** Makes a User. */
        export function make(id: string, level?: Step, site?: Site, schema?: JSONSchema7): User {
          return { ...(id ? { id } : root), lines: sample.split("\\n").length, late: new Error().stack!.includes("types.ts:18"), ...types.admin.missing, fs: typeof fs.statSync + typeof readFileSync } as User;
        }
    """
    worker, _ = with_compiler.load("\n".join(source.split("\n")[1:]).replace("        #!", "#!"), "types.ts")
    made = worker.call("make", {"id": ""})
    assert made["structured_content"] == {"id": "a", "lines": 3, "late": True, "fs": "functionfunction"}


def test_a_type_that_is_exported_again(newest_node, make_workshop):
    workshop = make_workshop(newest_node)
    workshop.write("export interface User { id: string }", "types.ts")
    failed = workshop.fail("export { User } from './types.ts';", "again.ts")
    assert (failed["kind"], failed["line"]) == ("import", 1)
    assert "an export named 'User'. If it is a type, write `import type` or `export type` (" in failed["message"]


def test_json_files_as_typescript_imports_them(with_compiler):
    with_compiler.write('{"eur": 1.5}', "rates.json")
    source = "import rates from './rates.json';\nimport again from './rates.json' with { type: 'json' };\n/** Converts money. */\nexport const convert = (amount: number) => amount * rates.eur * again.eur;"
    worker, _ = with_compiler.load(source, "json.ts")
    assert worker.call("convert", {"amount": 2})["content"][0]["text"] == "4.5"


def test_paths_of_a_tsconfig(with_compiler):
    with_compiler.write('{\n  // the usual "@/*"\n  "compilerOptions": {"baseUrl": ".", "paths": {"@/*": ["./absent/*", "./src/*"], "~one": ["./src/lib/one"],},},\n}', "base.json")
    with_compiler.write('{"extends": "./base", "compilerOptions": {"strict": true}}', "tsconfig.json")
    with_compiler.write("export const one = 1;", "src/lib/one.ts")
    with_compiler.write("import { one } from '~one';\nexport const two = one + 1;", "src/lib/index.ts")
    source = "import { two } from '@/lib';\nimport { one } from 'src/lib/one';\n/** Gives. */\nexport const give = (): number => two + one;"
    worker, _ = with_compiler.load(source, "src/agent/tools.ts")
    assert worker.call("give", {})["content"][0]["text"] == "3"
    assert "the package '@/absent' is not installed" in with_compiler.fail("import '@/absent';", "src/agent/bad.ts")["message"]


def test_decorators_without_a_compiler(newest_node, make_workshop):
    failed = make_workshop(newest_node).fail("const log = (run: Function) => run;\nexport class Shop {\n  @log\n  buy() {}\n}", "shop.ts", object="Shop")
    assert (failed["kind"], failed["line"]) == ("syntax", 3)
    assert "Node.js runs no decorators. Add `esbuild` or `typescript`" in failed["message"]


def test_words_of_commonjs(with_compiler):
    """A project that is compiled to CommonJS writes imports, and uses these words."""
    with_compiler.write("exports.half = (n) => n / 2;", "lib/old.cjs")
    with_compiler.write("export const where: string = __dirname + require('./old.cjs').half(4);", "lib/nested.ts")
    source = """
        import { where } from "./lib/nested";
        if (require.main === module) process.exit(1);

        /** Gives. */
        export function give(): unknown { return [where, __dirname, __filename] }
    """
    folder = with_compiler.folder
    worker, _ = with_compiler.load(source, "words.ts")
    assert worker.call("give", {})["structured_content"] == [f"{folder}/lib2", f"{folder}", f"{folder}/words.ts"]
    source = """
        import { createRequire } from "node:module";
        const require = createRequire(import.meta.url);
        const __filename = "own", __dirname = "own";

        /** Gives. */
        export function give(): unknown { return [__dirname, __filename, require("./lib/old.cjs").half(4)] }
    """
    worker, _ = with_compiler.load(source, "own.ts")
    assert worker.call("give", {})["structured_content"] == ["own", "own", 2]


def test_require_in_a_module_of_javascript(workshop):
    failed = workshop.fail("const { half } = require('./half.cjs');\nexport const a = half(1);")
    assert "require is not defined in ES module scope" in failed["message"] and failed["line"] == 1


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("import { tool } from './kit.mjs';\nconst unit = 'km';\nconst getWeather = tool({ name: 'w' });", "it exports nothing. Write `export` before `const getWeather`"),
        ("/** Adds. */\nasync function add(a) {}\nconst b = 1;", "it exports nothing. Write `export` before `async function add`"),
        ("console.log(1);", "it exports nothing"),
    ],
)
def test_a_module_that_exports_nothing(workshop, source, wanted):
    workshop.write("export const tool = (fields) => fields;", "kit.mjs")
    assert workshop.fail(source)["message"] == f"no tool was found in {workshop.folder}/tools_here.mjs: {wanted}"


MAKER = """
    export function webSearch({ key = "none" } = {}) {
      return { description: "Searches.", inputSchema: { type: "object", properties: { text: { type: "string" } } }, execute: ({ text }) => key + text };
    }
"""


def test_a_function_that_makes_a_tool(workshop):
    """Most packages of tools export such functions."""
    assert workshop.fail(MAKER)["message"].endswith("or set `description`. If it makes tools, set `object: webSearch`")
    worker, tools = workshop.load(MAKER, object="webSearch", init={"key": "k"})
    assert set(tools) == {"webSearch"}
    assert worker.call("webSearch", {"text": "x"})["content"][0]["text"] == "kx"


def test_tools_that_can_be_called_and_tools_of_an_agent(workshop):
    _, tools = workshop.load(
        """
        const make = (description) => Object.assign(() => 1, { description, inputSchema: { type: "object", properties: {} }, execute: () => 2 });
        export const scrape = make("Reads a page.");
        export const kit = { search: make("Finds.") };
        class Agent {
          #tools = { weather: { ...make("Tells the weather.") }, web: { type: "provider", id: "openai.web_search", args: {} } };
          get tools() { return this.#tools; }
        }
        export const agent = new Agent();
        """
    )
    assert set(tools) == {"scrape", "search", "weather"}


@pytest.mark.parametrize("body, word", [("", "undefined"), ("return null", "null"), ("return 'a'", "string")])
def test_a_factory_that_gives_no_object(body, word, workshop):
    failed = workshop.fail(f"export async function make() {{ {body} }}", object="make")
    assert f"make() gives {word}, not an object with functions (" in failed["message"] and failed["line"] == 1
