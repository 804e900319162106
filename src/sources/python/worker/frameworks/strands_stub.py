"""A stub of Strands for interpreters that do not have it, so that files that need only its `@tool` can be loaded."""

import importlib.abc
import importlib.machinery
import sys

from ..context import ToolContext
from ..decorators import Options, mark_tool

STRANDS_TYPES = [
    "ToolUse",
    "ToolResult",
    "ToolResultContent",
    "ToolSpec",
    "Tool",
    "ToolChoice",
    "ToolConfig",
    "ToolGenerator",
    "JSONSchema",
    "ToolResultStatus",
]


def strands_tool(func=None, description=None, inputSchema=None, name=None, context=False):
    """`@tool` of Strands, with the options that work without Strands."""
    if isinstance(context, str):
        context = context.strip()
        if not context:
            raise ValueError("Context parameter name cannot be empty")
    options = Options("strands", name, description, inputSchema, None, context)
    return (lambda function: mark_tool(function, options)) if func is None else mark_tool(func, options)


class StrandsStub(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Provides the module `strands` if Python does not find the real one."""

    NAMES = {  # module: {name in the module: value}
        "strands": {"tool": strands_tool, "ToolContext": ToolContext},
        "strands.tools": {"tool": strands_tool},
        "strands.tools.decorator": {"tool": strands_tool},
        "strands.types": {},
        "strands.types.tools": {**dict.fromkeys(STRANDS_TYPES, dict), "ToolContext": ToolContext},
    }

    def find_spec(self, name, path=None, target=None):
        parent = sys.modules.get(name.rpartition(".")[0])
        if name not in self.NAMES or (parent is not None and getattr(parent, "__loader__", None) is not self):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        vars(module).update(self.NAMES[module.__name__])

        def missing(name):
            if name.startswith("__"):
                raise AttributeError(name)
            return Missing(name, (), {"__module__": module.__name__})

        module.__getattr__ = missing


class Missing(type):
    """A class of Strands that is not here. A file may import it beside `@tool`, and fails only where it uses the class."""

    def __call__(cls, *_, **__):
        raise ImportError(f"strands-agents is not installed for this interpreter, and {cls.__module__}.{cls.__name__} needs it")
