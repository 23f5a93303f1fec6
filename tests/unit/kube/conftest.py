"""A clock that only moves when a test says so, and an API server that is a script or a small model."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import heapq
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from prov_host.errors import ApiUnavailable
from prov_host.kube.transport import Reply


class ManualClock:
    """Time passes in `run_for` only; every coroutine that can run, runs before it does."""

    def __init__(self, *, wall: float = 1_800_000_000.0, rate: float = 1.0) -> None:
        self._time = 1000.0
        self._wall = wall
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._ids = itertools.count()

    def monotonic(self) -> float:
        return self._time

    def now(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(self._wall + self._time, dt.UTC)

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._time + seconds, next(self._ids), future))
        await future

    @property
    def waiting(self) -> int:
        """How many coroutines sleep."""
        return sum(not future.done() for _, _, future in self._sleepers)

    async def settle(self, turns: int = 30) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)

    def shift_wall(self, seconds: float) -> None:
        self._wall += seconds

    async def run_for(self, seconds: float) -> None:
        end = self._time + seconds
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                self._time = max(self._time, due)
                future.set_result(None)
                await self.settle()
        self._time = end


@dataclass
class Request:
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    content_type: str = ""
    timeout: float = 0.0


class ScriptedTransport:
    """Answers each request with the next of its answers: a Reply, an exception, or a function of the request."""

    def __init__(self, *answers: Any, default: Any = None) -> None:
        self.answers = list(answers)
        self.default = default
        self.requests: list[Request] = []
        self.streams: list[Any] = []
        self.closed = False

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float = 30.0,
    ) -> Reply:
        request = Request(method, path, query or {}, json.loads(body) if body else None, content_type, timeout)
        self.requests.append(request)
        answer = self.answers.pop(0) if self.answers else self.default
        if callable(answer):
            answer = answer(request)
        if isinstance(answer, Awaitable):
            answer = await answer
        if isinstance(answer, BaseException):
            raise answer
        assert answer is not None, f"an unexpected request: {request}"
        return answer

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, idle_timeout: float = 60.0
    ) -> AsyncIterator[ScriptedStream]:
        self.requests.append(Request("WATCH", path, query or {}, timeout=idle_timeout))
        answer = self.streams.pop(0) if self.streams else ApiUnavailable("refused")
        if isinstance(answer, BaseException):
            raise answer
        yield answer

    async def close(self) -> None:
        self.closed = True


class ScriptedStream:
    """Lines (dicts become JSON, exceptions are raised), then the end, or silence if `open_end`."""

    def __init__(self, *lines: Any, status: int = 200, open_end: bool = False, headers: Mapping[str, str] = {}) -> None:
        self.status = status
        self.headers = headers
        self._lines = lines
        self._open_end = open_end

    async def lines(self) -> AsyncIterator[bytes]:
        for line in self._lines:
            if isinstance(line, BaseException):
                raise line
            yield line if isinstance(line, bytes) else json.dumps(line).encode()
        if self._open_end:
            await asyncio.get_running_loop().create_future()


def reply(body: Any = None, status: int = 200, **headers: str) -> Reply:
    data = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
    return Reply(status, data, {key.replace("_", "-"): value for key, value in headers.items()})


def status_reply(code: int, reason: str = "", message: str = "no", **headers: str) -> Reply:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }
    return reply(body, code, **headers)


def claim(name: str, uid: str = "", version: str = "1", namespace: str = "default", **spec: Any) -> dict[str, Any]:
    return {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}", "resourceVersion": version},
        "spec": spec,
    }


def event(kind: str, obj: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": obj}


def bookmark(version: str, *, end: bool = False) -> dict[str, Any]:
    meta: dict[str, Any] = {"resourceVersion": version}
    if end:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    return event("BOOKMARK", {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": meta})


class Kit:
    """The helpers above under one name, since test modules cannot import this file."""

    ManualClock = ManualClock
    ScriptedTransport = ScriptedTransport
    ScriptedStream = ScriptedStream
    Request = Request
    reply = staticmethod(reply)
    status_reply = staticmethod(status_reply)
    claim = staticmethod(claim)
    event = staticmethod(event)
    bookmark = staticmethod(bookmark)


@pytest.fixture
def kit() -> type[Kit]:
    return Kit


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def background() -> AsyncIterator[Callable[[Any], asyncio.Task[Any]]]:
    """Starts tasks that are cancelled at the end of the test; one that failed fails the test."""
    tasks: list[asyncio.Task[Any]] = []

    def start(coroutine: Any) -> asyncio.Task[Any]:
        tasks.append(asyncio.get_running_loop().create_task(coroutine))
        return tasks[-1]

    yield start
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result


@pytest.fixture(scope="session")
def kit_() -> type[Kit]:
    """The same for property tests, which may not use function-scoped fixtures."""
    return Kit
