"""Which objects of a module are tools, under which names, in which order."""

from harness import ok, text_of

DECORATED = """
from toolcrib import tool

@tool
def zebra(a: int, b: int = 2) -> int:
    '''Adds.'''
    return a + b

@tool(name="second", description="Said here.", result_as_answer=True)
async def named(x: str) -> str:
    '''Not said.'''
    return x

def plain(name: str):
    '''Greets.'''
    return f"Hello, {name}"

alias = zebra
"""


def test_decorated_functions_come_in_file_order(workshop):
    worker, tools = workshop.load(DECORATED)
    assert list(tools) == ["zebra", "second"]
    assert [tool["line"] for tool in tools.values()] == [4, 9]
    assert tools["second"]["description"] == "Said here."
    assert tools["second"]["mode"] == "async" and tools["zebra"]["mode"] == "sync"
    assert tools["second"]["result_as_answer"] is True
    assert {tool["framework"] for tool in tools.values()} == {"toolcrib"}
    assert worker.ready["warnings"] == []


def test_functions_setting_selects_by_either_name(workshop):
    worker, tools = workshop.load(DECORATED, functions=["plain", "named"])
    assert list(tools) == ["second", "plain"]
    assert tools["plain"]["framework"] == "function"
    assert text_of(ok(worker.call("plain", {"name": "Ada"}))) == "Hello, Ada"


SPEC = """
TOOL_SPEC = {"name": "weather_now", "description": "Weather.", "inputSchema": %s}
def %s(tool, **kwargs):
    return {"toolUseId": tool["toolUseId"], "status": "success", "content": [{"text": tool["input"]["city"] + str(sorted(kwargs))}]}
"""
SCHEMA = '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}'


def test_spec_function_is_named_like_file(workshop):
    for function, schema in (("weather", SCHEMA), ("weather", f'{{"json": {SCHEMA}}}'), ("weather_now", SCHEMA)):
        worker, tools = workshop.load(SPEC % (schema, function), name="weather.py")
        assert tools["weather_now"]["input_schema"]["required"] == ["city"]
        assert tools["weather_now"]["takes_context"] is True
        answer = worker.call("weather_now", {"city": "Oslo"}, {"tool_use_id": "tu-1", "state": {"tenant": "a", "tool": "no clash"}})
        assert text_of(ok(answer)) == "Oslo['tenant']"


def test_invalid_spec_is_a_failure(workshop):
    names = "no function 'weather' (named like the file) or 'weather_now' (named like the tool)"
    assert names in workshop.fail(SPEC % (SCHEMA, "other"), name="weather.py")["message"]
    one_name = workshop.fail("TOOL_SPEC = {'name': 'w', 'description': 'd', 'inputSchema': {}}\n", name="w.py")["message"]
    assert one_name.endswith("no function 'w' (named like the file)"), one_name
    assert "inputSchema" in workshop.fail("TOOL_SPEC = {'name': 'w', 'description': 'd'}\ndef w(tool): ...\n", name="w.py")["message"]
    assert "description" in workshop.fail("TOOL_SPEC = {'name': 'w', 'inputSchema': {}}\ndef w(tool): ...\n", name="w.py")["message"]


def test_decorated_tools_take_precedence_over_a_spec(workshop):
    worker, tools = workshop.load(DECORATED + SPEC % (SCHEMA, "tools_here"))
    assert list(tools) == ["zebra", "second"]
    assert "TOOL_SPEC is ignored" in worker.ready["warnings"][0]


def test_invalid_function_is_a_warning_or_failure(workshop):
    text = """
        from toolcrib import tool
        @tool
        def good(x: int): ...
        @tool
        def bad(x: complex): ...
        @tool(name="no spaces")
        def spaced(): ...
        """
    worker, tools = workshop.load(text)
    assert list(tools) == ["good"]
    hint, name = worker.ready["warnings"]
    assert "tools_here.py:5" in hint and "parameter 'x'" in hint and "complex" in hint
    assert "tools_here.py:7" in name and "'no spaces'" in name
    failed = workshop.fail(text, functions=["good", "bad"])
    assert (failed["kind"], failed["line"]) == ("invalid", 5)


def test_class_methods_share_one_instance(workshop):
    worker, tools = workshop.load(
        """
        from toolcrib import tool
        class Base:
            @tool
            def inherited(self) -> str:
                return self.name
        class Counter(Base):
            def __init__(self, name: str, start: int = 0):
                self.name, self.count = name, start
            @tool
            def add(self, n: int) -> int:
                self.count += n
                return self.count
            @staticmethod
            @tool
            def fixed(x: int) -> int:
                return x
            @tool
            @classmethod
            def whose(cls) -> str:
                return cls.__name__
            def plain(self, n: int) -> int:
                return self.count * n
            @property
            def trap(self):
                raise RuntimeError("a property is not looked at")
        """,
        object="Counter",
        init={"name": "c", "start": 5},
        functions=["inherited", "add", "fixed", "whose", "plain"],
    )
    assert list(tools) == ["inherited", "add", "fixed", "whose", "plain"]
    assert list(tools["add"]["input_schema"]["properties"]) == ["n"]
    assert text_of(worker.call("add", {"n": 2})) == "7"
    assert text_of(worker.call("add", {"n": 2})) == "9"
    assert text_of(worker.call("plain", {"n": 2})) == "18"
    assert text_of(worker.call("fixed", {"x": 3})) == "3"
    assert text_of(worker.call("whose")) == "Counter"
    assert text_of(worker.call("inherited")) == "c"


def test_reexported_tools_are_found_and_last_wins(workshop):
    workshop.write(DECORATED, "library.py")
    worker, tools = workshop.load("from library import zebra\nfrom toolcrib import tool\n@tool(name='zebra')\ndef mine(): return 'mine'\n")
    assert list(tools) == ["zebra"]
    assert text_of(worker.call("zebra")) == "mine"
    assert "defined again" in worker.ready["warnings"][0]


def test_callable_objects_are_tools(workshop):
    worker, tools = workshop.load(
        """
        import functools
        def power(base: int, exponent: int) -> int:
            return base ** exponent
        square = functools.partial(power, exponent=2)
        class Greeter:
            def __call__(self, name: str) -> str:
                return "Hello, " + name
        greet = Greeter()
        """,
        functions=["square", "greet"],
    )
    assert text_of(worker.call("square", {"base": 3})) == "9"
    assert text_of(worker.call("greet", {"name": "Ada"})) == "Hello, Ada"
