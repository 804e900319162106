"""Functions as Python describes them: their signatures, the names that they see, whether they are async."""

import functools
import importlib
import inspect
import re
import typing

from .context import ToolContext
from .schema.hints import UnsupportedHint, resolve_hint


def read_signature(function):
    """The signature of a function. A hint that cannot be evaluated stays a ForwardRef."""
    try:
        return inspect.signature(function)
    except NameError:  # 3.14 evaluates hints late: a name that only type checkers import
        library = importlib.import_module("annotationlib")
        return inspect.signature(function, annotation_format=library.Format.FORWARDREF)


def unwrap_partial(function):
    """The function inside functools.partial."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def is_async_function(function):
    """Whether a call returns a coroutine or an async generator."""
    function = unwrap_partial(function)
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def function_scope(function):
    """The names that the string hints of a function may use."""
    function = inspect.unwrap(unwrap_partial(function))
    function = getattr(function, "__func__", function)
    if not hasattr(function, "__globals__"):
        function = getattr(type(function), "__call__", function)
    scope = dict(getattr(function, "__globals__", {}))
    for name, cell in zip(getattr(getattr(function, "__code__", None), "co_freevars", ()), getattr(function, "__closure__", None) or ()):
        try:
            scope[name] = cell.cell_contents
        except ValueError:  # not yet assigned
            pass
    return scope


def is_context_hint(hint, scope):
    """Whether a parameter with this hint takes the ToolContext, ours or that of Strands."""
    if isinstance(hint, typing.ForwardRef):
        hint = hint.__forward_arg__
    if isinstance(hint, str):
        if re.search(r"\bToolContext\b", hint) and "ToolContext" not in scope:
            return True  # imported for type checkers only
        try:
            hint = resolve_hint(hint, scope)
        except UnsupportedHint:
            return False
    hints = [hint, typing.get_origin(hint), *typing.get_args(hint)]
    return any(
        isinstance(item, type) and item.__name__ == "ToolContext" and (item is ToolContext or item.__module__.startswith("strands."))
        for item in hints
    )
