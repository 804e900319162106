"""Finding the tools of a module or of an object.

A framework's adapter is imported only when the module has a tool of that framework.
"""

import functools
import inspect
import keyword
import sys
import types

from .decorators import TOOL_ATTRIBUTE, Options
from .error_text import first_line_of
from .functions import Function
from .locations import format_location, object_location
from .schema.hints import UnsupportedHint
from .tools import check_tool
from .violations import pydantic_violations

STRANDS_TOOL = ("strands.types.tools", "AgentTool")
CREWAI_TOOL = ("crewai.tools.base_tool", "BaseTool")
LANGCHAIN_TOOL = ("langchain_core.tools.base", "BaseTool")


def imported_class(module, name):
    """The class of a framework, or () if the module has not imported the framework, and so has no tools of it."""
    return vars(sys.modules[module]).get(name, ()) if module in sys.modules else ()


def tool_factory(value):
    """A function that makes a Tool of this object; None if the object is not a tool."""
    if isinstance(value, (types.ModuleType, type)):
        return None
    options = getattr(value, TOOL_ATTRIBUTE, None) if isinstance(value, (types.FunctionType, types.MethodType, functools.partial)) else None
    if isinstance(options, Options):
        if options.framework == "strands":
            from .frameworks.strands import stub_tool

            return lambda: stub_tool(value, options)
        return lambda: Function(value, options).as_tool()
    if isinstance(value, imported_class(*STRANDS_TOOL)):
        from .frameworks.strands import installed_tool

        return lambda: installed_tool(value)
    if isinstance(value, imported_class(*CREWAI_TOOL)):
        from .frameworks.crewai import crewai_tool

        return lambda: crewai_tool(value)
    if isinstance(value, imported_class(*LANGCHAIN_TOOL)):
        from .frameworks.langchain import langchain_tool

        return lambda: langchain_tool(value)
    return None


def is_tool_class(value):
    """Whether this is a class of a framework whose instances are tools. An abstract class has none."""
    bases = [imported_class(*CREWAI_TOOL), imported_class(*LANGCHAIN_TOOL)]
    return (
        isinstance(value, type)
        and any(base and issubclass(value, base) and value is not base for base in bases)
        and not inspect.isabstract(value)
    )


class Problem:
    """The reason why a value is not offered as a tool, as a sentence, and its place. `error`: the exception, if there was one."""

    def __init__(self, name, message, file, line=None, error=None):
        self.name, self.message, self.file, self.line, self.error = name, message, file, line, error


class ToolFinder:
    """Collects the tools of a module or of an object, and the problems. `only`: the names that are wanted, or None for all."""

    def __init__(self, only):
        self.only = set(only) if only is not None else None
        self.tools, self.problems, self.seen = [], [], set()

    def add_tool(self, python_name, make, source):
        """Makes a tool. A failure is recorded as a problem with its place."""
        try:
            tool = make()
            tool.python_name = python_name
            check_tool(tool)
        except UnsupportedHint as bad:
            self.add_problem(python_name, str(bad), source)
        except Exception as error:
            self.add_problem(python_name, f"{type(error).__name__}: {first_line_of(error)}", source, error)
        else:
            self.tools.append(tool)

    def add_file_problem(self, name, reason, file):
        self.problems.append(Problem(name, f"{format_location(file, None)}: {reason}", file))

    def add_problem(self, name, reason, source, error=None):
        file, line = object_location(unwrap_function(source))
        message = f"{format_location(file, line)}: '{name}' cannot be offered: {reason}"
        self.problems.append(Problem(name, message, file, line, error))

    def add_values(self, names_and_values, module_name=None):
        """Adds the values that are tools. `module_name`: a class of another module is a tool only if `only` names it."""
        names_and_values = list(names_and_values)
        # A class with an instance in the module is not another tool.
        self.seen.update(id(type(value)) for _, value in names_and_values if is_tool_class(type(value)))
        for name, value in names_and_values:
            if id(value) in self.seen:
                continue  # the same tool under a second name
            make = tool_factory(value)
            if make:
                self.seen.add(id(value))
                self.add_tool(name, make, value)
            elif is_tool_class(value) and (value.__module__ == module_name or (self.only and name in self.only)):
                self.seen.add(id(value))
                self.add_instance(name, value)

    def add_instance(self, name, kind):
        """Makes a tool of a class without arguments. A class with arguments needs `object` and `init`."""
        try:
            instance = kind()
        except Exception as error:
            reason = "; ".join(f"{pointer[1:]}: {message}" for pointer, message in pydantic_violations(error) or []) or first_line_of(error)
            message = f"{kind.__name__}() needs arguments or fails ({reason}); name it as `object` and give them as `init`"
            self.add_problem(name, message, kind, error)
        else:
            self.add_tool(name, tool_factory(instance), kind)

    def selected_tools(self):
        """(the tools that `only` names, by their own names or their names in Python; the names without a tool)."""
        if self.only is None:
            return self.tools, []
        chosen = [tool for tool in self.tools if tool.name in self.only or tool.python_name in self.only]
        found = {tool.name for tool in chosen} | {tool.python_name for tool in chosen}
        return chosen, sorted(self.only - found)


