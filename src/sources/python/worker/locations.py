"""Places in source files: where a function is defined, and where in the user's code an error was raised."""

import inspect
import os
import sysconfig
import traceback

from .signatures import unwrap_partial

WORKER_FILES = "<toolcrib worker"  # how the names of the worker's own files begin in tracebacks


def object_location(source):
    """(file, line) where a function or class is defined; None if unknown."""
    try:
        source = inspect.unwrap(unwrap_partial(source)) if callable(source) else source
        code = getattr(getattr(source, "__func__", source), "__code__", None)
        if code is not None:
            return code.co_filename, code.co_firstlineno
        if not isinstance(source, type):
            source = type(source)
        return inspect.getsourcefile(source), inspect.getsourcelines(source)[1]
    except (TypeError, OSError, ValueError):
        return None, None


def format_location(file, line):
    return f"{file}:{line}" if file and line else str(file or "?")


def error_location(error, is_own):
    """The innermost place in the user's own code, else the innermost in a file."""
    if isinstance(error, SyntaxError) and error.filename and os.path.isfile(error.filename):
        return error.filename, error.lineno
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    own = [frame for frame in frames if is_own(frame[0])]
    return (own or frames or [(None, None)])[-1]


def own_code_test(folder):
    """A function that tells whether a file is the user's: in the folder, and not in a library that is installed there."""
    folder = os.path.join(os.path.realpath(folder), "")
    libraries = [os.path.join(os.path.realpath(path), "") for path in sysconfig.get_paths().values()]
    # A folder within a library is the user's own nevertheless.
    libraries = [path for path in libraries if not folder.startswith(path)]

    def is_own(file):
        file = os.path.realpath(file)
        return file.startswith(folder) and "site-packages" not in file[len(folder) :] and not file.startswith(tuple(libraries))

    return is_own


def user_traceback(error):
    """The traceback from the user's code on, without the frames of the worker, the import system and the event loop before it."""
    frames = error.__traceback__
    not_the_user = (WORKER_FILES, "<frozen importlib", os.path.join(os.path.dirname(os.__file__), "asyncio", ""))
    while frames is not None and frames.tb_next is not None and frames.tb_frame.f_code.co_filename.startswith(not_the_user):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))
