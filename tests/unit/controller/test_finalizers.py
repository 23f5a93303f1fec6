"""Patches that cannot conflict, cannot be empty and cannot remove what others added."""

from __future__ import annotations

import pytest

from prov_host.controller.finalizers import addition, reconciliation, removal
from prov_host.model import FINALIZER, ObjectMeta, Volume, VolumeSpec, VolumeStatus


def volume(
    *, phase: str = "Bound", policy: str = "Delete", finalizers: tuple[str, ...] = (), deleted: str | None = None
) -> Volume:
    return Volume(
        metadata=ObjectMeta(name="pv", uid="u", finalizers=finalizers, deletion_timestamp=deleted),
        spec=VolumeSpec(persistent_volume_reclaim_policy=policy),
        status=VolumeStatus(phase=phase),
    )


def test_removing_names_the_one_finalizer_and_the_object() -> None:
    assert removal(volume(finalizers=(FINALIZER,)), FINALIZER) == {
        "metadata": {"uid": "u", "$deleteFromPrimitiveList/finalizers": [FINALIZER]}
    }


def test_adding_merges() -> None:
    assert addition(volume(), FINALIZER) == {"metadata": {"uid": "u", "finalizers": [FINALIZER]}}


@pytest.mark.parametrize("phase", ["", "Pending", "Available", "Released", "Failed", "Whatever"])
def test_it_is_added_to_bound_volumes_only(phase: str) -> None:
    assert reconciliation(volume(), enabled=True) == addition(volume(), FINALIZER)
    assert reconciliation(volume(phase=phase), enabled=True) is None


def test_it_is_never_added_to_a_volume_on_its_way_out() -> None:
    assert reconciliation(volume(deleted="2026-01-01T00:00:00Z"), enabled=True) is None


@pytest.mark.parametrize("policy", ["Retain", "Recycle"])
@pytest.mark.parametrize("phase", ["Bound", "Released", "Failed"])
@pytest.mark.parametrize("deleted", [None, "2026-01-01T00:00:00Z"])
def test_it_is_removed_when_the_policy_became_another(policy: str, phase: str, deleted: str | None) -> None:
    marked = volume(policy=policy, phase=phase, finalizers=("x", FINALIZER), deleted=deleted)
    assert reconciliation(marked, enabled=True) == removal(marked, FINALIZER)


def test_it_is_removed_when_the_feature_is_off() -> None:
    marked = volume(finalizers=(FINALIZER,))
    assert reconciliation(marked, enabled=False) == removal(marked, FINALIZER)
    assert reconciliation(marked, enabled=True) is None
    assert reconciliation(volume(), enabled=False) is None


def test_a_future_policy_changes_nothing() -> None:
    assert reconciliation(volume(policy="Shred", finalizers=(FINALIZER,)), enabled=True) is None
    assert reconciliation(volume(policy="Shred"), enabled=True) is None
