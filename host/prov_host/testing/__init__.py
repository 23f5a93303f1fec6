"""What plugin authors use to test a plugin; nothing of the host imports it.

The pieces without pytest: :class:`FakeHost`, :class:`FakeClock` and the makers of claims, classes, requests and
volumes. With pytest installed: :class:`BackendContract`, the contract suite that an author subclasses, and the
opt-in pytest plugin :mod:`prov_host.testing.plugin` with its fixtures.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from prov_host.testing.clock import FakeClock
from prov_host.testing.context import FakeHost
from prov_host.testing.hooks import hooks_of
from prov_host.testing.objects import make_claim, make_class, make_request, make_volume
from prov_host.testing.subject import BackendUnderTest, LateError, RunningBackend

if TYPE_CHECKING:
    from prov_host.testing.cluster import EmbeddedCluster
    from prov_host.testing.contract import BackendContract
    from prov_host.testing.promises import PROMISES
    from prov_host.testing.running import RunningHost

__all__ = [
    "PROMISES",
    "BackendContract",
    "BackendUnderTest",
    "EmbeddedCluster",
    "FakeClock",
    "FakeHost",
    "LateError",
    "RunningBackend",
    "RunningHost",
    "hooks_of",
    "make_claim",
    "make_class",
    "make_request",
    "make_volume",
]


# What needs pytest, which is no dependency of the host, or takes long to import, is imported when somebody asks for it.
_LATER = {
    "BackendContract": "prov_host.testing.contract",
    "EmbeddedCluster": "prov_host.testing.cluster",
    "PROMISES": "prov_host.testing.promises",
    "RunningHost": "prov_host.testing.running",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
