"""A controller with everything around it, for tests: caches, reflectors, a scripted backend, and a cluster.

A :class:`World` is one process: it can be stopped orderly, killed in the middle of anything, and followed by another
on the same cluster and the same storage. What it sends to the API server passes a :class:`Gate` that counts it and
breaks it on demand. The storage of its backend is a :class:`Storage` that outlives it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from prov_host.clock import Clock
from prov_host.controller import Controller, ControllerOptions, Metrics
from prov_host.controller.backend import Withdrawn
from prov_host.errors import ApiUnavailable
from prov_host.kube.api import CLAIMS, CLASSES, VOLUMES
from prov_host.kube.client import Client
from prov_host.kube.reflector import Reflector
from prov_host.kube.store import Store
from prov_host.kube.transport import Reply, Stream, Transport
from prov_host.model import (
    Claim,
    ObjectReference,
    Provisioned,
    ProvisionRequest,
    Record,
    Removed,
    StorageClass,
    Volume,
)

NAME = "foo.bar/baz"


class Call(msgspec.Struct, frozen=True):
    """One request that a controller sent."""

    method: str
    path: str
    body: Any = None

    @property
    def what(self) -> str:
        """``PATCH persistentvolumeclaims``."""
        parts = self.path.split("/")
        plural = next(p for p in parts if p in {"persistentvolumes", "persistentvolumeclaims", "storageclasses"})
        return f"{self.method} {plural}"


class Crash:
    """Counts the points a process passes, and stops it dead at one of them.

    Args:
        at: the number of the point, from 1; 0 never.
    """

    def __init__(self, at: int = 0) -> None:
        self.at = at
        self.passed: list[str] = []
        self.happened = asyncio.Event()

    async def point(self, name: str) -> None:
        """Pass a point, or never return."""
        if not self.happened.is_set():
            self.passed.append(name)
            if len(self.passed) == self.at:
                self.happened.set()
        if self.happened.is_set():
            await asyncio.get_running_loop().create_future()


class Gate:
    """A transport that counts what passes, and lets ``rule`` decide what becomes of it.

    ``rule(call)`` answers None (let it pass), an HTTP status (refuse it), ``"drop"`` (it never arrives) or ``"lose"``
    (it is carried out, the answer is lost).
    """

    def __init__(self, inner: Transport, crash: Crash) -> None:
        self._inner = inner
        self._crash = crash
        self.calls: list[Call] = []
        self.rule: Callable[[Call], int | str | None] | None = None

    def sent(self, what: str) -> list[Call]:
        """The calls so far that are, for example, ``POST persistentvolumes``."""
        return [call for call in self.calls if call.what == what]

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
        is_list = method == "GET" and path.endswith(("persistentvolumes", "persistentvolumeclaims", "storageclasses"))
        fate: int | str | None = None
        if not is_list:
            call = Call(method, path, msgspec.json.decode(body) if body else None)
            await self._crash.point(f"before {call.what}")
            self.calls.append(call)
            fate = self.rule(call) if self.rule else None
        if fate == "drop":
            raise ApiUnavailable(f"{method} {path}: connection refused")
        if isinstance(fate, int):
            reasons = {403: "Forbidden", 409: "Conflict", 422: "Invalid", 500: "InternalError"}
            status = {"kind": "Status", "code": fate, "reason": reasons.get(fate, ""), "message": "fake error"}
            return Reply(fate, msgspec.json.encode(status))
        reply = await self._inner.request(
            method, path, query=query, body=body, content_type=content_type, timeout=timeout
        )
        if not is_list:
            await self._crash.point(f"after {call.what}")
        if fate == "lose":
            raise ApiUnavailable(f"{method} {path}: the answer was lost")
        return reply

    def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, idle_timeout: float = 60.0
    ) -> AbstractAsyncContextManager[Stream]:
        return self._inner.stream(path, query=query, idle_timeout=idle_timeout)

    async def close(self) -> None:
        await self._inner.close()


class Storage:
    """What exists on a backend; outlives processes.

    Attributes:
        assets: volume name -> uid of the claim it was made for.
        made: volume names in the order in which assets were made.
        deleted: volume names in the order in which assets were deleted.
        archived: likewise archived.
    """

    def __init__(self) -> None:
        self.assets: dict[str, str] = {}
        self.made: list[str] = []
        self.deleted: list[str] = []
        self.archived: list[str] = []


class ScriptedBackend:
    """A backend on a :class:`Storage`, whose answers a test may replace.

    ``on_provision``, ``on_delete``, ``on_archive`` are called before anything is done, and may raise; what
    ``on_provision`` returns, if anything, is the answer. ``after_provision`` is called when the asset was made.
    """

    def __init__(self, storage: Storage | None = None, *, archive: bool = False, crash: Crash | None = None) -> None:
        self.storage = storage or Storage()
        self.crash = crash or Crash()
        self.plugin = "scripted"
        self.supports_archive = archive
        self.default_policy = "archive" if archive else "delete"
        self.calls: list[tuple[str, str]] = []
        self.requests: list[ProvisionRequest] = []
        self.records: list[Record] = []
        self.block = False
        self.qualifies: Callable[[Claim], bool | Awaitable[bool]] | None = None
        self.guards: Callable[[Volume], bool] | None = None
        self.on_provision: Callable[[ProvisionRequest], Provisioned | None] | None = None
        self.after_provision: Callable[[ProvisionRequest], None] | None = None
        self.on_delete: Callable[[Volume], Removed | None] | None = None
        self.on_archive: Callable[[Volume], Removed | None] | None = None
        self.gate: asyncio.Event | None = None  # hooks wait for it after they did their work
        self.turn: asyncio.Event | None = None  # delete and archive wait for it before they begin
        self.wakes: list[Callable[[str], None]] = []

    def count(self, hook: str) -> int:
        """How often a hook was called."""
        return sum(1 for called, _ in self.calls if called == hook)

    async def provision(self, request: ProvisionRequest, *, timeout: float | None = None) -> Provisioned:
        await self.crash.point("before provision")
        self.calls.append(("provision", request.pv_name))
        self.requests.append(request)
        answer = self.on_provision(request) if self.on_provision else None
        if answer is None:
            if request.pv_name not in self.storage.assets:
                self.storage.made.append(request.pv_name)
            self.storage.assets[request.pv_name] = request.claim.uid
            answer = self.answer(request)
        if self.gate:
            await self.gate.wait()
        await self.crash.point("after provision")
        if self.after_provision:
            self.after_provision(request)
        return answer

    @staticmethod
    def answer(request: ProvisionRequest) -> Provisioned:
        """What a successful provision returns."""
        return Provisioned(
            source={"nfs": {"server": "foo", "path": f"/{request.pv_name}", "readOnly": False}},
            record={"path": request.pv_name},
        )

    async def delete(
        self, volume: Volume, *, timeout: float | None = None, still: Callable[[], bool] | None = None
    ) -> Removed:
        return await self._remove("delete", volume, self.on_delete, self.storage.deleted, still)

    async def archive(
        self, volume: Volume, *, timeout: float | None = None, still: Callable[[], bool] | None = None
    ) -> Removed:
        return await self._remove("archive", volume, self.on_archive, self.storage.archived, still)

    async def _remove(
        self,
        hook: str,
        volume: Volume,
        script: Callable[[Volume], Removed | None] | None,
        ledger: list[str],
        still: Callable[[], bool] | None,
    ) -> Removed:
        await self.crash.point(f"before {hook}")
        if self.turn:
            await self.turn.wait()
        if still is not None and not still():
            raise Withdrawn(hook)
        self.calls.append((hook, volume.name))
        answer = script(volume) if script else None
        if answer is None:
            present = self.storage.assets.pop(volume.name, None) is not None
            if present:
                ledger.append(volume.name)
            answer = Removed(message=f"{hook}d /{volume.name}", already_absent=not present, path=f"/{volume.name}")
        if self.gate:
            await self.gate.wait()
        await self.crash.point(f"after {hook}")
        return answer

    async def should_provision(self, claim: Claim, storage_class: StorageClass) -> bool:
        self.calls.append(("should_provision", claim.key))
        answer = self.qualifies(claim) if self.qualifies else True
        return answer if isinstance(answer, bool) else await answer

    async def should_delete(self, volume: Volume) -> bool:
        return self.guards(volume) if self.guards else True

    async def supports_block(self) -> bool:
        return self.block

    def observe(self, record: Record) -> None:
        self.records.append(record)

    def on_return(self, wake: Callable[[str], None]) -> None:
        self.wakes.append(wake)


class Events:
    """Keeps events as ``(object name, type, reason, message)``."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str, str]] = []

    def emit(self, regarding: Claim | Volume | ObjectReference, *, type: str, reason: str, message: str) -> None:
        self.seen.append((regarding.name or "", type, reason, message))

    def of(self, name: str) -> list[str]:
        """The events of one object, as ``"Normal Reason"``."""
        return [f"{kind} {reason}" for about, kind, reason, _ in self.seen if about == name]

    def messages(self, reason: str) -> list[str]:
        """The messages of one reason."""
        return [message for _, _, seen, message in self.seen if seen == reason]


