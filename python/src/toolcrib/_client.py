"""Clients for the HTTP API of the service."""

from __future__ import annotations

import asyncio
import codecs
import json
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypedDict
from urllib.parse import quote

import httpx

if TYPE_CHECKING:
    from typing_extensions import Unpack

DEFAULT_URL = "http://localhost:7411"
# The service bounds every call itself, so the client waits for as long as the service works.
DEFAULT_TIMEOUT = httpx.Timeout(None, connect=10.0)
LINE_END = re.compile(r"\r\n|\n|\r")

HEADER_OPTIONS = {"idempotency_key": "idempotency-key", "traceparent": "traceparent", "prefer": "prefer"}
# The states of a call that has not ended.
OPEN_STATES = ("reserved", "running", "waiting")
# The seconds between two looks at a call that runs.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0

Json = dict[str, Any]
Problem = dict[str, Any]
Action = Literal["accept", "decline", "cancel"]


class ListOptions(TypedDict, total=False):
    """Options of a list of tools.

    toolset: only its tools. query: only tools that match these words, the best first, at most `limit`.
    detail: `brief` is less text. run_id: the run whose found tools are listed. discovery: `off` lists all tools.
    """

    toolset: str | None
    query: str | None
    limit: int | None
    detail: Literal["full", "brief"] | None
    run_id: str | None
    discovery: Literal["off"] | None


class InvokeOptions(TypedDict, total=False):
    """Options of one call. `timeout` is a number of seconds, or a text such as `500ms`."""

    tool_use_id: str | None
    run_id: str | None
    context: Mapping[str, Any] | None
    cache: Literal["use", "refresh", "bypass"] | None
    timeout: float | str | None
    page: Mapping[str, Any] | None
    idempotency_key: str | None
    traceparent: str | None
    prefer: str | None


class ToolAnswer(TypedDict):
    """The answer of a tool. A module that `toolcrib types` writes adds the type of `structured_content`."""

    invocation_id: str
    tool: str
    tool_use_id: str | None
    is_error: bool
    content: list[Json]
    result_as_answer: bool
    meta: Json


class CallsOptions(TypedDict, total=False):
    """Options of the calls in a model's message."""

    dialect: str | None
    run_id: str | None
    deny: list[str] | None
    context: Mapping[str, Any] | None
    cache: Literal["use", "refresh", "bypass"] | None
    timeout: float | str | None
    model: str | None
    parallel: int | None
    page: Mapping[str, Any] | None
    waiting: Literal["hold"] | None
    idempotency_key: str | None
    traceparent: str | None


class InvocationFilters(TypedDict, total=False):
    """Filters of recorded calls. `limit` is the size of a page."""

    tool: str | None
    caller: str | None
    run_id: str | None
    parent: str | None
    idempotency_key: str | None
    state: str | None
    kind: str | None
    q: str | None
    since: str | None
    until: str | None
    limit: int | None


class ApprovalFilters(TypedDict, total=False):
    """Filters of approvals. `limit` is the size of a page."""

    state: Literal["waiting", "approved", "denied", "expired", "withdrawn"] | None
    tool: str | None
    limit: int | None


LIST_FIELDS = tuple(ListOptions.__annotations__)
INVOKE_FIELDS = tuple(name for name in InvokeOptions.__annotations__ if name not in HEADER_OPTIONS)
CALLS_FIELDS = tuple(name for name in CallsOptions.__annotations__ if name not in HEADER_OPTIONS)


