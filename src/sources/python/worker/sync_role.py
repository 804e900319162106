"""Role sync: one call at a time, in the main thread."""

import asyncio
import contextvars
import inspect
import os
import sys
import types

from .calls import PLAIN_RESULT_TYPES, await_value, exhaust_generator, invalid_line, read_call
from .violations import InvalidValue


def serve_sync(wire, tools):
    """Answers calls until the input ends. `tools`: {name: Tool}."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    streams = [sys.stdout, sys.stderr]

    def run_call(call):
        try:
            value = call.tool.start(call.arguments, call)
            if type(value) not in PLAIN_RESULT_TYPES:
                if isinstance(value, types.GeneratorType):
                    value = exhaust_generator(value, call)
                elif inspect.isasyncgen(value) or inspect.isawaitable(value):
                    value = loop.run_until_complete(await_value(value, call))
        except InvalidValue as invalid:
            return invalid_line(call.id, invalid.violations)
        except BaseException as error:
            return call.error_line(error)
        return call.result_line(value)

    for line in iter(open(wire.source, "rb", buffering=1 << 16, closefd=False).readline, b""):
        _, call = read_call(wire, line, tools)
        if call is None:
            continue
        # A new context: the next call must not see the ContextVars of this one.
        call.end(contextvars.copy_context().run(run_call, call))
        restore_streams(wire, streams)
        if loop.is_closed():  # a tool has closed it
            loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)  # asyncio.run leaves none behind


def restore_streams(wire, streams):
    """Restores sys.stdout, sys.stderr and their descriptors. A call may have closed or replaced them."""
    try:
        os.get_inheritable(1)  # the cheapest way to learn whether a descriptor is open
        os.get_inheritable(2)
    except OSError:
        wire.redirect_standard_descriptors()
    if sys.stdout is not streams[0] or streams[0].closed or sys.stderr is not streams[1] or streams[1].closed:
        streams[:] = [stream if not stream.closed else open_stream(index + 1) for index, stream in enumerate(streams)]
        sys.stdout, sys.stderr = streams


def open_stream(descriptor):
    return open(descriptor, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
