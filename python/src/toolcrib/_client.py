"""Clients for the HTTP API of the service."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import quote

import httpx

DEFAULT_URL = "http://localhost:7411"
# The service bounds every call itself, so the client waits for as long as the service works.
DEFAULT_TIMEOUT = httpx.Timeout(None, connect=10.0)
LINE_END = re.compile(r"\r\n|\n|\r")

Json = dict[str, Any]
Problem = dict[str, Any]


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
    """One event of a stream: `progress`, `waiting` or `result`."""

    type: str
    data: Any


class _Events:
    """Splits a stream into events, as the HTML standard defines server-sent events.

    `iter_lines` of httpx is no help: it also splits at signs such as U+2028, which JSON may contain.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._rest = ""
        self._type = ""
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
            elif name == "data":
                self._data.append(value)
            return None
        event = Event(self._type or "message", json.loads("\n".join(self._data))) if self._data else None
        self._type, self._data = "", []
        return event


def _headers(key: str | None) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} if key else {}


def _checked(response: httpx.Response) -> Any:
    """The body of a successful response. Any other response raises."""
    if response.is_success:
        return response.json() if response.content else None
    raise _error(response)


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


def _invocation(arguments: Mapping[str, Any] | str | None, options: dict[str, Any]) -> tuple[Json, dict[str, str]]:
    """The body and the headers of a call."""
    headers = {
        name: value
        for name, value in [
            ("idempotency-key", options.pop("idempotency_key", None)),
            ("traceparent", options.pop("traceparent", None)),
            ("prefer", options.pop("prefer", None)),
        ]
        if value is not None
    }
    known = ("tool_use_id", "run_id", "context", "cache", "timeout", "page")
    for name in options:
        if name not in known:
            raise TypeError(f"a call has no option {name!r}; there are {', '.join((*known, 'idempotency_key', 'traceparent', 'prefer'))}")
    body = {name: value for name, value in options.items() if value is not None}
    if isinstance(body.get("timeout"), (int, float)):
        body["timeout"] = f"{body['timeout']}s"
    return {"arguments": {} if arguments is None else arguments, **body}, headers


def _message(message: Any, options: dict[str, Any]) -> tuple[bytes, str]:
    """The body of `POST /calls` and its media type. Objects of provider libraries are turned into their JSON."""
    if hasattr(message, "model_dump_json"):
        message = json.loads(message.model_dump_json())
    elif hasattr(message, "to_dict"):
        message = message.to_dict()
    options = {name: value for name, value in options.items() if value is not None}
    if not options:
        if isinstance(message, str):
            try:
                json.loads(message)
            except ValueError:
                return message.encode(), "text/plain"
            return message.encode(), "application/json"
        return json.dumps(message).encode(), "application/json"
    if isinstance(message, str):
        try:
            message = json.loads(message)
        except ValueError:
            message = {"text": message}
    return json.dumps({"message": message, **options}).encode(), "application/json"


def _path(*parts: str) -> str:
    return "/" + "/".join(quote(part, safe="") for part in parts)


def _query(filters: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in filters.items() if value is not None}