class ToolcribError(Exception):
    """The service refused or failed a request. The attributes are the fields of the problem (RFC 9457)."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.get("detail") or problem.get("title") or "the request failed")
        self.problem = problem
        self.kind: str = problem.get("kind") or "unknown"
        """One word for the cause, such as `invalid_arguments` or `usage_limit_reached`."""
        self.status: int | None = problem.get("status")
        self.retryable: bool = bool(problem.get("retryable"))
        """Whether the same request may succeed later."""
        self.retry_after_ms: int | None = problem.get("retry_after_ms")
        self.content: list[Json] = problem.get("content") or [{"type": "text", "text": str(self)}]
        """The problem in words for a model."""
        self.detail: str | None = problem.get("detail")
        self.invocation_id: str | None = problem.get("invocation_id")
        self.violations: list[Json] = problem.get("violations") or []
        self.did_you_mean: list[str] = problem.get("did_you_mean") or []


@dataclass(frozen=True)
class Event:
    """One event of a stream: `progress`, `waiting` or `result`, or an event of the service."""

    type: str
    data: Any
    id: str | None = None
    """The events of the service have one."""


class _Events:
    """Splits a stream into events, as the HTML standard defines server-sent events.

    `iter_lines` of httpx is no help: it also splits at signs such as U+2028, which JSON may contain.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._rest = ""
        self._type = ""
        self._id: str | None = None
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events that end in this chunk."""
        text = self._rest + self._decoder.decode(chunk)
        # A line may end with two signs, and only the first one may be there yet.
        whole, held = (text[:-1], "\r") if text.endswith("\r") else (text, "")
        *lines, rest = LINE_END.split(whole)
        self._rest = rest + held
        for line in lines:
            event = self._line(line)
            if event is not None:
                yield event

    def _line(self, line: str) -> Event | None:
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "event":
                self._type = value
            elif name == "id":
                self._id = value
            elif name == "data":
                self._data.append(value)
            return None
        event = Event(self._type or "message", json.loads("\n".join(self._data)), self._id) if self._data else None
        self._type, self._data = "", []
        return event


def _headers(key: str | None) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} if key else {}


def _checked(response: httpx.Response) -> Json:
    """The body of a successful response. Any other response raises."""
    if not response.is_success:
        raise _error(response)
    body: Json = response.json() if response.content else {}
    return body


def _error(response: httpx.Response) -> ToolcribError:
    try:
        problem = response.json()
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        detail = f"{response.url.host} answered {response.status_code}, which is not an answer of Toolcrib"
        problem = {"status": response.status_code, "detail": detail, "retryable": response.status_code in (502, 503, 504)}
    return ToolcribError(problem)


def _unreachable(error: httpx.TransportError, url: httpx.URL) -> ToolcribError:
    detail = f"no answer from {url}: {error or type(error).__name__}. Is the service running?"
    return ToolcribError({"kind": "unreachable", "detail": detail, "retryable": True})


def _options(options: Mapping[str, object], fields: tuple[str, ...]) -> tuple[Json, dict[str, str]]:
    """The options as fields of the body, and as headers. An unknown option is an error, so that a typing mistake is noticed."""
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if name not in fields and name not in HEADER_OPTIONS:
            raise TypeError(f"a call has no option {name!r}; there are {', '.join((*fields, *HEADER_OPTIONS))}")
    headers = {HEADER_OPTIONS[name]: str(given.pop(name)) for name in HEADER_OPTIONS if name in given}
    if isinstance(given.get("timeout"), (int, float)):
        given["timeout"] = f"{given['timeout']}s"
    return given, headers


def _list_query(format: str | None, tag: str | None, options: Mapping[str, object]) -> dict[str, Any]:
    for name in options:
        if name not in LIST_FIELDS:
            raise TypeError(f"a list has no option {name!r}; there are format, tag, {', '.join(LIST_FIELDS)}")
    return _given({"format": format, "tag": tag, **options})


def _invocation(arguments: Mapping[str, Any] | str | None, options: Mapping[str, object]) -> tuple[Json, dict[str, str]]:
    """The body and the headers of a call."""
    body, headers = _options(options, INVOKE_FIELDS)
    return {"arguments": {} if arguments is None else arguments, **body}, headers


def _message(message: Any, options: Mapping[str, object]) -> tuple[bytes, dict[str, str]]:
    """The body of `POST /calls` and its headers. Objects of provider libraries are turned into their JSON."""
    fields, headers = _options(options, CALLS_FIELDS)
    if hasattr(message, "model_dump_json"):
        message = json.loads(message.model_dump_json())
    elif hasattr(message, "to_dict"):
        message = message.to_dict()
    if isinstance(message, str):
        try:
            parsed = json.loads(message)
        except ValueError:
            parsed, text_type = {"text": message}, "text/plain"
        else:
            text_type = "application/json"
        if not fields:
            return message.encode(), {**headers, "content-type": text_type}
        message = parsed
    return json.dumps({"message": message, **fields} if fields else message).encode(), {**headers, "content-type": "application/json"}


def _path(*parts: str) -> str:
    return "/" + "/".join(quote(part, safe="") for part in parts)


def _given(values: Mapping[str, object]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _answer(action: str, content: Mapping[str, Any] | None, question: str | None) -> Json:
    return _given({"action": action, "content": content, "question": question})


class Client:
    """Calls the tools of a service.

    base_url: where the service listens. key: the caller's key, if the service has callers.
    """

    def __init__(self, base_url: str = DEFAULT_URL, key: str | None = None, *, http: httpx.Client | None = None) -> None:
        self._owned = http is None
        self._http = http or httpx.Client(timeout=DEFAULT_TIMEOUT)
        self._base = base_url.rstrip("/")
        self._key = key

    def _send(self, method: str, path: str, **options: Any) -> Json:
        headers = {**_headers(self._key), **options.pop("headers", {})}
        try:
            return _checked(self._http.request(method, self._base + path, headers=headers, **options))
        except httpx.TransportError as error:
            raise _unreachable(error, httpx.URL(self._base)) from error

    def _pages(self, path: str, name: str, filters: Mapping[str, object]) -> Iterator[Json]:
        cursor = None
        while True:
            page = self._send("GET", path, params=_given({**filters, "cursor": cursor}))
            yield from page[name]
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    def _stream(self, method: str, path: str, headers: dict[str, str], body: Json | None = None) -> Iterator[Event]:
        headers = {**headers, **_headers(self._key), "accept": "text/event-stream"}
        try:
            with self._http.stream(method, self._base + path, json=body, headers=headers) as response:
                if not response.is_success:
                    response.read()
                    raise _error(response)
                events = _Events()
                for chunk in response.iter_bytes():
                    for event in events.feed(chunk):
                        yield _settled(event)
        except httpx.TransportError as error:
            raise _unreachable(error, httpx.URL(self._base)) from error

    def tools(self, format: str | None = None, tag: str | None = None, **options: Unpack[ListOptions]) -> Any:
        """The tools of this caller. With `format`, such as `openai`, in the shape of that API."""
        listed = self._send("GET", "/tools", params=_list_query(format, tag, options))
        return listed["tools"] if format is None else listed

    def tool(self, name: str) -> Json:
        """One tool with its policy and usage."""
        return self._send("GET", _path("tools", name))

    def invoke(self, name: str, arguments: Mapping[str, Any] | str | None = None, **options: Unpack[InvokeOptions]) -> Json:
        """Calls a tool and returns the answer. A result with `is_error` is an answer too."""
        body, headers = _invocation(arguments, options)
        return self._send("POST", _path("tools", name, "invoke"), json=body, headers=headers)

    def validate(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> Json:
        """Checks arguments without calling the tool."""
        return self._send("POST", _path("tools", name, "validate"), json={"arguments": arguments or {}})

    def calls(self, message: Any, **options: Unpack[CallsOptions]) -> Json:
        """Executes the tool calls in a model's message. `messages` of the answer are to be appended.

        message: the provider's response as an object, as JSON, or as text.
        """
        body, headers = _message(message, options)
        return self._send("POST", "/calls", content=body, headers=headers)

    def stream(self, name: str, arguments: Mapping[str, Any] | str | None = None, **options: Unpack[InvokeOptions]) -> Iterator[Event]:
        """Calls a tool and yields its progress. The last event has the type `result` and holds the answer."""
        body, headers = _invocation(arguments, options)
        return self._stream("POST", _path("tools", name, "invoke"), headers, body)

    def invocations(self, **filters: Unpack[InvocationFilters]) -> Iterator[Json]:
        """The recorded calls, newest first."""
        return self._pages("/invocations", "invocations", filters)

    def invocation(self, invocation_id: str) -> Json:
        """One recorded call with its result."""
        return self._send("GET", _path("invocations", invocation_id))

    def wait(self, invocation_id: str) -> Json:
        """One recorded call with its result, when it has ended: for `prefer="respond-async"`, and for calls that wait."""
        pause = FIRST_PAUSE
        while (found := self.invocation(invocation_id))["state"] in OPEN_STATES:
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return found

    def cancel(self, invocation_id: str) -> Json:
        """Cancels a running call."""
        return self._send("DELETE", _path("invocations", invocation_id))

    def answer(self, invocation_id: str, content: Mapping[str, Any] | None = None, *, action: Action = "accept", question: str | None = None) -> Json:
        """Answers the question of a running call."""
        return self._send("POST", _path("invocations", invocation_id, "answer"), json=_answer(action, content, question))

    def approvals(self, **filters: Unpack[ApprovalFilters]) -> Iterator[Json]:
        """The calls that need or needed an approval, newest first. With `state="waiting"`, those that wait."""
        return self._pages("/approvals", "approvals", filters)

    def approve(self, invocation_id: str, note: str | None = None, arguments: Mapping[str, Any] | None = None) -> Json:
        """Lets a waiting call run, perhaps with other arguments."""
        return self._send("POST", _path("invocations", invocation_id, "approve"), json=_given({"note": note, "arguments": arguments}))

    def deny(self, invocation_id: str, note: str | None = None) -> Json:
        """Refuses a waiting call."""
        return self._send("POST", _path("invocations", invocation_id, "deny"), json=_given({"note": note}))

    def events(self, last_event_id: str | None = None) -> Iterator[Event]:
        """What happens in the service, until the connection ends. The id of the last event resumes the stream."""
        return self._stream("GET", "/events", _given({"last-event-id": last_event_id}))

    def enable(self, name: str) -> Json:
        """Switches a tool on."""
        return self._send("POST", _path("tools", name, "enable"))

    def disable(self, name: str) -> Json:
        """Switches a tool off."""
        return self._send("POST", _path("tools", name, "disable"))

    def sources(self) -> list[Json]:
        """The state of Python modules, MCP servers and OpenAPI documents."""
        sources: list[Json] = self._send("GET", "/sources")["sources"]
        return sources

    def usage(self) -> list[Json]:
        """Totals and limits for each tool and caller."""
        tools: list[Json] = self._send("GET", "/usage")["tools"]
        return tools

    def close(self) -> None:
        """Closes the connections."""
        if self._owned:
            self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _settled(event: Event) -> Event:
    """The event. A result that is a problem raises."""
    if event.type == "result" and "kind" in event.data and "is_error" not in event.data:
        raise ToolcribError(event.data)
    return event


class AsyncClient:
    """The same as `Client`, with `async` methods."""

    def __init__(self, base_url: str = DEFAULT_URL, key: str | None = None, *, http: httpx.AsyncClient | None = None) -> None:
        self._owned = http is None
        self._http = http or httpx.AsyncClient(timeout=DEFAULT_TIMEOUT)
        self._base = base_url.rstrip("/")
        self._key = key

    async def _send(self, method: str, path: str, **options: Any) -> Json:
        headers = {**_headers(self._key), **options.pop("headers", {})}
        try:
            return _checked(await self._http.request(method, self._base + path, headers=headers, **options))
        except httpx.TransportError as error:
            raise _unreachable(error, httpx.URL(self._base)) from error

    async def _pages(self, path: str, name: str, filters: Mapping[str, object]) -> AsyncIterator[Json]:
        cursor = None
        while True:
            page = await self._send("GET", path, params=_given({**filters, "cursor": cursor}))
            for row in page[name]:
                yield row
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    async def _stream(self, method: str, path: str, headers: dict[str, str], body: Json | None = None) -> AsyncIterator[Event]:
        headers = {**headers, **_headers(self._key), "accept": "text/event-stream"}
        try:
            async with self._http.stream(method, self._base + path, json=body, headers=headers) as response:
                if not response.is_success:
                    await response.aread()
                    raise _error(response)
                events = _Events()
                async for chunk in response.aiter_bytes():
                    for event in events.feed(chunk):
                        yield _settled(event)
        except httpx.TransportError as error:
            raise _unreachable(error, httpx.URL(self._base)) from error

    async def tools(self, format: str | None = None, tag: str | None = None, **options: Unpack[ListOptions]) -> Any:
        """The tools of this caller. With `format`, such as `openai`, in the shape of that API."""
        listed = await self._send("GET", "/tools", params=_list_query(format, tag, options))
        return listed["tools"] if format is None else listed

    async def tool(self, name: str) -> Json:
        """One tool with its policy and usage."""
        return await self._send("GET", _path("tools", name))

    async def invoke(self, name: str, arguments: Mapping[str, Any] | str | None = None, **options: Unpack[InvokeOptions]) -> Json:
        """Calls a tool and returns the answer. A result with `is_error` is an answer too."""
        body, headers = _invocation(arguments, options)
        return await self._send("POST", _path("tools", name, "invoke"), json=body, headers=headers)

    async def validate(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> Json:
        """Checks arguments without calling the tool."""
        return await self._send("POST", _path("tools", name, "validate"), json={"arguments": arguments or {}})

    async def calls(self, message: Any, **options: Unpack[CallsOptions]) -> Json:
        """Executes the tool calls in a model's message. `messages` of the answer are to be appended.

        message: the provider's response as an object, as JSON, or as text.
        """
        body, headers = _message(message, options)
        return await self._send("POST", "/calls", content=body, headers=headers)

    def stream(self, name: str, arguments: Mapping[str, Any] | str | None = None, **options: Unpack[InvokeOptions]) -> AsyncIterator[Event]:
        """Calls a tool and yields its progress. The last event has the type `result` and holds the answer."""
        body, headers = _invocation(arguments, options)
        return self._stream("POST", _path("tools", name, "invoke"), headers, body)

    def invocations(self, **filters: Unpack[InvocationFilters]) -> AsyncIterator[Json]:
        """The recorded calls, newest first."""
        return self._pages("/invocations", "invocations", filters)

    async def invocation(self, invocation_id: str) -> Json:
        """One recorded call with its result."""
        return await self._send("GET", _path("invocations", invocation_id))

    async def wait(self, invocation_id: str) -> Json:
        """One recorded call with its result, when it has ended: for `prefer="respond-async"`, and for calls that wait."""
        pause = FIRST_PAUSE
        while (found := await self.invocation(invocation_id))["state"] in OPEN_STATES:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return found

    async def cancel(self, invocation_id: str) -> Json:
        """Cancels a running call."""
        return await self._send("DELETE", _path("invocations", invocation_id))

    async def answer(self, invocation_id: str, content: Mapping[str, Any] | None = None, *, action: Action = "accept", question: str | None = None) -> Json:
        """Answers the question of a running call."""
        return await self._send("POST", _path("invocations", invocation_id, "answer"), json=_answer(action, content, question))

    def approvals(self, **filters: Unpack[ApprovalFilters]) -> AsyncIterator[Json]:
        """The calls that need or needed an approval, newest first. With `state="waiting"`, those that wait."""
        return self._pages("/approvals", "approvals", filters)

    async def approve(self, invocation_id: str, note: str | None = None, arguments: Mapping[str, Any] | None = None) -> Json:
        """Lets a waiting call run, perhaps with other arguments."""
        return await self._send("POST", _path("invocations", invocation_id, "approve"), json=_given({"note": note, "arguments": arguments}))

    async def deny(self, invocation_id: str, note: str | None = None) -> Json:
        """Refuses a waiting call."""
        return await self._send("POST", _path("invocations", invocation_id, "deny"), json=_given({"note": note}))

    def events(self, last_event_id: str | None = None) -> AsyncIterator[Event]:
        """What happens in the service, until the connection ends. The id of the last event resumes the stream."""
        return self._stream("GET", "/events", _given({"last-event-id": last_event_id}))

    async def enable(self, name: str) -> Json:
        """Switches a tool on."""
        return await self._send("POST", _path("tools", name, "enable"))

    async def disable(self, name: str) -> Json:
        """Switches a tool off."""
        return await self._send("POST", _path("tools", name, "disable"))

    async def sources(self) -> list[Json]:
        """The state of Python modules, MCP servers and OpenAPI documents."""
        sources: list[Json] = (await self._send("GET", "/sources"))["sources"]
        return sources

    async def usage(self) -> list[Json]:
        """Totals and limits for each tool and caller."""
        tools: list[Json] = (await self._send("GET", "/usage"))["tools"]
        return tools

    async def close(self) -> None:
        """Closes the connections."""
        if self._owned:
            await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()
