"""Roles async and shared: many calls at once, on one event loop in the main thread."""

import asyncio
import contextvars
import functools
import os
import types
from concurrent.futures.thread import ThreadPoolExecutor

from .calls import PLAIN_RESULT_TYPES, await_value, exhaust_generator, invalid_line, read_call
from .locations import user_traceback
from .violations import InvalidValue


def serve_async(wire, tools, shared=False):
    """Answers calls until the input ends. `tools`: {name: Tool}. `shared`: runs blocking functions too, on one other thread."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    tasks, pending = {}, [b""]
    thread = ThreadPoolExecutor(1, "toolcrib-blocking", set_event_loop) if shared else None

    async def start_call(call):
        if thread is None or call.tool.mode == "async":
            return call.tool.start(call.arguments, call)
        value, error = await loop.run_in_executor(thread, contextvars.copy_context().run, run_on_thread, call)
        if error is not None:
            raise error if isinstance(error, InvalidValue) else FunctionRaised(error)
        return value

    async def serve_call(call):
        try:
            value = await start_call(call)
            value = await await_value(value, call) if type(value) not in PLAIN_RESULT_TYPES else value
        except InvalidValue as invalid:
            call.end(invalid_line(call.id, invalid.violations))
        except FunctionRaised as raised:
            call.end(call.error_line(raised.error))
        except asyncio.CancelledError as error:
            if call.cancelled:
                raise
            call.end(call.error_line(error))
        except BaseException as error:  # also SystemExit, which would end the loop
            call.end(call.error_line(error))
        else:
            call.end(call.result_line(value))

    def on_done(call, task):
        tasks.pop(call.id, None)
        if not call.has_ended:  # cancelled, perhaps before it started
            call.end(f'{{"op":"cancelled","id":{call.id}}}')

    def handle_line(line):
        message, call = read_call(wire, line, tools)
        if call is not None:
            call.loop = loop
            task = loop.create_task(serve_call(call))
            tasks[call.id] = (task, call)
            task.add_done_callback(functools.partial(on_done, call))
        elif message is None or message["id"] not in tasks:
            return
        elif message["op"] == "answer":
            tasks[message["id"]][1].questions.answer(message)
        elif message["op"] == "cancel":
            task, call = tasks[message["id"]]
            call.cancelled = True
            call.cancel_signal.set()
            # A thread cannot be stopped. Its call ends when the function does, or with the process.
            if thread is None or call.tool.mode == "async":
                task.cancel()

    def on_readable():
        data = os.read(wire.source, 1 << 18)
        if not data:
            loop.remove_reader(wire.source)
            loop.stop()
            return
        *lines, rest = data.split(b"\n")
        if not lines:
            pending.append(rest)
            return
        lines[0] = b"".join(pending) + lines[0]
        pending[:] = [rest]
        for line in lines:
            handle_line(line)

    loop.add_reader(wire.source, on_readable)
    ended = False
    while not ended:
        try:
            loop.run_forever()
            ended = True
        except (SystemExit, KeyboardInterrupt) as error:  # in a task that a tool made
            wire.write_log(user_traceback(error))
    unfinished = [task for task, _ in tasks.values()]
    for task in unfinished:
        task.cancel()
    if unfinished:
        loop.run_until_complete(asyncio.wait(unfinished, timeout=1))


def set_event_loop():
    """Gives the current thread an event loop, because some libraries expect one."""
    asyncio.set_event_loop(asyncio.new_event_loop())


def run_on_thread(call):
    """Runs a blocking function on the thread of role shared. Returns (value, error)."""
    try:
        value = call.tool.start(call.arguments, call)
        return exhaust_generator(value, call) if isinstance(value, types.GeneratorType) else value, None
    except BaseException as error:  # also StopIteration and SystemExit, which no future passes on
        return None, error


class FunctionRaised(Exception):
    """The exception of a blocking function on its thread."""

    def __init__(self, error):
        self.error = error
