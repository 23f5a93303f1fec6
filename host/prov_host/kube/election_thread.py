"""An election in a thread with an event loop and connections of its own.

Neither a burst of events to decode on the host's loop nor a busy plugin can make it late, short of something that keeps
the interpreter's lock for ten seconds. And when the lease is lost, whoever has to know is told in this thread, even if
the host's loop hangs.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import random
import threading
from collections.abc import Awaitable, Callable

from prov_host.clock import Clock
from prov_host.errors import ProvHostError
from prov_host.kube.api import EventSink
from prov_host.kube.client import Client
from prov_host.kube.election import Elector
from prov_host.kube.leases import Durations, EndpointsLock, lease_name
from prov_host.kube.transport import Transport
from prov_host.kube.waiting import within
from prov_host.starting import start_thread

__all__ = ["ElectionThread"]

logger = logging.getLogger(__name__)


class ElectionThread:
    """One election in a thread with an event loop and a transport of its own. Since 0.1.

    Args:
        connect: makes the transport, on the thread's loop; it is closed at the end.
        honour_endpoints: wait while an older provisioner holds its Endpoints lock of that name.
        provisioner: as for :class:`Elector`, like all of the following.
        namespace: of the Lease.
        identity: who we are.
        durations: validated here.
        clock: the host's clock.
        rng: for jitter; only its seed is taken, the thread has a generator of its own.
        on_started: called in the election's thread; must not block.
        on_lost: called in the election's thread, at once; it may end the process. Also called, with the reason, if the
            election ends for any other reason but :meth:`stop`.
        events: where its events go, or None.

    Raises:
        ConfigurationError: the durations or the name cannot work.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Transport]],
        *,
        provisioner: str,
        namespace: str,
        identity: str,
        durations: Durations,
        clock: Clock,
        rng: random.Random,
        on_started: Callable[[], None],
        on_lost: Callable[[str], None],
        events: EventSink | None = None,
        honour_endpoints: bool = True,
    ) -> None:
        durations.check()
        self._connect = connect
        self._name = lease_name(provisioner)
        self._provisioner = provisioner
        self._namespace = namespace
        self._identity = identity
        self._durations = durations
        self._clock = clock
        self._rng = random.Random(rng.random())  # noqa: S311 - jitter
        self._on_started = on_started
        self._on_lost = on_lost
        self._events = events
        self._honour_endpoints = honour_endpoints
        self._elector: Elector | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._stopping = False
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._ended.set_running_or_notify_cancel()  # a stop that gives up waiting must not cancel it
        # A daemon, so that it cannot keep a process alive that has decided to end.
        self._thread = threading.Thread(target=self._run, name=f"lease {self._name}", daemon=True)

    @property
    def leading(self) -> bool:
        """See :attr:`Elector.leading`. Callable from any thread."""
        return self._elector is not None and self._elector.leading

    @property
    def holder(self) -> str:
        """See :attr:`Elector.holder`. Callable from any thread."""
        return self._elector.holder if self._elector else ""

    @property
    def problem(self) -> str:
        """See :attr:`Elector.problem`. Callable from any thread."""
        return self._elector.problem if self._elector else ""

    def start(self) -> None:
        """Begin to take part. Callable from any thread, once."""
        start_thread(self._thread)

    async def stop(self, limit: float = 10.0) -> None:
        """Release the lease and end the thread; after ``limit`` seconds it is left alone. On any event loop."""
        with self._lock:
            self._stopping = True
            if self._loop is not None and self._elector is not None:
                self._loop.call_soon_threadsafe(self._elector.stop)
        if self._thread.ident is None:
            return
        try:
            await within(self._clock, limit, _wait_for(self._ended))
        except TimeoutError:
            logger.warning("lease %s/%s: its thread does not end; it is left alone", self._namespace, self._name)

    def _run(self) -> None:
        reason = ""
        try:
            asyncio.run(self._elect())
        except ProvHostError as error:
            reason = str(error)
        except Exception as error:
            logger.exception("lease %s/%s: the election failed", self._namespace, self._name)
            reason = f"the election failed: {error!r}"
        finally:
            self._loop = None
            if reason and not self._stopping:
                self._on_lost(reason)
            self._ended.set_result(None)

    async def _elect(self) -> None:
        transport = await self._connect()
        try:
            # One try per request: a retry that waits would eat the time of the deadline.
            client = Client(transport, self._clock, retries=0)
            elector = Elector(
                client,
                provisioner=self._provisioner,
                namespace=self._namespace,
                identity=self._identity,
                durations=self._durations,
                clock=self._clock,
                rng=self._rng,
                on_started=self._on_started,
                on_lost=self._on_lost,
                events=self._events,
                old_lock=EndpointsLock(
                    client,
                    name=self._name,
                    namespace=self._namespace,
                    clock=self._clock,
                    seconds=self._durations.lease,
                    timeout=self._durations.request_timeout,
                )
                if self._honour_endpoints
                else None,
            )
            with self._lock:
                self._elector = elector
                self._loop = asyncio.get_running_loop()
                if self._stopping:
                    elector.stop()
            await elector.run()
        finally:
            with self._lock:
                self._loop = None
            await transport.close()


async def _wait_for(future: concurrent.futures.Future[None]) -> None:
    await asyncio.wrap_future(future)