class Client:
    """Calls the tools of a service.

    base_url: where the service listens. key: the caller's key, if the service has callers.
    """

    def __init__(self, base_url: str = DEFAULT_URL, key: str | None = None, *, http: httpx.Client | None = None) -> None:
        self._owned = http is None
        self._http = http or httpx.Client(timeout=DEFAULT_TIMEOUT)
        self._base = base_url.rstrip("/")
        self._key = key

    def _send(self, method: str, path: str, **options: Any) -> Any:
        headers = {**_headers(self._key), **options.pop("headers", {})}
        try:
            return _checked(self._http.request(method, self._base + path, headers=headers, **options))
        except httpx.TransportError as error:
            raise _unreachable(error, httpx.URL(self._base)) from error

    def tools(self, format: str | None = None, tag: str | None = None) -> Any:
        """The tools of this caller. With `format`, such as `openai`, in the shape of that API."""
        listed = self._send("GET", "/tools", params=_query({"format": format, "tag": tag}))
        return listed["tools"] if format is None else listed

    def tool(self, name: str) -> Json:
        """One tool with its policy and usage."""
        found: Json = self._send("GET", _path("tools", name))
        return found

    def invoke(self, name: str, arguments: Mapping[str, Any] | str | None = None, **options: Any) -> Json:
        """Calls a tool and returns the answer. A result with `is_error` is an answer too.

        Options: tool_use_id, run_id, context, cache, timeout, page, idempotency_key, traceparent, prefer.
        """
        body, headers = _invocation(arguments, options)
        answer: Json = self._send("POST", _path("tools", name, "invoke"), json=body, headers=headers)
        return answer

    def validate(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> Json:
        """Checks arguments without calling the tool."""
        checked: Json = self._send("POST", _path("tools", name, "validate"), json={"arguments": arguments or {}})
        return checked

    def calls(self, message: Any, **options: Any) -> Json:
        """Executes the tool calls in a model's message. `messages` of the answer are to be appended.

        message: the provider's response as an object, as JSON, or as text. Options: run_id, deny, context, cache, timeout,
        parallel, dialect.
        """
        body, media_type = _message(message, options)
        answer: Json = self._send("POST", "/calls", content=body, headers={"content-type": media_type})
        return answer

    def stream(self, name: str, arguments: Mapping[str, Any] | str | None = None, **options: Any) -> Iterator[Event]:
        """Calls a tool and yields its progress. The last event has the type `result` and holds the answer."""
        body, headers = _invocation(arguments, options)
        headers |= {**_headers(self._key), "accept": "text/event-stream"}
        url = self._base + _path("tools", name, "invoke")
        try:
            with self._http.stream("POST", url, json=body, headers=headers) as response:
                if not response.is_success:
                    response.read()
                    raise _error(response)
                events = _Events()
                for chunk in response.iter_bytes():
                    for event in events.feed(chunk):
                        yield _settled(event)
        except httpx.TransportError as error:
            raise _unreachable(error, httpx.URL(self._base)) from error

    def invocations(self, **filters: Any) -> Iterator[Json]:
        """The recorded calls, newest first. Filters: tool, caller, run_id, state, since. `limit` is the size of a page."""
        cursor = None
        while True:
            page = self._send("GET", "/invocations", params=_query({**filters, "cursor": cursor}))
            yield from page["invocations"]
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    def invocation(self, invocation_id: str) -> Json:
        """One recorded call with its result."""
        found: Json = self._send("GET", _path("invocations", invocation_id))
        return found

    def cancel(self, invocation_id: str) -> Any:
        """Cancels a running call."""
        return self._send("DELETE", _path("invocations", invocation_id))

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

    async def _send(self, method: str, path: str, **options: Any) -> Any:
        headers = {**_headers(self._key), **options.pop("headers", {})}
        try:
            return _checked(await self._http.request(method, self._base + path, headers=headers, **options))
        except httpx.TransportError as error:
            raise _unreachable(error, httpx.URL(self._base)) from error

    async def tools(self, format: str | None = None, tag: str | None = None) -> Any:
        """The tools of this caller. With `format`, such as `openai`, in the shape of that API."""
        listed = await self._send("GET", "/tools", params=_query({"format": format, "tag": tag}))
        return listed["tools"] if format is None else listed

    async def tool(self, name: str) -> Json:
        """One tool with its policy and usage."""
        found: Json = await self._send("GET", _path("tools", name))
        return found

    async def invoke(self, name: str, arguments: Mapping[str, Any] | str | None = None, **options: Any) -> Json:
        """Calls a tool and returns the answer. Options as for `Client.invoke`."""
        body, headers = _invocation(arguments, options)
        answer: Json = await self._send("POST", _path("tools", name, "invoke"), json=body, headers=headers)
        return answer

    async def validate(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> Json:
        """Checks arguments without calling the tool."""
        checked: Json = await self._send("POST", _path("tools", name, "validate"), json={"arguments": arguments or {}})
        return checked

    async def calls(self, message: Any, **options: Any) -> Json:
        """Executes the tool calls in a model's message. Options as for `Client.calls`."""
        body, media_type = _message(message, options)
        answer: Json = await self._send("POST", "/calls", content=body, headers={"content-type": media_type})
        return answer

    async def stream(self, name: str, arguments: Mapping[str, Any] | str | None = None, **options: Any) -> AsyncIterator[Event]:
        """Calls a tool and yields its progress. The last event has the type `result` and holds the answer."""
        body, headers = _invocation(arguments, options)
        headers |= {**_headers(self._key), "accept": "text/event-stream"}
        url = self._base + _path("tools", name, "invoke")
        try:
            async with self._http.stream("POST", url, json=body, headers=headers) as response:
                if not response.is_success:
                    await response.aread()
                    raise _error(response)
                events = _Events()
                async for chunk in response.aiter_bytes():
                    for event in events.feed(chunk):
                        yield _settled(event)
        except httpx.TransportError as error:
            raise _unreachable(error, httpx.URL(self._base)) from error

    async def invocations(self, **filters: Any) -> AsyncIterator[Json]:
        """The recorded calls, newest first. Filters as for `Client.invocations`."""
        cursor = None
        while True:
            page = await self._send("GET", "/invocations", params=_query({**filters, "cursor": cursor}))
            for row in page["invocations"]:
                yield row
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    async def invocation(self, invocation_id: str) -> Json:
        """One recorded call with its result."""
        found: Json = await self._send("GET", _path("invocations", invocation_id))
        return found

    async def cancel(self, invocation_id: str) -> Any:
        """Cancels a running call."""
        return await self._send("DELETE", _path("invocations", invocation_id))

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
