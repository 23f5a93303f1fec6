"""The rules of leadership that need no network: names, durations, records, and when somebody else's record is dead.

One Lease per provisioner name, named as the Go library names it, so that one of its provisioners and this host never
serve one name at the same time. Times in a record were written by another machine with a clock of its own and are never
compared with ours: what counts is how long we have not seen the record change, measured on our monotonic clock, against
the duration that the record itself states.

Older Go provisioners (nfs-subdir-external-provisioner among them) hold no Lease but an annotation on an Endpoints
object of the same name. :class:`EndpointsLock` reads it by the same rules, so that a take-over waits until they are
gone.
"""

from __future__ import annotations

import datetime as dt
import logging
import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from prov_host.clock import Clock
from prov_host.errors import ConfigurationError, Forbidden, NotFound
from prov_host.kube.api import Api, Resource
from prov_host.model import ObjectMeta

__all__ = [
    "ANN_ENDPOINTS_LEADER",
    "ENDPOINTS",
    "LEASES",
    "Durations",
    "Endpoints",
    "EndpointsLock",
    "Lease",
    "Observation",
    "lease_name",
    "micro_time",
]

logger = logging.getLogger(__name__)

ANN_ENDPOINTS_LEADER = "control-plane.alpha.kubernetes.io/leader"
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_MAX_NAME = 253
_JITTER = 1.2  # of the reference's election


class Lease(msgspec.Struct, frozen=True):
    """A Lease, with all of its metadata and spec: what we do not know must survive our updates. Since 0.1."""

    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    spec: dict[str, Any] | None = None

    @property
    def holder(self) -> str:
        """Who holds it, "" if nobody does."""
        found = (self.spec or {}).get("holderIdentity")
        return found if isinstance(found, str) else ""

    @property
    def seconds(self) -> float | None:
        """How long it is good for without a renewal; None if it does not say."""
        return _duration((self.spec or {}).get("leaseDurationSeconds"))

    @property
    def transitions(self) -> int:
        """How often the holder has changed."""
        found = (self.spec or {}).get("leaseTransitions")
        return found if isinstance(found, int) and found >= 0 else 0


class Endpoints(msgspec.Struct, frozen=True):
    """An Endpoints object, as far as the old lock needs it. Since 0.1."""

    metadata: ObjectMeta = ObjectMeta()


LEASES = Resource(Lease, "coordination.k8s.io", "v1", "leases", "Lease", True)
ENDPOINTS = Resource(Endpoints, "", "v1", "endpoints", "Endpoints", True)


def lease_name(provisioner: str) -> str:
    """The name of the Lease (and of the old lock) for a provisioner name.

    Args:
        provisioner: for example ``k8s-sigs.io/nfs-subdir-external-provisioner``.

    Returns:
        The name with every ``/`` replaced by ``-``, as the reference controller does it.

    Raises:
        ConfigurationError: that is not a name an API object can have. The reference fails at the API then, for ever.

    Callable from any thread. Since 0.1.
    """
    name = provisioner.replace("/", "-")
    if len(name) > _MAX_NAME or not _SUBDOMAIN.fullmatch(name):
        raise ConfigurationError(
            f"the provisioner name {provisioner[:_MAX_NAME]!r} gives the Lease name {name[:_MAX_NAME]!r}, which the "
            "API refuses: use lower-case letters, digits, '-', '.' and one '/', at most 253 characters, or switch "
            "leader election off (--leader-election=false) and run one replica"
        )
    return name


