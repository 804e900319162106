"""Plain functions: what is a tool, and its schema, by the compiler of the project and without one."""

import json

import jsonschema
import pytest
from conftest import version
from worker_process import error_text, ok, text_of


@pytest.fixture(params=["compiler", "text"])
def shop(request, node, make_workshop):
    """A workshop whose types are read by the compiler, or from the text without any package."""
    if request.param == "compiler":
        return make_workshop(node, "core")
    if version(node) < (22, 18):
        pytest.skip("this Node.js runs no types without a package")
    return make_workshop(node)


SHOP = """
    import type { ToolContext } from "toolcrib";

    export enum Size { Small = "small", Large = "large" }
    type Unit = "km" | "mi";
    interface Address {
      /** Street and number */
      street: string;
      /** @minimum 1000 @maximum 9999 */
      zip?: number;
      tags: string[];
    }

    /**
     * Books a trip.
     *
     * @param city - The city.
     * @param days How many days.
     */
    export async function book(
      city: string,
      days = 3,
      unit: Unit = "km",
      size?: Size,
      where?: Address,
      extra?: Record<string, number>,
      pair?: [string, number],
      day?: Date,
      places?: Map<string, number>,
      kinds?: Set<string>,
      key?: bigint,
      choice?: "a" | 1 | null,
    ) {
      return { city, days, unit, size, where, extra, pair, isDate: day instanceof Date, day, places, isMap: places instanceof Map, kinds, isSet: kinds instanceof Set, key, choice };
    }

    /** Says who calls. */
    export function whoami(context: ToolContext) {
      return `${context.caller} in ${context.runId}`;
    }

    /** Takes an object. */
    export const find = async ({ text, limit = 10 }: { text: string; limit?: number }, { caller }: ToolContext) => ({ text, limit, caller });
"""

