"""Calls: from the message of a call to the line that answers it."""

import inspect
import re
import threading
import time
import types

from .content import text_block
from .context import ToolContext
from .error_text import first_line_of, message_of
from .json_values import JSON_BOOLEANS, BadOutput, dump_json, lost_number_warnings, lost_numbers, quote, scan_json, write_json
from .locations import user_traceback
from .questions import OpenQuestions
from .results import NO_VALUE, extra_members
from .wire import to_bytes

MAX_TRACEBACK_CHARS = 8 << 10
MAX_EXCEPTION_CHARS = 1 << 20  # of an exception's text. The service redacts secrets before it shortens the text.
PLAIN_RESULT_TYPES = {str, int, float, bool, type(None), dict, list, tuple}  # types that are neither generators nor awaitable


class Call:
    """One call, from its message until its end."""

    __slots__ = ("wire", "id", "tool", "arguments", "context", "watched", "deadline", "has_ended", "cancelled", "loop", "asks", "_questions", "_signal", "_context")

    def __init__(self, message, tool, wire):
        self.wire = wire
        self.id, self.tool, self.arguments, self.watched = message["id"], tool, message["arguments"], message.get("watched", False)
        self.context = message.get("context") or {}
        left = message.get("deadline_ms")
        self.deadline = None if left is None else time.monotonic() + left / 1000
        self.has_ended = self.cancelled = False
        self.asks, self.loop = message.get("asks", False), None
        self._questions = self._signal = self._context = None

    @property
    def cancel_signal(self):
        if self._signal is None:
            self._signal = threading.Event()
        return self._signal

    def tool_context(self):
        if self._context is None:
            self._context = ToolContext(self)
        return self._context

    @property
    def questions(self):
        if self._questions is None:
            self._questions = OpenQuestions(self)
        return self._questions

    def tool_use(self):
        return self.tool_context().tool_use

    def progress(self, data):
        """Sends progress, if the call is watched and has not ended."""
        if not self.watched or self.has_ended:
            return
        try:
            line = f'{{"op":"progress","id":{self.id},"data":{dump_json(data)}}}'
        except BadOutput as bad:
            self.wire.write_log(f"{self.tool.name}: progress was dropped: {bad}")
            return
        if len(line) > self.wire.max_line:
            self.wire.write_log(f"{self.tool.name}: progress of {len(line)} characters was dropped: the limit is {self.wire.max_line}")
        elif not self.has_ended:
            self.wire.send(line)

    def end(self, line):
        """Sends the last line of the call."""
        self.has_ended = True
        self.wire.send(line)

    def result_line(self, value):
        """The lines for a result: its warnings, and the result, or the reason why it cannot be passed on."""
        try:
            lost = lost_numbers.numbers = []
            try:
                content, structured, is_error = self.tool.render(value)
            finally:
                lost_numbers.numbers = None
            members = extra_members(value) if type(value) is dict and ("result_as_answer" in value or "hint" in value) else ""
            not_cached = "" if self.is_cacheable(value) else ',"not_cached":true'
            start = f'{{"op":"result","id":{self.id},"content":{content},"structured_content":{structured}'
            line = f'{start},"is_error":{JSON_BOOLEANS[is_error]}{members}{not_cached}}}'
            limit = self.wire.max_line
            if len(line) > limit or (len(line) > limit // 4 and len(to_bytes(line)) > limit):
                raise BadOutput(f"the result is {len(to_bytes(line))} bytes long; the limit is {limit}")
            return warning_lines(self.id, lost_number_warnings(lost)) + line
        except BadOutput as bad:
            return bad_output_line(self.id, str(bad))
        except RecursionError:
            return bad_output_line(self.id, "the result refers to itself, or is nested too deeply to be written as JSON")
        except Exception as error:  # of a __str__ or model_dump that the tool has written
            self.wire.write_log(user_traceback(error))
            reason = f"{type(error).__name__}: {message_of(error)[:MAX_EXCEPTION_CHARS]}"
            return bad_output_line(self.id, f"the result cannot be passed on: {reason}")

    def is_cacheable(self, value):
        """Whether the condition of the tool permits the cache to store the result."""
        if self.tool.is_cacheable is None:
            return True
        try:
            return bool(self.tool.is_cacheable(self.arguments, value))
        except Exception as error:
            self.wire.write_log(f"{self.tool.name}: its cache function failed, so the result is not cached\n{user_traceback(error)}")
            return False

    def error_line(self, error):
        """The line for an exception, with its text for the model. The traceback goes to the log."""
        try:
            traceback = traceback_line(self.id, user_traceback(error))
            text = self.tool.format_error(error)
        except Exception:  # an exception whose text cannot be read
            traceback, text = "", f"Error: {type(error).__name__}"
        block = text_block(text[:MAX_EXCEPTION_CHARS])
        return f'{traceback}{{"op":"result","id":{self.id},"content":[{block}],"structured_content":null,"is_error":true}}'


def read_call(wire, line, tools):
    """(message, call) of a line. The call is None if the line was answered at once, or is not a call."""
    try:
        message = scan_json(line.decode(), 0)[0]
    except (ValueError, RecursionError, StopIteration) as error:  # e.g. an integer of thousands of digits, thousands of brackets
        found = re.match(rb'\{"op":"call","id":(\d+)', line)
        if found:
            wire.send(invalid_line(int(found[1]), [("", f"cannot be read: {first_line_of(error)}")]))
        else:
            wire.write_log(f"toolcrib worker: a line that cannot be read: {error}")
        return None, None
    if message["op"] != "call":
        return message, None
    tool = tools.get(message["tool"])
    if tool is None:
        wire.send(bad_output_line(message["id"], f"this worker has no tool '{message['tool']}'"))
        return None, None
    return message, Call(message, tool, wire)


class Yielded:
    """The values that a generator yields. They are progress. But after reports such as `{"progress": 1, "total": 2}`, a value of another kind may
    be the result alone, so it is progress only if a further value follows."""

    def __init__(self, call):
        self.call, self.last, self.held, self.has_reports = call, NO_VALUE, NO_VALUE, False

    def add(self, value):
        if self.held is not NO_VALUE:
            self.call.progress(self.held)
            self.held = NO_VALUE
        self.last = value
        is_report = type(value) is dict and type(value.get("progress")) in (int, float)
        self.has_reports |= is_report
        if self.has_reports and not is_report:
            self.held = value
        else:
            self.call.progress(value)


def exhaust_generator(generator, call):
    """The result of a generator: the value that it returns, or else the last one that it yields."""
    yielded = Yielded(call)
    try:
        while True:
            try:
                value = next(generator)
            except StopIteration as stop:
                return yielded.last if stop.value is None else stop.value
            yielded.add(value)
    finally:
        generator.close()


async def await_value(value, call):
    """The result of an awaitable, a generator or an async generator."""
    if isinstance(value, types.GeneratorType):
        return exhaust_generator(value, call)
    if inspect.isasyncgen(value):
        yielded = Yielded(call)
        try:
            async for item in value:
                yielded.add(item)
        finally:
            await value.aclose()
        return yielded.last
    if inspect.isawaitable(value):
        value = await value
        return await await_value(value, call) if type(value) not in PLAIN_RESULT_TYPES else value
    return value


def warning_lines(number, messages):
    return "".join(f'{{"op":"warning","id":{number},"message":{quote(message)}}}\n' for message in messages)


def traceback_line(number, text):
    """The line for the log. Of a long traceback it has the end, which names the error and its place."""
    if len(text) > MAX_TRACEBACK_CHARS:
        text = "…" + text[-MAX_TRACEBACK_CHARS:]
    return f'{{"op":"traceback","id":{number},"message":{quote(text)}}}\n'


def bad_output_line(number, message):
    return f'{{"op":"failed_call","id":{number},"kind":"bad_output","message":{quote(message)}}}'


def invalid_line(number, violations):
    items = [{"pointer": pointer, "message": message} for pointer, message in violations]
    return f'{{"op":"invalid","id":{number},"violations":{write_json(items)}}}'