def micro_time(moment: dt.datetime) -> str:
    """A time as Leases hold it: RFC 3339 in UTC with exactly six digits. Callable from any thread. Since 0.1."""
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Durations(msgspec.Struct, frozen=True):
    """How long a lease lasts and how it is kept; the defaults are the reference's. Since 0.1.

    Attributes:
        lease: seconds without a renewal after which another may take over; whole ones are written.
        renew: seconds within which a renewal must succeed, or leadership is given up.
        retry: seconds between tries.
    """

    lease: float = 15.0
    renew: float = 10.0
    retry: float = 2.0

    @property
    def request_timeout(self) -> float:
        """Seconds for one request: half of the renew deadline, so that one that hangs leaves time for another."""
        return max(1.0, self.renew / 2)

    def check(self) -> None:
        """Refuse durations that cannot work.

        Raises:
            ConfigurationError: with every problem.
        """
        named = {"lease duration": self.lease, "renew deadline": self.renew, "retry period": self.retry}
        problems = [
            f"the {name} of {value:g} s must be more than 0"
            for name, value in named.items()
            if not math.isfinite(value) or value <= 0
        ]
        if not problems:
            if int(self.lease) <= self.renew:
                problems.append(
                    f"the lease duration of {self.lease:g} s (written as {int(self.lease)} s, leases have whole "
                    f"seconds) must be longer than the renew deadline of {self.renew:g} s"
                )
            if self.renew <= _JITTER * self.retry:
                problems.append(
                    f"the renew deadline of {self.renew:g} s must be longer than {_JITTER:g} times the retry period of "
                    f"{self.retry:g} s"
                )
            if self.request_timeout >= self.renew:
                problems.append(
                    f"the renew deadline of {self.renew:g} s must be more than 1 s: a request may take that long"
                )
        if problems:
            raise ConfigurationError(*(f"leader election: {problem}" for problem in problems))


class Observation:
    """When a record was last seen to change, on our own clock. For one task. Since 0.1.

    Args:
        clock: the host's clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._record: Any = None
        self._since = -math.inf

    def see(self, record: Any) -> None:
        """Take note of the record as it is now; None if there is none."""
        if record != self._record:
            self._record = record
            self._since = self._clock.monotonic()

    @property
    def age(self) -> float:
        """Seconds since the record was first seen as it is."""
        return self._clock.monotonic() - self._since

    def expired(self, seconds: float) -> bool:
        """Whether the record has been unchanged for longer than it is good for. A new one never is."""
        return self.age > seconds


class EndpointsLock:
    """The lock of older Go provisioners: a record in an annotation of an Endpoints object. For one task. Since 0.1.

    Args:
        api: to read it with.
        name: as :func:`lease_name`.
        namespace: that of the Lease.
        clock: the host's clock.
        seconds: what a record that states no duration is good for.
        timeout: seconds for one request.
    """

    def __init__(
        self, api: Api, *, name: str, namespace: str, clock: Clock, seconds: float = 15.0, timeout: float = 5.0
    ) -> None:
        self._api = api
        self._name = name
        self._namespace = namespace
        self._seconds = seconds
        self._timeout = timeout
        self._observed = Observation(clock)
        self._told = False

    async def holder(self) -> str:
        """Who holds it and may be alive, "" if nobody does.

        A record counts as alive until it has been seen unchanged for its own duration; a released one (no holder), an
        object without the annotation, and no object at all are nobody.

        Raises:
            ApiError: it could not be read. (Not allowed to read it counts as nobody; that is logged once.)
        """
        try:
            found = await self._api.get(ENDPOINTS, self._name, namespace=self._namespace, timeout=self._timeout)
        except NotFound:
            self._observed.see(None)
            return ""
        except Forbidden as error:
            if not self._told:
                self._told = True
                logger.warning(
                    "%s/%s: not allowed to see whether an older provisioner still holds its Endpoints lock, so it is "
                    "taken as gone: %s",
                    self._namespace,
                    self._name,
                    error,
                )
            return ""
        text = (found.metadata.annotations or {}).get(ANN_ENDPOINTS_LEADER) or None
        self._observed.see(text)
        if text is None:
            return ""
        holder, seconds = _endpoints_record(text)
        return "" if self._observed.expired(seconds or self._seconds) else holder


def _endpoints_record(text: str) -> tuple[str, float | None]:
    """Holder and duration. A record that cannot be read has a holder: somebody wrote it, and may write it again."""
    try:
        record = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        record = None
    if not isinstance(record, Mapping):
        return "somebody with an unreadable record", None
    holder = record.get("holderIdentity", "")
    return (holder if isinstance(holder, str) else repr(holder)[:200]), _duration(record.get("leaseDurationSeconds"))


def _duration(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and value > 0 else None
