"""A claim that cannot be served leaves nothing, also if an earlier call made something for it.

The process died after the directory was made and before the volume was saved; then the class was re-created, or the
claim annotated, so that it cannot work. "Infeasible" makes the host forget the claim.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from faulty_sys import Crash, FaultySys
from nfs_rig import EXPORT, PROVISIONER, SERVER, Rig
from prov_host import InBackground, Infeasible, ProvisionRequest
from prov_host.testing.objects import make_claim

BY_NAME = {"pathPattern": "${.PVC.namespace}/${.PVC.name}"}
UID = "11111111-0000-4000-8000-000000000001"
BAD_CLASSES = [
    {"pathPattern": "${.PVC.nmae}"},
    {"mode": "0o888"},
    {"export": "nowhere"},
    {"pathPattern": "/".join(["d" * 200] * 6)},
]
BAD_CLAIMS = [
    {"annotations": {"prov-host/mode": "7777"}},
    {"storage": "much"},
    {"spec": {"selector": {"matchLabels": {"a": "b"}}}},
]


def asked(rig: Rig, parameters: dict[str, str], **claim: object) -> ProvisionRequest:
    return rig.request(make_claim("data", "ns1", uid=UID, **claim), parameters)  # type: ignore[arg-type]


def refused(rig: Rig, number: int) -> ProvisionRequest:
    if number < len(BAD_CLASSES):
        return asked(rig, BAD_CLASSES[number])
    return asked(rig, BY_NAME, **BAD_CLAIMS[number - len(BAD_CLASSES)])


@pytest.mark.parametrize("number", range(len(BAD_CLASSES) + len(BAD_CLAIMS)))
@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize("parameters", [{}, BY_NAME])
def test_what_was_made_is_removed_before_a_claim_is_called_infeasible(
    rig: Rig, number: int, restart: bool, parameters: dict[str, str]
) -> None:
    rig.make("x", "neighbour", BY_NAME)
    before = rig.tree()
    rig.plugin.provision(asked(rig, parameters))
    if restart:
        rig.start()
    with pytest.raises(Infeasible):
        rig.plugin.provision(refused(rig, number))
    assert rig.plugin.wait_for_trash(10)
    assert rig.tree() == before
    assert len(rig.owners()) == 1
    rig.make("other", "claim", {"pathPattern": "ns1/data"})


def test_what_was_adopted_stays_as_it_was(rig: Rig) -> None:
    data = rig.share / "ns1" / "data"
    data.mkdir(parents=True)
    (data / "f").write_text("mine")
    before = rig.tree()
    rig.plugin.provision(asked(rig, {**BY_NAME, "adoptExisting": "true"}))
    with pytest.raises(Infeasible):
        rig.plugin.provision(refused(rig, 0))
    assert rig.tree() == before
    assert rig.owners() == []


def test_a_volume_that_was_saved_is_never_undone(rig: Rig) -> None:
    request = asked(rig, BY_NAME)
    volume = rig.provision(request)
    (rig.directory(volume) / "f").write_text("mine")
    with pytest.raises(Infeasible):
        rig.plugin.provision(refused(rig, 0))
    assert (rig.directory(volume) / "f").read_text() == "mine"


def test_as_long_as_that_does_not_work_the_host_has_to_ask_again(quick_path: Path) -> None:
    """Whatever call fails: either everything is gone, or the answer is not final."""
    (quick_path / "count").mkdir()
    count = FaultySys()
    _undone(quick_path / "count", count)
    for at in range(1, count.calls + 1):
        share = quick_path / str(at)
        share.mkdir()
        _undone(share, FaultySys(at=at, error=5, lasting=bool(at % 2)))


def _undone(share: Path, sys: FaultySys) -> None:
    rig = Rig(share)
    rig.start()
    rig.plugin.provision(asked(rig, BY_NAME))
    rig.sys = sys
    rig.start()
    with pytest.raises((Infeasible, InBackground), match="nmae") as caught:
        rig.plugin.provision(refused(rig, 0))
    if caught.type is Infeasible:
        assert not (rig.share / "ns1").exists(), sys.what
        assert rig.owners() == [], sys.what
    else:
        assert "not cleared up yet" in str(caught.value)
    sys.heal()
    with pytest.raises(Infeasible):
        rig.plugin.provision(refused(rig, 0))
    assert rig.plugin.wait_for_trash(10)
    assert rig.tree() == {}
    assert rig.owners() == []
    assert rig.staged() == []
    rig.stop()


@pytest.mark.parametrize("like_nfs", [False, True])
def test_wherever_the_first_call_died(quick_path: Path, like_nfs: bool) -> None:
    count = FaultySys(like_nfs=like_nfs, only_changing=True)
    (quick_path / "count").mkdir()
    rig = Rig(quick_path / "count")
    rig.sys = count
    rig.start()
    rig.plugin.provision(asked(rig, BY_NAME))
    for at in range(1, count.calls + 1):
        share = quick_path / str(at)
        share.mkdir()
        rig = Rig(share)
        rig.start()
        rig.delete(rig.make("x", "y"))  # the share is in use
        rig.sys = FaultySys(like_nfs=like_nfs, at=at, only_changing=True)
        rig.start()
        with suppress(Crash):  # on a share that is in use already, there are fewer calls
            rig.plugin.provision(asked(rig, BY_NAME))
        rig.sys = FaultySys(like_nfs=like_nfs)
        rig.start()
        with pytest.raises(Infeasible):
            rig.plugin.provision(refused(rig, 0))
        assert rig.plugin.wait_for_trash(10)
        assert rig.owners() == []
        assert rig.staged() == []
        assert rig.tree() == {}, at


def test_with_several_exports_each_that_may_hold_it_is_looked_at(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    rig.environ = {}
    rig.settings = {
        "provisioner": [PROVISIONER],
        "exports": [
            {"name": "one", "server": SERVER, "path": EXPORT, "mount": str(rig.share)},
            {"name": "two", "server": SERVER, "path": "/exports/two", "mount": str(tmp_path / "other")},
        ],
    }
    rig.start()
    rig.plugin.provision(asked(rig, {**BY_NAME, "export": "two"}))
    rig.start()
    with pytest.raises(Infeasible, match="nowhere"):
        rig.plugin.provision(asked(rig, {**BY_NAME, "export": "nowhere"}))
    assert not (tmp_path / "other" / "ns1").exists()
