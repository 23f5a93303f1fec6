"""Provisioning and reclaiming: knows claims, volumes and classes, and nothing of storage.

The names below are imported when they are used: the command line needs the options to answer ``--help``, and must
not pay for the rest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prov_host.controller.backend import Backend
    from prov_host.controller.controller import Controller, ControllerStatus
    from prov_host.controller.locks import KeyLocks
    from prov_host.controller.metrics import Metrics
    from prov_host.controller.options import Backoff, ControllerOptions, ExponentialLimit

__all__ = [
    "Backend",
    "Backoff",
    "Controller",
    "ControllerOptions",
    "ControllerStatus",
    "ExponentialLimit",
    "KeyLocks",
    "Metrics",
]

_MODULES = {
    "Backend": "backend",
    "Backoff": "options",
    "Controller": "controller",
    "ControllerOptions": "options",
    "ControllerStatus": "controller",
    "ExponentialLimit": "options",
    "KeyLocks": "locks",
    "Metrics": "metrics",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
