"""Importing the user's module. An error becomes a LoadFailure with its place in the user's code."""

import importlib
import importlib.machinery
import importlib.util
import os
import re
import sys

from .error_text import first_line_of
from .locations import error_location, format_location


class LoadFailure(Exception):
    """The reason why a module cannot be loaded, for the message `failed`. `error`: the exception of the user's code, if any."""

    def __init__(self, kind, message, file=None, line=None, error=None):
        super().__init__(message)
        self.kind, self.message, self.file, self.line, self.error = kind, message, file, line, error


class UncachedLoader(importlib.machinery.SourceFileLoader):
    """Compiles the file, or `source` if it is set.

    It never uses a cached compilation, which may be stale if a file is saved twice within a second. With `source`, a
    replacement worker runs the text that the first worker ran, even if the file has changed.
    """

    def __init__(self, name, path, source):
        super().__init__(name, path)
        self.source = source

    def path_stats(self, path):
        raise OSError("not cached")

    def get_data(self, path):
        # Tools may also read other files of their folder by this method (pkgutil.get_data).
        return self.source.encode() if self.source is not None and path == self.path else super().get_data(path)


def import_file(path, source=None):
    """Imports a file. Modules in its folder can be imported as long as the worker lives."""
    if source is None and not os.path.isfile(path):
        raise LoadFailure("not_found", f"there is no file {path}", path)
    sys.path.insert(0, os.path.dirname(path))
    name = os.path.basename(path).split(".")[0]
    if name in sys.modules or name in getattr(sys, "stdlib_module_names", sys.builtin_module_names) or not name.isidentifier():
        name = "_toolcrib_" + re.sub(r"\W", "_", name)  # a file json.py must not replace the module of Python
    spec = importlib.util.spec_from_file_location(name, path, loader=UncachedLoader(name, path, source))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def import_by_name(target):
    """Imports a module by its name. Returns it, and a function that tells whether a file is part of its package."""
    root = target.partition(".")[0]

    def is_own(file):
        return f"{os.sep}{root}{os.sep}" in file or os.path.basename(file) == f"{root}.py"

    def import_target():
        try:
            return importlib.import_module(target)
        except ModuleNotFoundError as error:
            if not error.name or not f"{target}.".startswith(f"{error.name}."):
                raise  # the module exists; a module that it imports does not
            message = f"there is no module '{error.name}' for the interpreter {sys.executable}"
            raise LoadFailure("import", f"{message}; add its package to `requirements`, or give the path of a file", error=error) from None

    return run_user_code(import_target, f"importing {target}", is_own), is_own


def run_user_code(action, description, is_own):
    """Runs a part of the user's code at start. An exception becomes a LoadFailure with the place in the user's code."""
    try:
        return action()
    except LoadFailure:
        raise
    except BaseException as error:
        file, line = error_location(error, is_own)
        kind = "syntax" if isinstance(error, SyntaxError) else "import" if isinstance(error, ImportError) else "exception"
        reason = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else first_line_of(error)}"
        if isinstance(error, SystemExit):
            reason = f"it calls exit ({error.code})"
        raise LoadFailure(
            kind, f"{description} fails: {reason}" + (f" ({format_location(file, line)})" if file else ""), file, line, error
        ) from None
