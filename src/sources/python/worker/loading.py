"""Loading: the tools of the module that the message `load` names."""

import inspect
import os
import sys
import types

from .finding import classes_with_tools, find_in_module, find_in_object
from .importing import LoadFailure, import_by_name, import_file, run_user_code
from .locations import format_location, object_location, own_code_test


def load_tools(request):
    """(tools, warnings) of a module. Raises LoadFailure."""
    target, only = request["module"], request.get("functions")
    sys.argv = [target]
    if request.get("is_file"):
        is_own, stem = own_code_test(os.path.dirname(target)), os.path.basename(target).split(".")[0]
        module = run_user_code(lambda: import_file(target, request.get("source")), f"importing {target}", is_own)
    else:
        stem = target.rpartition(".")[2]
        module, is_own = import_by_name(target)
    finder = find_in_object(make_object(module, request, is_own), only) if request.get("object") else None
    if finder is None:
        if request.get("init"):
            raise LoadFailure("invalid", f"`init` is set, but no `object` is named for {target}", getattr(module, "__file__", None))
        finder = find_in_module(module, only, stem)
    tools, missing = finder.selected_tools()
    raise_for_missing(finder, missing, module, request)
    tools, duplicate_warnings = remove_duplicates(tools)
    warnings = duplicate_warnings + [problem.message for problem in finder.problems if only is None or problem.name in only]
    if not tools:
        nothing = f"no tool was found in {target}; "
        for problem in finder.problems:
            raise LoadFailure("not_found", nothing + problem.message, problem.file, problem.line, problem.error)
        hint = object_hint(module, request) or "decorate functions with @tool, name them in `functions`, or write a TOOL_SPEC"
        raise LoadFailure("not_found", nothing + hint, getattr(module, "__file__", None))
    if all(tool.line and tool.file == tools[0].file for tool in tools):
        tools.sort(key=lambda tool: tool.line)
    warnings += [
        f"the tool `{tool.name}` needs the variable {variable['name']}, which is not set: add it to `env` of the module"
        for tool in tools
        for variable in tool.env
        if variable["required"] and variable["name"] not in os.environ
    ]
    return tools, warnings


def make_object(module, request, is_own):
    """The instance of the class that the manifest names as `object`."""
    name, init = request["object"], request.get("init") or {}
    kind = getattr(module, name, None)
    file = getattr(module, "__file__", None)
    if not isinstance(kind, type):
        classes = [key for key, value in vars(module).items() if isinstance(value, type) and value.__module__ == module.__name__]
        known = f"; it has {', '.join(classes)}" if classes else ""
        message = f"'{name}' in {file} is not a class" if kind is not None else f"there is no class '{name}' in {file}"
        raise LoadFailure("not_found", message + known, file)
    place = object_location(kind.__init__ if isinstance(kind.__init__, types.FunctionType) else kind)
    try:
        inspect.signature(kind).bind(**init)
    except ValueError:
        pass  # the signature cannot be read
    except TypeError as error:
        raise LoadFailure(
            "invalid",
            f"`init` does not fit {name}{inspect.signature(kind)}: {error} ({format_location(*place)})",
            place[0],
            place[1],
            error,
        ) from None
    return run_user_code(lambda: kind(**init), f"making {name}({', '.join(init)})", is_own)


def object_hint(module, request):
    """The key that is missing if a class of the module has the tools; else None."""
    classes = [] if request.get("object") else classes_with_tools(module)
    return f"its class {classes[0]} has tools: add `object: {classes[0]}`, and `init` if it takes arguments" if classes else None


def raise_for_missing(finder, missing, module, request):
    """Raises LoadFailure if names in `functions` have no tool."""
    if not missing:
        return
    for problem in finder.problems:
        if problem.name in missing:
            raise LoadFailure("invalid", problem.message, problem.file, problem.line, problem.error)
    there = [tool.name for tool in finder.tools] or [
        name for name, value in vars(module).items() if isinstance(value, types.FunctionType) and value.__module__ == module.__name__
    ]
    known = object_hint(module, request) or (f"it has {', '.join(there[:20])}" if there else "")
    message = f"there is no tool or function '{missing[0]}' in {request['module']}"
    raise LoadFailure("not_found", f"{message}; {known}" if known else message, getattr(module, "__file__", None))


def remove_duplicates(tools):
    """(one tool for each name, warnings). The last definition of a name is used, as with assignments in Python."""
    by_name, warnings = {}, []
    for tool in tools:
        if tool.name in by_name:
            first = by_name[tool.name]
            places = f"{format_location(first.file, first.line)}: '{tool.name}' is defined again at {format_location(tool.file, tool.line)}"
            warnings.append(f"{places}; the later definition is used")
        by_name[tool.name] = tool
    return list(by_name.values()), warnings