BOOK = {
    "city": {"type": "string", "description": "The city."},
    "days": {"type": "number", "description": "How many days.", "default": 3},
    "unit": {"type": "string", "enum": ["km", "mi"], "default": "km"},
    "size": {"type": "string", "enum": ["small", "large"]},
    "where": {
        "type": "object",
        "properties": {
            "street": {"type": "string", "description": "Street and number"},
            "zip": {"type": "number"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["street", "tags"],
        "additionalProperties": False,
    },
    "extra": {"type": "object", "additionalProperties": {"type": "number"}},
    "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}], "items": False, "minItems": 2, "maxItems": 2},
    "day": {"type": "string", "format": "date-time"},
    "places": {"type": "object", "additionalProperties": {"type": "number"}},
    "kinds": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    "key": {"type": "integer"},
    "choice": {"anyOf": [{"enum": ["a", 1]}, {"type": "null"}]},
}


def test_types_become_a_schema(shop):
    _, tools = shop.load(SHOP.replace("@minimum 1000 @maximum 9999", "The code."), "shop.ts")
    assert set(tools) == {"book", "whoami", "find"}
    schema = tools["book"]["input_schema"]
    properties = schema["properties"]
    assert properties["where"]["properties"]["zip"].pop("description") == "The code."
    assert properties == BOOK
    assert list(properties) == list(BOOK)
    assert schema["required"] == ["city"]
    assert schema["additionalProperties"] is False
    assert tools["book"]["description"] == "Books a trip."
    assert (tools["book"]["schema_owner"], tools["book"]["mode"], tools["book"]["takes_context"]) == ("derived", "async", False)
    for tool in tools.values():
        jsonschema.Draft202012Validator.check_schema(tool["input_schema"])
    assert tools["whoami"]["input_schema"]["properties"] == {}
    assert tools["whoami"]["takes_context"] is True
    assert tools["find"]["input_schema"]["properties"] == {"text": {"type": "string"}, "limit": {"type": "number", "default": 10}}
    assert tools["find"]["input_schema"]["required"] == ["text"]
    assert tools["find"]["takes_context"] is True


def test_arguments_have_their_types(shop):
    worker, _ = shop.load(SHOP, "shop.ts")
    arguments = {
        "city": "Oslo",
        "day": "2026-01-31",
        "places": {"a": 1},
        "kinds": ["x", "x"],
        "key": 12345678901234567891,
        "pair": ["a", 1],
        "choice": None,
    }
    answer = ok(worker.call("book", arguments))
    assert answer["structured_content"] == {
        **{"city": "Oslo", "days": 3, "unit": "km", "pair": ["a", 1], "isDate": True, "day": "2026-01-31T00:00:00.000Z"},
        **{"places": {"a": 1}, "isMap": True, "kinds": ["x"], "isSet": True, "key": 12345678901234567891, "choice": None},
    }
    assert json.loads(text_of(answer)) == answer["structured_content"]
    assert text_of(worker.call("whoami", {}, {"run_id": "r-7"})) == "tester in r-7"
    assert ok(worker.call("find", {"text": "x"}))["structured_content"] == {"text": "x", "limit": 10, "caller": "tester"}


def test_wrong_arguments_are_violations(shop):
    worker, _ = shop.load(SHOP, "shop.ts")
    answer = worker.call("book", {"city": "Oslo", "day": "no day", "days": 12345678901234567891})
    assert answer["op"] == "invalid"
    assert answer["violations"][0]["pointer"] == "/day"
    answer = worker.call("book", {"city": "Oslo", "days": 12345678901234567891})
    assert answer["op"] == "invalid"
    assert answer["violations"] == [{"pointer": "/days", "message": answer["violations"][0]["message"]}]
    assert "2^53" in answer["violations"][0]["message"]


def test_keywords_of_comments(shop):
    _, tools = shop.load(
        """
        /** Finds. */
        export function find(query: {
          /**
           * How many.
           * @minimum 1
           * @maximum 50
           * @default 10
           * @integer
           */
          limit?: number;
          /** @pattern ^[a-z]+$ */
          name: string;
        }) { return query }
        """,
        "find.ts",
    )
    assert tools["find"]["input_schema"]["properties"] == {
        "limit": {"type": "integer", "description": "How many.", "minimum": 1, "maximum": 50, "default": 10},
        "name": {"type": "string", "pattern": "^[a-z]+$"},
    }


@pytest.mark.parametrize("packages", [None, "core"])
def test_jsdoc_of_javascript(node, make_workshop, packages):
    workshop = make_workshop(node, packages)
    _, tools = workshop.load(
        """
        /**
         * @typedef {object} Person
         * @property {string} name The name.
         * @property {number} [age]
         */

        /**
         * Adds a person.
         * @param {Person} person Who.
         * @param {"low"|"high"} [level="low"] How much.
         * @param {string[]} tags
         * @param {Object<string, number>} scores
         * @param {?boolean} flag
         */
        export function add(person, level = "low", tags, scores, flag) { return { person, level, tags } }

        /**
         * Takes an object.
         * @param {object} query
         * @param {string} query.text The text.
         * @param {number} [query.limit]
         */
        export function find(query) { return query }
        """
    )
    properties = tools["add"]["input_schema"]["properties"]
    assert properties["person"]["properties"]["name"] == {"type": "string", "description": "The name."}
    assert properties["person"]["required"] == ["name"]
    assert properties["level"] == {"type": "string", "enum": ["low", "high"], "description": "How much.", "default": "low"}
    assert properties["tags"] == {"type": "array", "items": {"type": "string"}}
    assert properties["flag"] == {"anyOf": [{"type": "boolean"}, {"type": "null"}]}
    assert set(tools["add"]["input_schema"]["required"]) == {"person", "tags", "scores", "flag"}
    schema = tools["find"]["input_schema"]
    assert schema["properties"]["text"] == {"type": "string", "description": "The text."}
    assert schema["required"] == ["text"]


def test_imported_types_by_the_compiler(with_compiler):
    with_compiler.write("export interface Base { id: string }\nexport type Level = 'low' | 'high';", "types.ts")
    _, tools = with_compiler.load(
        """
        import type { Base, Level } from "./types.ts";
        interface Node extends Base { children: Node[]; level: Level }
        interface Answer { id: string; count?: number }
        /** Walks. */
        export async function walk(root: Node, only?: Pick<Node, "level">): Promise<Answer> { return { id: root.id } }
        """,
        "walk.ts",
    )
    schema = tools["walk"]["input_schema"]
    name = schema["properties"]["root"]["$ref"].rsplit("/", 1)[-1]
    assert schema["$defs"][name]["properties"]["children"] == {"type": "array", "items": {"$ref": f"#/$defs/{name}"}}
    assert set(schema["$defs"][name]["required"]) == {"id", "children", "level"}
    assert schema["properties"]["only"]["properties"] == {"level": {"type": "string", "enum": ["low", "high"]}}
    assert tools["walk"]["output_schema"] == {
        "type": "object",
        "properties": {"id": {"type": "string"}, "count": {"type": "number"}},
        "required": ["id"],
    }
    jsonschema.Draft202012Validator.check_schema(schema)


def test_types_of_imported_files_and_of_results(shop):
    shop.write("export * from './more';\nexport enum Role { Admin = 'admin', /* every, one */ Guest = 'guest' }\nexport const MOST = 25;", "lib/index.ts")
    shop.write("import { Role } from '.';\nexport interface User { id: string; role?: Role; find(id: string, deep?: boolean): User; end(): void }", "lib/more.ts")
    shop.write("export interface User { other: number }", "other.ts")
    worker, tools = shop.load(
        """
        import { Role as Kind, MOST, type User } from "./lib";
        import type { User as Other } from "./other.js";
        interface Page { users: User[]; next: string | undefined; at: Date; others?: Map<string, Other> }

        /** Lists. */
        export async function list(kind: Kind = Kind.Guest, limit = MOST, user?: User): Promise<Page> {
          return { users: [{ id: kind + limit } as User], next: undefined, at: new Date(0) };
        }
        /** Gives. */
        export const give = (text: string): { text: string; parts: string[] } => ({ text, parts: [] });
        /** Says. */
        export function say(text: string): string { return text }
        """,
        "list.ts",
    )
    user = {"type": "object", "properties": {"id": {"type": "string"}, "role": {"type": "string", "enum": ["admin", "guest"]}}, "required": ["id"]}
    assert tools["list"]["input_schema"]["properties"] == {
        "kind": {"type": "string", "enum": ["admin", "guest"], "default": "guest"},
        "limit": {"type": "number", "default": 25},
        "user": {**user, "additionalProperties": False},
    }
    other = {"type": "object", "properties": {"other": {"type": "number"}}, "required": ["other"]}
    assert tools["list"]["output_schema"] == {
        "type": "object",
        "properties": {"users": {"type": "array", "items": user}, "next": {"type": "string"}, "at": {"type": "string", "format": "date-time"}, "others": {"type": "object", "additionalProperties": other}},
        "required": ["users", "at"],
    }
    jsonschema.validate(ok(worker.call("list"))["structured_content"], tools["list"]["output_schema"])
    assert tools["give"]["output_schema"]["required"] == ["text", "parts"]
    assert tools["say"]["output_schema"] is None


def test_an_unannotated_result_has_no_schema(with_compiler):
    _, tools = with_compiler.load("/** Gives. */\nexport function give(a: string) { return { a } }", "give.ts")
    assert tools["give"]["output_schema"] is None


def test_tags_within_a_line(shop):
    _, tools = shop.load("/** Adds. Mail to me@example.com. @param a One. @param b Two. */\nexport function add(a: number, b: number) {}", "add.ts")
    assert tools["add"]["description"] == "Adds. Mail to me@example.com."
    assert [part["description"] for part in tools["add"]["input_schema"]["properties"].values()] == ["One.", "Two."]


def test_only_documented_functions_are_tools(workshop):
    worker, tools = workshop.load(
        """
        /** Adds. */
        export function add(a, b) { return a + b }
        export function helper() {}
        /** A class is not a function. */
        export class Shop {}
        function hidden() {}
        """
    )
    assert set(tools) == {"add"}
    assert len(worker.ready["warnings"]) == 1
    assert "tools_here.mjs:4: 'helper' cannot be offered: it has no description" in worker.ready["warnings"][0]
    assert text_of(worker.call("add", {"a": 1, "b": 2})) == "3"


def test_functions_selects(workshop):
    _, tools = workshop.load("/** A. */\nexport function a() {}\n/** B. */\nexport function b() {}", functions=["b"])
    assert set(tools) == {"b"}


def test_a_default_export_has_its_own_name(workshop):
    _, tools = workshop.load("/** A. */\nexport default function fetchIt(a) { return a }")
    assert set(tools) == {"fetchIt"}


def test_a_default_export_without_a_name_has_that_of_its_file(shop):
    worker, tools = shop.load("/** Adds. */\nexport default async function (a: number, b: number) { return a + b }", "add_numbers.ts")
    assert set(tools) == {"add_numbers"}
    assert list(tools["add_numbers"]["input_schema"]["properties"]) == ["a", "b"]
    assert text_of(worker.call("add_numbers", {"a": 1, "b": 2})) == "3"


SIGNATURES = """
    type Status = "open" | "closed" | (string & {});
    interface Money { readonly amount: number; currency?: "EUR" | "USD" }
    interface Item extends Money { id: string; meta?: { [key: string]: unknown } }
    /** 1 */ export function unions(a: string | undefined, s: Status, u: -1 | 1, t: `x-${string}`, yes: true) {}
    /** 2 */ export const picks = (a: Partial<Money>, b: Pick<Item, "id">, c: Omit<Item, "meta" | "id">, d: Record<"a" | "b", number>) => 1;
    /** 3 */ export async function pattern({ a, b: { c } = { c: 1 }, ...rest }: { a: number; b?: { c: number }; x?: boolean }) {}
    /** 4 */ export function rest(...names: string[]) { return names }
    /** 5 */ export function tuple(callback?: (x: number) => void, pair?: [a: string, b?: number, ...rest: boolean[]]) {}
    /** 6 */ export function deep(a: { b: { c: readonly string[] } }[], o: object, any: any, u: URL) {}
"""
MONEY = {"amount": {"type": "number"}, "currency": {"type": "string", "enum": ["EUR", "USD"]}}


def test_more_types(shop):
    worker, tools = shop.load(SIGNATURES, "types.ts")
    found = {name: tool["input_schema"] for name, tool in tools.items()}
    unions = found["unions"]["properties"]
    assert (unions["a"], unions["t"], unions["yes"]) == ({"type": "string"}, {"type": "string"}, {"type": "boolean", "const": True})
    assert unions["s"] == {"anyOf": [{"type": "string", "enum": ["open", "closed"]}, {"type": "string"}]}
    assert sorted(unions["u"]["enum"]) == [-1, 1]
    assert set(found["unions"]["required"]) >= {"s", "u", "t", "yes"}
    picks = found["picks"]["properties"]
    assert picks["a"] == {"type": "object", "properties": MONEY, "additionalProperties": False}
    assert picks["b"] == {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"], "additionalProperties": False}
    assert (picks["c"]["properties"], picks["c"]["required"]) == (MONEY, ["amount"])
    assert picks["d"]["required"] == ["a", "b"]
    assert found["pattern"]["properties"]["b"]["default"] == {"c": 1}
    assert found["pattern"]["required"] == ["a"]
    assert found["rest"]["properties"] == {"names": {"type": "array", "items": {"type": "string"}}}
    assert "required" not in found["rest"]
    assert ok(worker.call("rest", {"names": ["a", "b"]}))["structured_content"] == ["a", "b"]
    assert list(found["tuple"]["properties"]) == ["pair"]
    assert found["tuple"]["properties"]["pair"] == {"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}], "items": {"type": "boolean"}, "minItems": 1}
    assert found["deep"]["properties"]["a"]["items"]["properties"]["b"]["properties"]["c"] == {"type": "array", "items": {"type": "string"}}
    assert found["deep"]["properties"]["u"] == {"type": "string", "format": "uri"}


def test_commonjs(workshop):
    worker, tools = workshop.load("/** Adds. */\nfunction add(a, b) { return a + b }\nmodule.exports = { add };", "tools.cjs")
    assert set(tools) == {"add"}
    assert text_of(worker.call("add", {"a": 1, "b": 2})) == "3"


def test_methods_of_an_object(shop):
    worker, tools = shop.load(
        """
        class Base {
          /** Says hello. */
          hello(name: string) { return `hello ${name} from ${this.constructor.name}` }
        }
        export class Shop extends Base {
          #items: string[];
          constructor(items: string[], private_: boolean) { super(); this.#items = items }
          /** Lists the items. */
          async list(limit = 2) { return this.#items.slice(0, limit) }
          _secret() {}
        }
        """,
        "shop.ts",
        object="Shop",
        init={"items": ["a", "b", "c"], "private_": True},
    )
    assert set(tools) == {"hello", "list"}
    assert tools["hello"]["input_schema"]["properties"] == {"name": {"type": "string"}}
    assert ok(worker.call("list", {}))["structured_content"] == ["a", "b"]
    assert text_of(worker.call("hello", {"name": "Ann"})) == "hello Ann from Shop"


def test_an_object_of_a_factory(shop):
    worker, tools = shop.load(
        """
        export async function makeShop(options: { name: string }) {
          return {
            /** The name. */
            name(suffix: string) { return options.name + suffix },
          };
        }
        """,
        "shop.ts",
        object="makeShop",
        init={"name": "x"},
    )
    assert set(tools) == {"name"}
    assert text_of(worker.call("name", {"suffix": "y"})) == "xy"


def test_errors_of_functions(workshop):
    worker, _ = workshop.load(
        """
        /** Fails. */
        export function fail(kind) {
          if (kind === "type") throw new TypeError("no text");
          if (kind === "string") throw "just text";
          if (kind === "cause") throw new Error("outer", { cause: new RangeError("inner") });
          if (kind === "undefined") throw undefined;
          if (kind === "evil") throw { get message() { throw 1 } };
          throw new Error("it is closed");
        }
        """
    )
    assert error_text(worker.call("fail", {})) == "Error: it is closed"
    assert "tools_here.mjs:9" in worker.tracebacks[-1]
    assert "toolcrib-worker" not in worker.tracebacks[-1]
    assert error_text(worker.call("fail", {"kind": "type"})) == "Error: TypeError: no text"
    assert error_text(worker.call("fail", {"kind": "string"})) == "Error: just text"
    assert error_text(worker.call("fail", {"kind": "cause"})) == "Error: outer"
    assert "caused by: RangeError: inner" in worker.tracebacks[-1]
    assert error_text(worker.call("fail", {"kind": "undefined"})) == "Error: undefined"
    assert error_text(worker.call("fail", {"kind": "evil"})) == "Error"


COMMON = '''
    /** A. */
    exports.a = function (x) { return x }
    /** B. */
    exports.b = async (x, y = 2) => y
    /** C. @param {number} x */
    module.exports.c = function named(x) { return x }
    /** D. */
    exports.d = x => x
'''
WHOLE = '''
    /** A. */
    function a(x) { return x }
    module.exports = { a,
      /** B. */
      b: async (x, y = 2) => y,
      /** C. @param {number} x */
      "c": function (x) { return x },
      /** D. */ d(x) { return x },
    }
'''
ARROWS = '''
    /** A. */
    export const a = x => x
    /** B. */
    export const b = async (x, y = 2) => y
    /** C. @param {number} x */
    export const c = async x => x
    /** D. */ export function d(x) { return x }
'''


@pytest.mark.parametrize("text, name", [(COMMON, "t.js"), (COMMON, "t.cjs"), (WHOLE, "t.js"), (ARROWS, "t.mjs")])
def test_functions_of_javascript_in_all_forms(text, name, workshop):
    worker, tools = workshop.load(text, name)
    assert {tool: (tools[tool]["description"], list(tools[tool]["input_schema"]["properties"])) for tool in sorted(tools)} == {
        "a": ("A.", ["x"]), "b": ("B.", ["x", "y"]), "c": ("C.", ["x"]), "d": ("D.", ["x"]),
    }  # fmt: skip
    assert tools["c"]["input_schema"]["properties"]["x"]["type"] == "number"
    assert [text_of(worker.call(tool, {"x": 1})) for tool in "abcd"] == ["1", "2", "1", "1"]


def test_methods_of_a_class_in_all_forms(workshop):
    _, tools = workshop.load("export class Shop { /** A. */ a(x) { return x }\n/** B. */ b = async (x) => x\n/** C. */\nc = x => x }", object="Shop")
    assert {name: (tool["description"], list(tool["input_schema"]["properties"])) for name, tool in tools.items()} == {"a": ("A.", ["x"]), "b": ("B.", ["x"]), "c": ("C.", ["x"])}


DEFAULTS = '''
    /** Tells what it gets. */
    export function tell(a = 60 * (5 + 1), b = ["x(1)"], now = Date.now(), day = new Date(0), pick = Math.random(), place = `${process.pid}`, list = [1].map((n) => n)) {
      return { a, b, isNow: now > 1e12, isDate: day instanceof Date, isPick: pick < 1, place: place === String(process.pid), list };
    }
'''


@pytest.mark.parametrize("packages", [None, "core"])
def test_a_default_that_is_computed_at_each_call(packages, node, make_workshop):
    worker, tools = make_workshop(node, packages).load(DEFAULTS)
    properties = tools["tell"]["input_schema"]["properties"]
    assert {name: schema["default"] for name, schema in properties.items() if "default" in schema} == {"a": 360, "b": ["x(1)"]}
    assert "required" not in tools["tell"]["input_schema"]
    answer = ok(worker.call("tell", {}))["structured_content"]
    assert answer == {"a": 360, "b": ["x(1)"], "isNow": True, "isDate": True, "isPick": True, "place": True, "list": [1]}


def test_this_is_not_a_parameter(newest_node, make_workshop):
    _, tools = make_workshop(newest_node).load("/** A. */\nexport function a(this: unknown, text: string) { return text }", "a.ts")
    assert list(tools["a"]["input_schema"]["properties"]) == ["text"]


def test_a_text_that_is_not_base64(workshop):
    worker, _ = workshop.load("/** Measures.\n * @param {Buffer} data */\nexport function measure(data) { return data.length }")
    assert worker.call("measure", {"data": "not base64!"})["violations"] == [{"pointer": "/data", "message": "must be bytes as a base64 text"}]
    assert text_of(worker.call("measure", {"data": "aGk_"})) == "3"


@pytest.mark.parametrize("packages", [None, "core"])
@pytest.mark.parametrize("note", ["", "\n * @param tree The tree."])
def test_a_type_that_contains_itself_as_the_only_parameter(packages, note, newest_node, make_workshop):
    text = f"interface Tree {{ name: string; parts?: Tree[] }}\n/** Counts.{note} */\nexport function count(tree: Tree): number {{ return 1 + (tree.parts ?? []).reduce((n, part) => n + count(part), 0) }}"
    worker, tools = make_workshop(newest_node, packages).load(text, "trees.ts")
    assert list(tools["count"]["input_schema"]["properties"]) == ["name", "parts"]
    assert text_of(worker.call("count", {"name": "a", "parts": [{"name": "b", "parts": [{"name": "c"}]}]})) == "3"


def test_other_texts_that_look_like_a_function(workshop):
    _, tools = workshop.load(
        '''
        // export function a(old) {}
        const text = "function a(first) {", more = `
        function a(second) {`, pattern = /["'`]/;
        /** Example:
         *     function a(third) {}
         */
        const other = 1;
        /** A. */
        export function a(x = ")", y = `}`) { return x }
        /** B. */
        function b_(x) { return x }
        export { b_ as b };
        /** C. */
        function c_(x) { return x }
        export const c = c_.bind(null);
        '''
    )
    assert {name: (tool["description"], list(tool["input_schema"]["properties"])) for name, tool in tools.items()} == {
        "a": ("A.", ["x", "y"]), "b": ("B.", ["x"]), "c": ("C.", ["x"]),
    }  # fmt: skip