class World:
    """One process that serves :data:`NAME`.

    Args:
        transport: to the cluster.
        clock: time.
        backend: what provisions.
        options: the controller's.
        name: the provisioner name.
        seed: of its randomness.
        resync: seconds between replays; 0 is never.
    """

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        backend: ScriptedBackend,
        options: ControllerOptions | None = None,
        *,
        name: str = NAME,
        seed: int = 0,
        resync: float = 0.0,
    ) -> None:
        self.clock = clock
        self.backend = backend
        self.gate = Gate(transport, backend.crash)
        self.admin = Client(transport, clock)
        self.client = Client(self.gate, clock)
        self.events = Events()
        self.registry = CollectorRegistry()
        self.claims, self.volumes, self.classes = Store(CLAIMS), Store(VOLUMES), Store(CLASSES)
        rng = random.Random(seed)
        self._reflectors = [
            Reflector(self.client, store.resource, store, clock=clock, rng=rng, resync=resync)
            for store in (self.classes, self.volumes, self.claims)
        ]
        self.metrics = Metrics(self.registry, clock)
        self.controller = Controller(
            name,
            backend,
            api=self.client,
            claims=self.claims,
            volumes=self.volumes,
            classes=self.classes,
            events=self.events,
            clock=clock,
            rng=rng,
            metrics=self.metrics,
            options=options or ControllerOptions(),
        )
        self._tasks: list[asyncio.Task[None]] = []

    async def fill(self) -> None:
        """Start the reflectors and wait for the caches."""
        self._tasks = [asyncio.create_task(reflector.run()) for reflector in self._reflectors]
        for store in (self.classes, self.volumes, self.claims):
            await store.wait_synced()

    async def start(self) -> None:
        """Fill the caches and begin to work."""
        await self.fill()
        await self.controller.start()

    async def stop(self, limit: float = 30.0) -> bool:
        """Stop as on SIGTERM."""
        finished = await self.controller.drain(limit)
        await self._end()
        return finished

    async def kill(self) -> None:
        """Stop as on SIGKILL: nothing is finished, nothing is told."""
        for task in self.controller._workers:
            task.cancel()
        await asyncio.gather(*self.controller._workers, return_exceptions=True)
        self.controller.stop_intake()
        self.controller.claim_path.saver.queue.shut_down()
        self.controller.claim_path.intents.queue.shut_down()
        await self._end()

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def idle(self) -> bool:
        """Whether no work is at hand, apart from what waits for its time."""
        controller = self.controller
        path = controller.claim_path
        queues = (controller.claim_queue, controller.volume_queue, path.saver.queue, path.intents.queue)
        return not any(len(queue) or queue.working for queue in queues)

    def metric(self, series: str, /, **labels: str) -> dict[tuple[str, ...], float]:
        """The values of a metric's series by their label values, zero-valued ones left out."""
        found = {}
        for family in self.registry.collect():
            for sample in family.samples:
                if sample.name == series and sample.value and labels.items() <= sample.labels.items():
                    found[tuple(sample.labels.values())] = sample.value
        return found
