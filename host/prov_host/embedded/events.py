"""The two faces of Events: stored as core/v1, and shown in events.k8s.io/v1 with its other field names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["from_new_event", "is_new_event", "to_new_event"]

_CORE_TO_NEW = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_NEW_TO_CORE = {new: core for core, new in _CORE_TO_NEW.items()}


def is_new_event(event: Mapping[str, Any]) -> bool:
    """Whether an event has field names of events.k8s.io/v1."""
    return any(name in event for name in _NEW_TO_CORE)


def to_new_event(event: Mapping[str, Any]) -> dict[str, Any]:
    """A core/v1 Event (without kind and apiVersion) with the field names of events.k8s.io/v1."""
    shown = {_CORE_TO_NEW.get(name, name): value for name, value in event.items()}
    if not shown.get("reportingInstance"):
        shown.pop("reportingInstance", None)
    return shown


def from_new_event(event: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of :func:`to_new_event`."""
    return {_NEW_TO_CORE.get(name, name): value for name, value in event.items()}
