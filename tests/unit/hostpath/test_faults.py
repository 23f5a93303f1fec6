"""Every file system call may fail, and the process may die at every one: nothing is leaked, lost or mixed up."""

from __future__ import annotations

import errno
import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prov_host import DeleteError, InBackground, Outcome, Provisioned, ProvisionError, ProvisionRequest, Volume
from prov_host.safedir import RealSys
from prov_host.testing import FakeHost, make_claim, make_class, make_request, make_volume
from prov_host_hostpath import HostpathPlugin, HostpathSettings

CODES = (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO, errno.ESTALE)
_PASSIVE = {"close", "mounts"}  # closing never fails in a way that matters


class Crash(BaseException):
    """The process died here."""


class Faulty(RealSys):
    """Raises at the n-th call of the file system, and from then on if it is a crash."""

    def __init__(self, at: int, failure: BaseException) -> None:
        self.at = at
        self.failure = failure
        self.calls = 0

    def __getattribute__(self, name: str) -> Any:
        attribute = super().__getattribute__(name)
        if name.startswith("_") or name in _PASSIVE or not callable(attribute):
            return attribute

        def call(*args: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls == self.at or (self.calls > self.at and isinstance(self.failure, Crash)):
                raise self.failure
            return attribute(*args, **options)

        return call


class FaultyWithoutNoReplace(Faulty):
    """A file system that cannot rename without replacing, like NFS: the place is reserved first."""

    def rename_noreplace(self, old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument", old)


class Node:
    """The storage of one node, and what is asked of it with and without faults."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.request: ProvisionRequest = make_request(make_claim("data", "ns1"), make_class(), selected_node="node-1")

    def plugin(self, sys: RealSys | None = None) -> HostpathPlugin:
        plugin = HostpathPlugin(environ={}, sys=sys)
        plugin.configure(HostpathSettings(directories=(str(self.root),)), FakeHost("hostpath", node_name="node-1"))
        return plugin

    def volume(self) -> Volume:
        return make_volume(self.request, self.plugin().provision(self.request), plugin="hostpath")

    def leftovers(self) -> list[str]:
        """Everything below the root but the volumes' own private area, which is looked into."""
        private = self.root / ".prov-host"
        kept = [path.name for path in self.root.iterdir() if path != private]
        for folder in ("owners", "making", "trash", "archive"):
            if (private / folder).is_dir():
                kept += [f"{folder}/{path.name}" for path in (private / folder).iterdir()]
        return sorted(kept)


@pytest.fixture
def fresh() -> Iterator[Callable[[], Node]]:
    """Makes empty nodes, in memory where that can be: each writes a hundred files to its disk and waits for it."""
    memory = "/dev/shm"
    numbers = itertools.count()
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as directory:

        def fresh() -> Node:
            root = Path(directory, f"n{next(numbers)}")
            root.mkdir()
            return Node(root)

        yield fresh


def _outcome(ask: Callable[[], object]) -> Outcome | None:
    """What came out, if it was an outcome; any other exception fails the test."""
    try:
        ask()
    except Outcome as outcome:
        return outcome
    return None


def _calls(node: Node, ask: Callable[[HostpathPlugin], object], kind: type[Faulty] = Faulty) -> int:
    sys = kind(10**9, Crash())
    ask(node.plugin(sys))
    return sys.calls


@pytest.mark.parametrize("code", CODES, ids=lambda code: errno.errorcode[code])
def test_a_failed_provision_says_so_and_leaves_nothing_or_is_finished_by_asking_again(fresh: Any, code: int) -> None:
    node = fresh()
    total = _calls(node, lambda plugin: plugin.provision(node.request))
    assert total > 20
    for at in range(1, total + 1):
        node = fresh()
        sys = Faulty(at, OSError(code, "injected"))
        outcome = _outcome(lambda node=node, sys=sys: node.plugin(sys).provision(node.request))
        if outcome is not None:
            assert isinstance(outcome, ProvisionError | InBackground), at
            assert "injected" in str(outcome), at
        if isinstance(outcome, ProvisionError):
            assert node.leftovers() == [], at
        answer = node.plugin().provision(node.request)  # healed
        assert isinstance(answer, Provisioned)
        volume = make_volume(node.request, answer)
        assert node.plugin().delete(volume).message.endswith("is removed"), at
        node.plugin().empty_trash()
        assert node.leftovers() == [], at


@pytest.mark.parametrize("kind", [Faulty, FaultyWithoutNoReplace])
def test_a_crash_while_provisioning_is_finished_by_asking_again(fresh: Any, kind: type[Faulty]) -> None:
    node = fresh()
    total = _calls(node, lambda plugin: plugin.provision(node.request), kind)
    for at in range(1, total + 1):
        node = fresh()
        with pytest.raises(Crash):
            node.plugin(kind(at, Crash())).provision(node.request)
        first = node.plugin().provision(node.request)
        assert node.plugin().provision(node.request) == first
        path = Path(first.source["local"]["path"])
        assert path.stat().st_mode & 0o7777 == 0o777, at
        assert [name for name in node.leftovers() if not name.startswith("owners/")] == [path.name], at


@pytest.mark.parametrize("hook", ["delete", "archive"])
@pytest.mark.parametrize("code", CODES, ids=lambda code: errno.errorcode[code])
def test_a_failed_removal_says_so_and_is_finished_by_asking_again(fresh: Any, hook: str, code: int) -> None:
    node = fresh()
    volume = node.volume()
    total = _calls(node, lambda plugin: getattr(plugin, hook)(volume))
    for at in range(1, total + 1):
        node = fresh()
        volume = node.volume()
        path = Path(volume.spec.local["path"])  # type: ignore[index]
        (path / "precious").write_text("data")
        plugin = node.plugin(Faulty(at, OSError(code, "injected")))
        outcome = _outcome(lambda plugin=plugin, volume=volume: getattr(plugin, hook)(volume))
        if outcome is not None:
            assert isinstance(outcome, DeleteError), at
            assert "injected" in str(outcome), at
        _settled(node, volume, hook, at)


@pytest.mark.parametrize("hook", ["delete", "archive"])
def test_a_crash_while_removing_is_finished_by_asking_again(fresh: Any, hook: str) -> None:
    node = fresh()
    volume = node.volume()
    total = _calls(node, lambda plugin: getattr(plugin, hook)(volume))
    for at in range(1, total + 1):
        node = fresh()
        volume = node.volume()
        (Path(volume.spec.local["path"]) / "precious").write_text("data")  # type: ignore[index]
        with pytest.raises(Crash):
            getattr(node.plugin(Faulty(at, Crash())), hook)(volume)
        _settled(node, volume, hook, at)


def _settled(node: Node, volume: Volume, hook: str, at: int) -> None:
    """Asked again, the volume is gone; its data is in the archive once, or nowhere."""
    getattr(node.plugin(), hook)(volume)
    copies = [str(path.relative_to(node.root)) for path in node.root.rglob("precious")]
    if hook == "archive":
        (copy,) = copies
        assert copy.startswith(".prov-host/archive/"), (at, copies)
    else:
        assert all(copy.startswith(".prov-host/trash/") for copy in copies), (at, copies)
    node.plugin().empty_trash()
    left = [name for name in node.leftovers() if not name.startswith("archive/")]
    assert left == [], (at, left)


def test_a_failure_while_emptying_the_trash_is_made_up_for_later(fresh: Any) -> None:
    node = fresh()
    volume = node.volume()
    node.plugin().delete(volume)
    node.plugin(Faulty(30, OSError(errno.EIO, "injected"))).empty_trash()
    node.plugin().empty_trash()
    assert node.leftovers() == []


def test_an_outcome_is_all_that_ever_comes_out(fresh: Any) -> None:
    node = fresh()
    total = _calls(node, lambda plugin: plugin.provision(node.request))
    for at in range(1, total + 1):
        plugin = fresh().plugin(Faulty(at, PermissionError(errno.EPERM, "Operation not permitted")))
        outcome = _outcome(lambda plugin=plugin: plugin.provision(node.request))
        if outcome is not None:
            assert "the host's user may not do this" in str(outcome)
