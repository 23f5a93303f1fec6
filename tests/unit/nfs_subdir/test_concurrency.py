"""Many threads make and remove volumes below the same parents: nobody is disturbed, nothing is left."""

from __future__ import annotations

import threading

import pytest

from faulty_sys import FaultySys
from nfs_rig import Rig
from prov_host import DeleteError, ProvisionError
from prov_host.testing.objects import make_claim

PATTERN = {"pathPattern": "a/${.PVC.namespace}/b/${.PVC.name}"}
THREADS, ROUNDS = 6, 15


@pytest.mark.parametrize("like_nfs", [False, True], ids=["local", "nfs"])
def test_parents_come_and_go_under_volumes_of_many_threads(rig: Rig, like_nfs: bool) -> None:
    rig.sys = FaultySys(like_nfs=like_nfs)
    rig.start()
    gate = threading.Barrier(THREADS)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            gate.wait()
            for turn in range(ROUNDS):
                # Two namespaces: their directories are made and removed all the time.
                claim = make_claim(f"data-{number}", f"ns{turn % 2}", uid=f"{number:08}-0000-4000-8000-{turn:012}")
                request = rig.request(claim, PATTERN)
                volume = _patiently(lambda r=request: rig.provision(r, save=False))
                path = rig.directory(volume)
                (path / "f").write_text(claim.uid)
                assert path.stat().st_mode & 0o777 == 0o777
                for parent in (path.parent, path.parent.parent):
                    assert parent.stat().st_mode & 0o777 == 0o755
                assert (path / "f").read_text() == claim.uid
                _patiently(lambda v=volume: rig.plugin.delete(v))
                assert not path.exists()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert rig.plugin.wait_for_trash(20)
    assert rig.tree() == {}
    assert rig.owners() == []
    assert rig.staged() == []
    assert rig.trash() == []
    assert list((rig.share / ".prov-host" / "parents").iterdir()) == []


def _patiently(function):  # type: ignore[no-untyped-def]
    """As the host does: failures are tried again."""
    for _ in range(50):
        try:
            return function()
        except (ProvisionError, DeleteError) as error:
            last = error
    raise last


@pytest.mark.parametrize("like_nfs", [False, True], ids=["local", "nfs"])
def test_of_many_claims_on_one_path_exactly_one_gets_it(rig: Rig, like_nfs: bool) -> None:
    rig.sys = FaultySys(like_nfs=like_nfs)
    rig.start()
    gate = threading.Barrier(THREADS)
    won: list[str] = []
    lost: list[str] = []

    def work(number: int) -> None:
        request = rig.request(make_claim(f"data-{number}", "ns1"), {"pathPattern": "one/place"})
        gate.wait()
        try:
            rig.plugin.provision(request)
        except ProvisionError as error:
            lost.append(str(error))
        else:
            won.append(request.pv_name)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(won) == 1
    assert len(lost) == THREADS - 1
    assert len(rig.owners()) == 1
    assert rig.staged() == []
