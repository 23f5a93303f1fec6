"""The system has no thread to give for a moment: nothing of an export is dead afterwards."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

from nfs_rig import Rig
from prov_host import DeleteError, NoChange
from prov_host.testing.objects import make_claim
from prov_host_nfs_subdir.lanes import STUCK, Lane, Late


@contextlib.contextmanager
def shortage(monkeypatch: pytest.MonkeyPatch, of: str = "") -> Iterator[None]:
    """No thread whose name has ``of`` in it can be started."""
    real = threading.Thread.start

    def start(self: threading.Thread) -> None:
        if of in self.name:
            raise RuntimeError("can't start new thread")
        real(self)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        yield


def test_operations_without_a_thread_are_not_begun_and_take_no_slot(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    lane = Lane("default", 1, rig.host, patience=0.05)
    ran: list[str] = []
    with shortage(monkeypatch):
        for _ in range(3):
            with pytest.raises(Late, match=r"'default': could not start the thread .* nothing was begun") as caught:
                lane.run("provision", "pv-1", lambda: ran.append("refused"))
            assert not caught.value.running
    rig.clock._move(STUCK + 1)  # nobody sleeps on this clock
    assert lane.stuck_for() == 0
    assert lane.run("provision", "pv-1", lambda: "made") == "made"
    assert lane.run("delete", "pv-2", lambda: "removed") == "removed"
    assert ran == []


def test_claims_and_volumes_are_tried_again_after_a_shortage_of_threads(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = rig.make("ns1", "kept")
    request = rig.request(make_claim("data", "ns1"))
    with shortage(monkeypatch):
        with pytest.raises(NoChange, match=r"claim ns1/data: .* could not start the thread"):
            rig.plugin.provision(request)
        with pytest.raises(DeleteError, match="could not start the thread"):
            rig.plugin.delete(kept)
    assert rig.directory(rig.provision(request)).is_dir()
    rig.delete(kept)
    assert len(rig.tree()) == 1


def test_a_share_that_could_not_be_looked_at_is_looked_at_by_the_next_check(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shortage(monkeypatch):
        (problem,) = rig.plugin.check()
    assert "was not looked at: could not start the thread" in problem
    assert list(rig.plugin.check()) == []


def test_trash_that_found_no_thread_is_emptied_by_the_next_sweep(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (served,) = rig.plugin._served.values()
    volumes = [rig.make("ns1", name) for name in ("first", "second")]
    with shortage(monkeypatch, of="-trash"):
        for volume in volumes:
            rig.plugin.delete(volume)
        assert served.trash.sweep() == 2
    (said,) = (record.getMessage() for record in caplog.records)
    assert said.startswith("export default: the trash is emptied later: could not start the thread")
    assert len(rig.trash()) == 2
    assert served.trash.sweep() == 2
    assert rig.plugin.wait_for_trash(20)
    assert rig.trash() == []
