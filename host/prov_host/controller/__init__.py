"""Provisioning and reclaiming: knows claims, volumes and classes, and nothing of storage."""

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
