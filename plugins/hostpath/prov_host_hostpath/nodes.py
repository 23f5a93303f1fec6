"""Other nodes: which claims and volumes wait for one, and when that has been too long.

The host reads no Node objects, so a node is not known to be gone; it is only known that something has waited for it.
The wait is counted from when this process first saw it, on the monotonic clock: a restart begins anew, which errs on
the side of waiting.
"""

from __future__ import annotations

import threading

from prov_host import HostContext, StorageClass

__all__ = ["HOSTNAME_LABEL", "GoneNodes", "only_hostname"]

HOSTNAME_LABEL = "kubernetes.io/hostname"
_MAX_REMEMBERED = 10_000


class GoneNodes:
    """What waits for other nodes, and since when. Callable from any thread. Since 0.1.

    Args:
        host: for its clock, and for what still exists.
        limit: seconds after which something has waited too long, None for never.
    """

    def __init__(self, host: HostContext, limit: float | None) -> None:
        self._host = host
        self._limit = limit
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}

    def given_up(self, uid: str) -> bool:
        """Whether a claim or volume has waited too long.

        Args:
            uid: its uid.

        Returns:
            False also when it is seen for the first time.
        """
        if self._limit is None or not uid:
            return False
        now = self._host.clock.monotonic()
        with self._lock:
            if len(self._since) > _MAX_REMEMBERED:
                self._forget_what_is_settled()
            return now - self._since.setdefault(uid, now) >= self._limit

    def _forget_what_is_settled(self) -> None:
        there = {claim.uid for claim in self._host.claims()} | {volume.uid for volume in self._host.volumes()}
        self._since = {uid: since for uid, since in self._since.items() if uid in there}


def only_hostname(storage_class: StorageClass) -> str:
    """The one hostname that a class's allowedTopologies leave, or "". Callable from any thread. Since 0.1."""
    terms = storage_class.allowed_topologies or ()
    values = [
        value
        for term in terms
        for expression in term.get("matchLabelExpressions") or ()
        if expression.get("key") == HOSTNAME_LABEL
        for value in expression.get("values") or ()
    ]
    return str(values[0]) if len(values) == 1 and len(terms) == 1 else ""
