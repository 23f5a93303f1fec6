"""Leader election on a Lease: take it when it is free, keep it, know at once when it is lost, hand it over on stop.

::

    acquire ──────────────────────────────────────────────> keep: renew every 2 s
      every 2 to 4.4 s; at once when it is released          ├─ stopped: release it, another takes over at once
      not while an older provisioner renews its lock         └─ lost: another holds it, or nothing renewed it for 10 s

Taking and renewing are updates with the resourceVersion of what was seen last, so that of two who try, one gets a
conflict. What counts for our own deadline is when a successful request was *sent*, not when it was answered. No
request is ever waited for beyond the deadline, whatever the network does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from typing import Any

from prov_host.clock import Clock
from prov_host.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound
from prov_host.kube.api import EventSink
from prov_host.kube.backoff import Backoff
from prov_host.kube.client import Client
from prov_host.kube.leases import LEASES, Durations, EndpointsLock, Lease, Observation, lease_name, micro_time
from prov_host.kube.waiting import pause, within
from prov_host.model import ObjectReference

__all__ = ["Elector"]

logger = logging.getLogger(__name__)

_JITTER = 1.2
_LAST_TRIES = 0.25  # seconds apart, at the end of the deadline
_MOST_TRANSITIONS = 2**31 - 1  # the field is an int32: one more, and the API refuses every update
_LOOK_BACK = 60.0  # seconds between looks, while leading, at whether an older provisioner has been started again
_LASTING = 30.0  # seconds after which not being able to take part is no passing trouble
_TELL_AGAIN = 60.0  # seconds between two warnings about it


class _Lost(Exception):
    """Somebody else holds the lease."""


class Elector:
    """One election. All methods are called on its event loop, except where noted. Since 0.1.

    Args:
        client: without a rate limit and without retries of its own: the election has its own rhythm.
        provisioner: the provisioner name; names the Lease.
        namespace: of the Lease.
        identity: who we are, unique among all processes.
        durations: validated here.
        clock: the host's clock.
        rng: for jitter.
        on_started: called once, when the lease has been taken.
        on_lost: called once, with the reason, the moment it is known to be lost; not after :meth:`stop`.
        events: where ``became leader`` and ``stopped leading`` go, or None.
        old_lock: the lock that an older provisioner may hold, or None.

    Raises:
        ConfigurationError: the durations or the name cannot work.
    """

    def __init__(
        self,
        client: Client,
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
        old_lock: EndpointsLock | None = None,
    ) -> None:
        durations.check()
        self._client = client
        self._name = lease_name(provisioner)
        self._namespace = namespace
        self._identity = identity
        self._durations = durations
        self._clock = clock
        self._rng = rng
        self._on_started = on_started
        self._on_lost = on_lost
        self._events = events
        self._old_lock = old_lock
        self._lease: Lease | None = None
        self._observed = Observation(clock)
        self._leading = False
        self._good_until = 0.0
        self._stop = asyncio.Event()
        self._freed = asyncio.Event()
        self._told_old_holder = ""
        self._trouble: tuple[str, float] | None = None
        self._silent = ""
        self._tell_at = 0.0
        self._told: set[type[Exception]] = set()
        self._looked_back = clock.monotonic()

    @property
    def key(self) -> str:
        """``namespace/name`` of the Lease."""
        return f"{self._namespace}/{self._name}"

    @property
    def leading(self) -> bool:
        """Whether the lease is ours at this very moment, by our own clock. Callable from any thread.

        False as soon as the renew deadline has passed, even if the election itself has not noticed yet because the
        whole process was suspended: ask before doing what only the leader may do.
        """
        return self._leading and self._clock.monotonic() < self._good_until

    @property
    def holder(self) -> str:
        """Who held the lease when last seen, "" if nobody. Callable from any thread."""
        return self._lease.holder if self._lease else ""

    @property
    def problem(self) -> str:
        """Why it has not been able to take part for half a minute, and what to do; "" if it can.

        Standing by while another leads is no problem; while another holds the lease and does not renew it, it is one.
        Callable from any thread.
        """
        trouble = self._trouble
        if trouble is None or self._clock.monotonic() - trouble[1] < _LASTING:
            return self._silent
        return trouble[0]

    def stop(self) -> None:
        """Stop, and release the lease if it is ours; :meth:`run` returns then."""
        self._stop.set()

    async def run(self) -> None:
        """Take part until stopped or lost. Cancelling it keeps the lease until it runs out."""
        watching = asyncio.get_running_loop().create_task(self._watch())
        try:
            acquired = await self._acquire()
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
        if not acquired:
            return
        logger.info("lease %s: %s became leader", self.key, self._identity)
        self._tell("became leader")
        self._on_started()
        reason = await self._keep()
        if reason:
            self._leading = False
            logger.error("lease %s: %s lost it: %s", self.key, self._identity, reason)
            self._on_lost(reason)
            self._tell("stopped leading")
        else:
            await self._release()

    # Taking it.

    async def _acquire(self) -> bool:
        last_words = ""
        while not self._stop.is_set():
            self._freed.clear()
            silent = self._silent
            try:
                words = await within(self._clock, 2 * self._durations.renew, self._try())
                self._trouble = None
            except (ApiError, TimeoutError) as error:
                words = ""
                self._cannot(error)
            if self._leading:
                return True
            if words and words != last_words:
                level = logging.WARNING if self._silent and not silent else logging.INFO
                logger.log(level, "lease %s: %s", self.key, words)
            last_words = words
            wait = self._durations.retry * (1.0 + _JITTER * self._rng.random())
            await pause(self._clock, wait, self._stop, self._freed)
        return False

    def _cannot(self, error: Exception) -> None:
        """A try has failed: nobody may be serving the name, so it is said again and again, but not at each try."""
        now = self._clock.monotonic()
        since = self._trouble[1] if self._trouble else now
        words = f"cannot take part in the election: {error}{self._remedy(error)}"
        self._trouble = (words, since)
        if now >= self._tell_at:
            self._tell_at = now + _TELL_AGAIN
            self._told.clear()
        if type(error) not in self._told:
            self._told.add(type(error))
            age = f" (for {now - since:.0f} s now)" if now > since else ""
            logger.warning("lease %s: %s%s", self.key, words, age)

    def _remedy(self, error: Exception) -> str:
        other = "or choose another namespace with --leader-election-namespace"
        if isinstance(error, Forbidden):
            return f"; allow get, create, update and watch of leases in the namespace {self._namespace}, {other}"
        if isinstance(error, NotFound):
            return f"; create the namespace {self._namespace}, {other}"
        return ""

    async def _try(self) -> str:
        """Take the lease if it can be taken; says why not."""
        old_holder = await self._old_lock.holder() if self._old_lock else ""
        sent = self._clock.monotonic()
        lease = await self._read()
        self._silent = ""
        if lease is not None and lease.holder not in {"", self._identity}:
            seconds = lease.seconds or self._durations.lease
            if not self._observed.expired(seconds):
                return self._silent_holder(lease, seconds) or f"{lease.holder} leads"
        if old_holder:
            return (
                f"{old_holder} holds the Endpoints lock {self.key} of an older provisioner and may be serving: waiting "
                "until it stops (scale that Deployment to 0)"
            )
        try:
            sent = self._clock.monotonic()
            self._took(await self._write(lease), sent)
        except (AlreadyExists, Conflict):
            return "somebody else was faster"
        return ""

    def _silent_holder(self, lease: Lease, seconds: float) -> str:
        """What to say of a holder that has not renewed for half a minute, although its lease is good for longer."""
        if self._observed.age < _LASTING:
            return ""
        self._silent = (
            f"{lease.holder} holds it and has not renewed it for more than {_LASTING:.0f} s, but it says that it is "
            f"good for {seconds:.0f} s, which is waited for: if nothing of that name runs any more, delete the Lease "
            f"{self.key}"
        )
        return self._silent

    async def _read(self) -> Lease | None:
        try:
            lease = await self._client.get(
                LEASES, self._name, namespace=self._namespace, timeout=self._durations.request_timeout
            )
        except NotFound:
            self._see(None)
            return None
        self._see(lease)
        return lease

    def _see(self, lease: Lease | None) -> None:
        self._lease = lease
        self._observed.see(lease.spec if lease else None)

    async def _write(self, lease: Lease | None) -> Lease:
        """Write ourselves into the lease as it was seen; conflicts mean that it has changed since."""
        now = micro_time(self._clock.now())
        ours = lease is not None and lease.holder == self._identity
        spec = dict(lease.spec or {}) if lease else {}
        spec |= {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(self._durations.lease),
            "acquireTime": (spec.get("acquireTime") or now) if ours else now,
            "renewTime": now,
            "leaseTransitions": self._transitions(lease, ours=ours),
        }
        timeout = self._durations.request_timeout
        if lease is None:
            body = self._body({"name": self._name, "namespace": self._namespace}, spec)
            return await self._client.create(LEASES, body, namespace=self._namespace, timeout=timeout)
        body = self._body(lease.metadata, spec)
        return await self._client.update(LEASES, body, namespace=self._namespace, timeout=timeout)

    def _transitions(self, lease: Lease | None, *, ours: bool) -> int:
        if lease is None:
            return 0
        found = lease.transitions + (0 if ours else 1)
        return found if found <= _MOST_TRANSITIONS else 0

    def _body(self, metadata: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
        return {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}

    def _took(self, lease: Lease, sent: float) -> None:
        self._see(lease)
        self._good_until = sent + self._durations.renew
        self._leading = True

    async def _watch(self) -> None:
        """See a release at once, instead of at the next try. Without the permission, the tries must do."""
        backoff = Backoff(self._clock, self._rng)
        while True:
            try:
                async with self._client.watch(LEASES, namespace=self._namespace, name=self._name) as events:
                    async for event in events:
                        if event.type == "DELETED" or (event.object is not None and not event.object.holder):
                            self._freed.set()
            except Forbidden as error:
                logger.debug("lease %s: not watched, only asked for now and then: %s", self.key, error)
                return
            except ApiError as error:
                logger.debug("lease %s: the watch ended: %s", self.key, error)
            await backoff.wait()

    # Keeping it.

    async def _keep(self) -> str:
        """Renew until stopped (returns "") or lost (returns why)."""
        while True:
            if await pause(self._clock, self._durations.retry, self._stop):
                return ""
            last_error = "no answer"
            while True:
                left = self._good_until - self._clock.monotonic()
                if left <= 0:
                    return f"no renewal succeeded within {self._durations.renew:g} s: {last_error}"
                try:
                    await within(self._clock, min(left, self._durations.request_timeout), self._renew())
                    break
                except _Lost as error:
                    return str(error)
                except (ApiError, TimeoutError) as error:
                    last_error = str(error)
                    left = self._good_until - self._clock.monotonic()
                    logger.warning("lease %s: not renewed, %.1f s left: %s", self.key, max(left, 0.0), last_error)
                # Closer together towards the end: the server may come back in the last second.
                wait = min(self._durations.retry, max(left / 2, _LAST_TRIES), left)
                if await pause(self._clock, wait, self._stop):
                    return ""
            await self._look_back()

    async def _renew(self) -> None:
        sent = self._clock.monotonic()
        try:
            self._took(await self._write(self._lease), sent)
            return
        except (AlreadyExists, Conflict, NotFound) as error:
            # Changed by somebody, or by a request of ours whose answer got lost.
            logger.debug("lease %s: looking again: %s", self.key, error)
        lease = await self._read()
        if lease is not None and lease.holder not in {"", self._identity}:
            raise _Lost(f"{lease.holder} holds it now")
        sent = self._clock.monotonic()
        self._took(await self._write(lease), sent)

    async def _look_back(self) -> None:
        """Say so if an older provisioner of our name is started while we lead: it does not look at Leases."""
        if self._old_lock is None or self._clock.monotonic() - self._looked_back < _LOOK_BACK:
            return
        self._looked_back = self._clock.monotonic()
        with contextlib.suppress(ApiError, TimeoutError):
            left = self._good_until - self._clock.monotonic()
            holder = await within(self._clock, min(self._durations.retry, left), self._old_lock.holder())
            if holder and holder != self._told_old_holder:
                logger.error(
                    "lease %s: %s, an older provisioner of the same name, took its Endpoints lock while we lead; both "
                    "serve the same claims now: stop it",
                    self.key,
                    holder,
                )
            self._told_old_holder = holder

    async def _release(self) -> None:
        """Make it free for the next one, who then need not wait until it runs out."""
        self._leading = False
        self._tell("stopped leading")
        now = micro_time(self._clock.now())
        try:
            for last_try in (False, True):
                lease = self._lease
                if lease is None or lease.holder != self._identity:
                    return
                spec = dict(lease.spec or {}) | {
                    "holderIdentity": "",
                    "leaseDurationSeconds": 1,
                    "acquireTime": now,
                    "renewTime": now,
                }
                try:
                    update = self._client.update(
                        LEASES,
                        self._body(lease.metadata, spec),
                        namespace=self._namespace,
                        timeout=self._durations.request_timeout,
                    )
                    await within(self._clock, self._durations.request_timeout, update)
                    logger.info("lease %s: released by %s", self.key, self._identity)
                    return
                except Conflict:
                    if last_try:
                        raise
                    await within(self._clock, self._durations.request_timeout, self._read())
        except (ApiError, TimeoutError) as error:
            logger.warning(
                "lease %s: not released, the next leader waits until it runs out (%d s): %s",
                self.key,
                int(self._durations.lease),
                error,
            )

    def _tell(self, what: str) -> None:
        if self._events is None:
            return
        metadata = self._lease.metadata if self._lease else {}
        reference = ObjectReference(
            api_version=LEASES.api_version,
            kind=LEASES.kind,
            namespace=self._namespace,
            name=self._name,
            uid=str(metadata.get("uid") or ""),
            resource_version=str(metadata.get("resourceVersion") or ""),
        )
        self._events.emit(reference, type="Normal", reason="LeaderElection", message=f"{self._identity} {what}")