def unwrap_function(source):
    """The function inside an object of a framework."""
    return getattr(source, "_tool_func", None) or getattr(source, "func", None) or source


def find_in_module(module, only, stem):
    """A ToolFinder with the tools of a module. `stem`: the name of its file, without the suffix."""
    finder = ToolFinder(only)
    finder.add_values(list(vars(module).items()), module.__name__)
    spec = vars(module).get("TOOL_SPEC")
    if spec and not finder.tools:
        name = spec.get("name") if isinstance(spec, dict) else None
        function = getattr(module, stem, None) or (getattr(module, name, None) if isinstance(name, str) else None)
        if function is None:
            other = f" or '{name}' (named like the tool)" if isinstance(name, str) and name not in ("", stem) else ""
            reason = f"there is a TOOL_SPEC, but no function '{stem}' (named like the file){other}"
            finder.add_file_problem(stem, reason, module.__file__)
        else:
            from .frameworks.tool_spec import spec_tool

            finder.add_tool(stem, lambda: spec_tool(module, spec, function), function)
    elif spec:
        finder.add_file_problem(None, "TOOL_SPEC is ignored, because there are decorated tools", module.__file__)
    add_undecorated_functions(finder, lambda name: getattr(module, name, None))
    return finder


def find_in_object(instance, only):
    """A ToolFinder with the tools of an object: the object itself, and its methods."""
    finder = ToolFinder(only)
    if tool_factory(instance):
        finder.add_tool(type(instance).__name__, tool_factory(instance), type(instance))
    names = {}  # in the order of definition, base classes first
    for kind in reversed(type(instance).__mro__):
        for name, raw in vars(kind).items():
            inner = getattr(raw, "__func__", raw)
            if tool_factory(inner) or tool_factory(raw):
                names[name] = True
    finder.add_values((name, bind_method(instance, name)) for name in names if getattr(type(instance), name, None) is not None)
    add_undecorated_functions(finder, lambda name: getattr(instance, name, None))
    return finder


def bind_method(instance, name):
    """The method of an object."""
    value = getattr(instance, name)
    inner = getattr(value, "__func__", None)
    if isinstance(value, types.MethodType) and not isinstance(inner, types.FunctionType) and tool_factory(inner):
        return inner.__get__(value.__self__, type(value.__self__))  # a classmethod around a decorated object, since 3.13
    return value


def classes_with_tools(module):
    """The names of the module's classes whose methods are tools."""
    return [
        name
        for name, kind in vars(module).items()
        if isinstance(kind, type)
        and kind.__module__ == module.__name__
        and any(tool_factory(getattr(raw, "__func__", raw)) or tool_factory(raw) for raw in vars(kind).values())
    ]


def add_undecorated_functions(finder, get_value):
    """Adds the functions without a decorator that the manifest names."""
    _, missing = finder.selected_tools()
    failed = {problem.name for problem in finder.problems}
    for name in missing:
        value = get_value(name) if name.isidentifier() and not keyword.iskeyword(name) else None
        if value is not None and name not in failed and callable(value) and not isinstance(value, type):
            finder.add_tool(name, lambda: Function(value, Options("function"), name).as_tool(), value)  # noqa: B023
