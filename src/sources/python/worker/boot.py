"""The program of `python -c`: reads the worker's sources from standard input, and runs them as a package in memory.

The input begins with a line with a number, and so many bytes of JSON: {path in this folder: source}. The messages of the
protocol follow on the same pipe.
"""

import sys

if sys.path[:1] == [""]:
    del sys.path[0]  # the working directory: a file there must not replace a module that is imported next

import importlib
import importlib.machinery
import json
import os

PACKAGE = "<toolcrib worker>"  # not an identifier, so that no module of a user has the same name


def read(count):
    """The next bytes. Ends the process at the end of the input."""
    data = b""
    while len(data) < count:
        piece = os.read(0, count - len(data))  # unbuffered: the next bytes are for the worker
        if not piece:
            os._exit(0)
        data += piece
    return data


def read_line():
    """The next line. Reads no byte after it."""
    line = b""
    while not line.endswith(b"\n"):
        line += read(1)
    return line


class MemoryImporter:
    """Imports the worker's modules from their sources. Python's own importers come first: they know none of these names."""

    def __init__(self, sources):
        self.paths = {self.module_name(path): path for path in sources}
        self.sources = sources

    def module_name(self, path):
        parts = path[: -len(".py")].split("/")
        return ".".join([PACKAGE, *(part for part in parts if part != "__init__")])

    def find_spec(self, name, path=None, target=None):
        if name not in self.paths:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=self.paths[name].endswith("__init__.py"))

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        path = self.paths[module.__name__]
        code = compile(self.sources.pop(path), "<toolcrib worker/" + path + ">", "exec")
        exec(code, vars(module))


sys.meta_path.append(MemoryImporter(json.loads(read(int(read_line())))))
importlib.import_module(PACKAGE + ".main").main()
