from harness import ok, text_of


def test_spec_decorated_and_plain_functions_are_called(workshop):
    worker, tools = workshop.load(
        """
        from toolcrib import tool

        @tool
        def add(a: int, b: int = 2) -> int:
            '''Adds.

            Args:
                a: The one.
            '''
            return a + b

        def greet(name: str):
            return f"Hello, {name}"
        """,
        functions=["add", "greet"],
    )
    assert tools["add"]["description"] == "Adds."
    assert tools["add"]["input_schema"] == {
        "type": "object",
        "properties": {"a": {"type": "integer", "description": "The one."}, "b": {"type": "integer", "default": 2}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert text_of(ok(worker.call("add", {"a": 1}))) == "3"
    assert text_of(ok(worker.call("greet", {"name": "Ada"}))) == "Hello, Ada"
