"""The start of a worker: it loads the module, sends the first message, and serves calls."""

import functools
import gc
import signal
import sys

from .decorators import install_decorators
from .frameworks.strands_stub import StrandsStub
from .importing import LoadFailure, run_user_code
from .json_values import dump_json, read_json
from .loading import load_tools
from .locations import user_traceback
from .wire import Wire


def main():
    """Runs the worker. The protocol is in the docstring of the package."""
    wire = Wire()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")
    wire.exit_with_the_service()
    line = wire.read_line()
    if not line.endswith(b"\n"):
        return
    request = read_json(line.decode())
    wire.max_line = request.get("max_result", wire.max_line)
    serve = import_role(request["role"])
    install_decorators()
    sys.meta_path.append(StrandsStub())
    try:
        tools, warnings = run_user_code(lambda: load_tools(request), f"loading {request['module']}", lambda file: True)
    except LoadFailure as failure:
        wire.send(dump_json(failed_message(failure)))
        exit_process(1)
    wire.send(dump_json(ready_message(tools, warnings)))
    gc.collect()
    gc.freeze()  # imported modules stay, so the collector can skip them
    serve(wire, {tool.name: tool for tool in tools})
    exit_process(0)


def import_role(role):
    """The function that serves calls. Imports only the code of this role, before the user's code can hide modules of Python."""
    if role == "sync":
        from .sync_role import serve_sync

        return serve_sync
    from .async_role import serve_async

    return functools.partial(serve_async, shared=role == "shared")


def ready_message(tools, warnings):
    return {
        "op": "ready",
        "python": ".".join(map(str, sys.version_info[:3])),
        "tools": [tool.as_json() for tool in tools],
        "warnings": warnings,
    }


def failed_message(failure):
    return {
        "op": "failed",
        "kind": failure.kind,
        "message": failure.message,
        "file": failure.file,
        "line": failure.line,
        "traceback": user_traceback(failure.error) if failure.error is not None else "",
    }


def exit_process(status):
    """Runs the atexit handlers, for at most 2 s. A thread of a tool that does not end must not delay the exit."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(2)
    sys.exit(status)
