"""Finalizers on volumes: which to change, and the patches that change them.

The patches are strategic merges without a resourceVersion, so they cannot conflict with another program that edits
the object meanwhile, and they name the one finalizer they mean. (The reference controller's patch is a difference of
whole lists: when ours is the only one *it knows of*, that removes everybody's.) They carry the object's uid, so an
object re-created under the name is not touched.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prov_host.model import FINALIZER, Claim, Volume

__all__ = ["add_finalizer", "addition", "reconciliation", "removal", "remove_finalizer"]


def remove_finalizer(finalizers: Iterable[str] | None, finalizer: str) -> tuple[tuple[str, ...] | None, bool]:
    """``finalizers`` without ``finalizer`` (None if nothing is left), and whether that changed anything."""
    before = tuple(finalizers or ())
    after = tuple(name for name in before if name != finalizer)
    return after or None, len(after) != len(before)


def add_finalizer(finalizers: Iterable[str] | None, finalizer: str) -> tuple[tuple[str, ...], bool]:
    """``finalizers`` with ``finalizer``, appended if absent, and whether that changed anything."""
    before = tuple(finalizers or ())
    return (before, False) if finalizer in before else ((*before, finalizer), True)


def addition(obj: Claim | Volume, finalizer: str) -> dict[str, Any]:
    """The strategic merge patch that adds ``finalizer`` to what is there."""
    return {"metadata": {"uid": obj.uid, "finalizers": [finalizer]}}


def removal(obj: Claim | Volume, finalizer: str) -> dict[str, Any]:
    """The strategic merge patch that removes ``finalizer`` and nothing else."""
    return {"metadata": {"uid": obj.uid, "$deleteFromPrimitiveList/finalizers": [finalizer]}}


def reconciliation(volume: Volume, *, enabled: bool) -> dict[str, Any] | None:
    """The patch that gives one of our volumes the finalizer it should have, None if it has it.

    Args:
        volume: one of ours.
        enabled: the option ``add_finalizer``.

    It is added only to a Bound volume under reclaim policy Delete that nobody deletes, and removed when the feature
    is off or the policy became Retain or Recycle, whatever the phase: it would block the volume's removal for
    nothing. Since 0.1. Source: reference controller, "finalizer handling".
    """
    present = FINALIZER in volume.finalizers
    if present and (not enabled or volume.reclaim_policy in {"Retain", "Recycle"}):
        return removal(volume, FINALIZER)
    wanted = enabled and volume.reclaim_policy == "Delete" and not volume.terminating and volume.phase == "Bound"
    return addition(volume, FINALIZER) if wanted and not present else None
