"""One provisioner name in this process: its Lease, its controller, its events, and whether we serve it."""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from prov_host.clock import Clock
from prov_host.controller import Controller
from prov_host.kube.election_thread import ElectionThread
from prov_host.kube.events import EventRecorder
from prov_host.kube.leases import Durations
from prov_host.kube.transport import Transport
from prov_host.routing import PluginBackend, describe_late
from prov_host.web import LeaseStatus, QueueStatus

__all__ = ["Election", "Serving", "own_namespace"]

logger = logging.getLogger(__name__)

_NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


class Election(msgspec.Struct, frozen=True, kw_only=True):
    """How Leases are held. Since 0.1.

    Attributes:
        connect: makes a transport for the election's own event loop.
        namespace: of the Leases.
        identity: who we are.
        durations: of the Leases.
        clock: time.
        rng: for jitter.
    """

    connect: Callable[[], Awaitable[Transport]]
    namespace: str
    identity: str
    durations: Durations
    clock: Clock
    rng: random.Random


class Serving:
    """One provisioner name.

    Args:
        name: the name.
        backend: the backend that owns it.
        controller: does the work while the name is ours.
        recorder: where its events go.
        call: has a function called on the event loop, from any thread.
        won: called on the event loop when the name is ours; starts the controller.
        lost: called with the reason, in the election's thread, when it is no more; ends the process.

    All methods are called on the event loop. Since 0.1.
    """

    def __init__(
        self,
        name: str,
        backend: PluginBackend,
        controller: Controller,
        recorder: EventRecorder,
        *,
        call: Callable[[Callable[[], object]], None],
        won: Callable[[Serving], None],
        lost: Callable[[str], None],
    ) -> None:
        self.name = name
        self.backend = backend
        self.controller = controller
        self.recorder = recorder
        self._call = call
        self._won = won
        self._lost = lost
        self._election: ElectionThread | None = None
        self.leading = False

    def take_part(self, election: Election | None) -> None:
        """Serve the name as soon as its Lease is ours; at once without an election."""
        if election is None:
            self._begin()
            return
        self._election = ElectionThread(
            election.connect,
            provisioner=self.name,
            namespace=election.namespace,
            identity=election.identity,
            durations=election.durations,
            clock=election.clock,
            rng=election.rng,
            on_started=lambda: self._call(self._begin),
            on_lost=self._end,
            events=self.recorder,
        )
        self._election.start()

    def _begin(self) -> None:
        self.leading = True
        self._won(self)

    def _end(self, reason: str) -> None:
        """Called in the election's thread: nothing may be waited for, another replica is about to begin."""
        self.leading = False
        self._lost(reason)

    async def release(self) -> None:
        """Hand the name over, unless something of ours may still be at work on its storage."""
        if self._election is None:
            return
        if self.leading and self.backend.active:
            late = "; ".join(describe_late(self.backend.late())) or "a hook still runs"
            logger.warning("the Lease of %s is left to run out, for its plugin is not done: %s", self.name, late)
            return
        await self._election.stop()
        self.leading = False

    def lease_status(self) -> LeaseStatus:
        """Who serves the name."""
        if self._election is None:
            detail, problem = "no leader election", ""
        else:
            problem = self._election.problem
            holder = self._election.holder
            detail = f"the Lease is held by {holder}" if holder else "nobody holds the Lease"
        return LeaseStatus(provisioner=self.name, leading=self.leading, detail=problem or detail, problem=problem)

    def queue_status(self) -> Iterable[QueueStatus]:
        """What waits to be worked on."""
        status = self.controller.status()
        for name, depth in (
            ("claims", status.queued_claims),
            ("volumes", status.queued_volumes),
            ("claims a plugin still works on", len(status.in_progress)),
            ("volumes that could not be saved yet", len(status.unsaved)),
            ("claims that cannot work as they are", status.infeasible),
        ):
            yield QueueStatus(provisioner=self.name, name=name, depth=depth)


def own_namespace() -> str:
    """The namespace of this pod, else ``default``. Since 0.1. Source: reference controller, "options"."""
    with contextlib.suppress(OSError, UnicodeDecodeError), open(_NAMESPACE_FILE, encoding="utf-8") as file:
        if found := file.read().strip():
            return found
    return "default"
