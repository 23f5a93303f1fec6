"""Every file system call fails once, or from then on, or is the last one of a process: nothing is lost, nothing leaks.

Each scenario is one operation on a share with a neighbour. Whatever goes wrong in the middle, the operation ends with
an outcome of the API, the neighbour stays as it is, and after healing (or in the next process) the same operation
ends as if nothing had happened.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from faulty_sys import ERRORS, Crash, FaultySys
from nfs_rig import Rig
from prov_host import Outcome, Removed, Volume
from prov_host.testing.objects import make_claim

PATTERN = {"pathPattern": "team/${.PVC.namespace}/${.PVC.name}"}
CONTENT = b"the only copy"


@dataclass
class Scenario:
    """One operation: what is there before it, and how it is called."""

    prepare: Callable[[Rig], Volume | None]
    run: Callable[[Rig, Volume | None], object]
    keeps: bool


def _nothing(_rig: Rig) -> None:
    return None


def _filled(rig: Rig) -> Volume:
    volume = rig.make("ns1", "data", PATTERN, uid="11111111-0000-4000-8000-000000000001")
    (rig.directory(volume) / "f").write_bytes(CONTENT)
    return volume


def _foreign(rig: Rig) -> Volume:
    """A volume of the Go provisioner, on a share with a directory but no record of it."""
    volume = rig.without_record(_filled(rig))
    shutil.rmtree(rig.share / ".prov-host" / "owners")
    shutil.rmtree(rig.share / ".prov-host" / "parents")
    rig.put(volume)
    rig.start()
    return volume


def _existing(rig: Rig) -> None:
    data = rig.share / "team" / "ns1" / "data"
    data.mkdir(parents=True)
    (data / "f").write_bytes(CONTENT)


def _provision(parameters: dict[str, str]) -> Callable[[Rig, Volume | None], object]:
    def run(rig: Rig, _volume: Volume | None) -> object:
        claim = make_claim("data", "ns1", uid="11111111-0000-4000-8000-000000000001")
        return rig.plugin.provision(rig.request(claim, parameters))

    return run


def _call(hook: str) -> Callable[[Rig, Volume | None], object]:
    return lambda rig, volume: getattr(rig.plugin, hook)(volume)


SCENARIOS = {
    "provision": Scenario(_nothing, _provision({**PATTERN, "mode": "0770"}), keeps=False),
    "adopt": Scenario(_existing, _provision({**PATTERN, "adoptExisting": "true"}), keeps=True),
    "delete": Scenario(_filled, _call("delete"), keeps=False),
    "archive": Scenario(_filled, _call("archive"), keeps=True),
    "delete-foreign": Scenario(_foreign, _call("delete"), keeps=False),
    "archive-foreign": Scenario(_foreign, _call("archive"), keeps=True),
}


class Bench:
    """One share on which a scenario is run with a fault."""

    def __init__(self, directory: Path, scenario: Scenario, sys: FaultySys, *, fresh: bool = False) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        directory.chmod(0o755)
        self.rig = rig = Rig(directory)
        self.scenario = scenario
        self.neighbour: Path | None = None
        if not fresh:
            rig.start()
            self.neighbour = rig.directory(rig.make("ns2", "neighbour", {"pathPattern": "ns2/${.PVC.name}"}))
            (self.neighbour / "precious").write_bytes(b"precious")
        else:
            rig.start()
        self.volume = scenario.prepare(rig)
        self.before = shape(rig)
        rig.sys = sys
        self.process()
        sys.calls = 0
        sys.log.clear()

    def process(self) -> None:
        """The next process on the share; it leaves the trash alone, so that what is in it can be looked at."""
        self.rig.start()
        for served in self.rig.plugin._served.values():
            served.trash.add = lambda _name: None  # type: ignore[method-assign]

    def run(self) -> object:
        return self.scenario.run(self.rig, self.volume)

    def outcome(self) -> str:
        """Run it; what it says when it fails, "" when it does not."""
        try:
            self.run()
        except Outcome as error:
            return str(error)
        return ""

    def check_nothing_lost(self) -> None:
        rig = self.rig
        if self.neighbour is not None:
            assert (self.neighbour / "precious").read_bytes() == b"precious"
        if "f" in "".join(self.before) and any(name.endswith("/f") for name in self.before):
            copies = [path for path in rig.share.rglob("f") if path.read_bytes() == CONTENT]
            assert len(copies) == 1, f"{len(copies)} copies of the data"
            in_trash = ".prov-host/trash" in str(copies[0])
            assert not (in_trash and self.scenario.keeps)

    def end(self) -> dict[str, str]:
        """The state at the end, without what differs between runs by its nature."""
        return shape(self.rig)


def shape(rig: Rig) -> dict[str, str]:
    found = {}
    for path in sorted(rig.share.rglob("*")):
        name = str(path.relative_to(rig.share))
        # A note about a volume that was taken over is left out where there is no room for it.
        if re.match(r"\.prov-host/(owners|parents|released)(/|$)", name):
            continue
        name = re.sub(r"(trash/[0-9a-f]+)\.\d+", r"\1", name)
        status = path.lstat()
        content = path.read_bytes().hex() if path.is_file() and not path.name.endswith((".json", "sentinel")) else ""
        found[name] = f"{status.st_mode:o} {content}"
    found.pop(".prov-host/new", None)
    for area in ("owners", "parents", "trash"):
        found.pop(f".prov-host/{area}", None)
    owners = [name for name in rig.owners() if name.endswith(".json")]
    return {**found, "number of owners": str(len(owners))}


def expected(
    quick_path: Path, scenario: Scenario, *, like_nfs: bool, fresh: bool = False
) -> tuple[dict[str, str], FaultySys]:
    sys = FaultySys(like_nfs=like_nfs)
    bench = Bench(quick_path / "good", scenario, sys, fresh=fresh)
    bench.run()
    bench.check_nothing_lost()
    return bench.end(), sys


MODES = pytest.mark.parametrize("like_nfs", [False, True], ids=["local", "nfs"])
ALL = pytest.mark.parametrize("name", SCENARIOS)


@ALL
@MODES
@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer-lost"])
def test_a_call_that_fails_once_loses_and_leaks_nothing(
    quick_path: Path, name: str, like_nfs: bool, after: bool
) -> None:
    scenario = SCENARIOS[name]
    wanted, good = expected(quick_path, scenario, like_nfs=like_nfs)
    assert good.calls > 10
    for at in good.changing if after else range(1, good.calls + 1):
        error = ERRORS[at % len(ERRORS)]
        sys = FaultySys(like_nfs=like_nfs, at=at, error=error, after=after)
        bench = Bench(quick_path / "share", scenario, sys)
        outcome = bench.outcome()
        assert not outcome or os.strerror(error) in outcome, sys.what
        bench.check_nothing_lost()
        if outcome and name == "provision" and not after:
            # Final: nothing may be left behind, because nobody may ever ask again.
            assert bench.end() == bench.before, sys.what
            assert bench.rig.staged() == [], sys.what
        sys.heal()
        bench.run()
        assert bench.end() == wanted, f"call {at} ({sys.what}) failed once with {errno.errorcode[error]}"


@ALL
@MODES
def test_a_share_that_stays_broken_loses_nothing_and_heals(quick_path: Path, name: str, like_nfs: bool) -> None:
    scenario = SCENARIOS[name]
    wanted, good = expected(quick_path, scenario, like_nfs=like_nfs)
    for at in good.changing:
        sys = FaultySys(like_nfs=like_nfs, at=at, error=errno.EIO, lasting=True)
        bench = Bench(quick_path / "share", scenario, sys)
        for _attempt in range(2):
            with suppress(Outcome):
                bench.run()
        bench.check_nothing_lost()
        sys.heal()
        bench.run()
        assert bench.end() == wanted, f"from call {at} on ({sys.what})"


@ALL
@MODES
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_at_any_call_is_finished_by_the_next_process(
    quick_path: Path, name: str, like_nfs: bool, after: bool
) -> None:
    scenario = SCENARIOS[name]
    wanted, good = expected(quick_path, scenario, like_nfs=like_nfs)
    for at in good.changing:
        sys = FaultySys(like_nfs=like_nfs, at=at, after=after)
        bench = Bench(quick_path / "share", scenario, sys)
        with suppress(Crash):
            bench.run()
        bench.check_nothing_lost()
        bench.rig.sys = FaultySys(like_nfs=like_nfs)
        bench.process()
        bench.run()
        assert bench.end() == wanted, f"crash at call {at} ({sys.what})"


@MODES
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_while_a_fresh_share_is_taken_into_use_is_finished(
    quick_path: Path, like_nfs: bool, after: bool
) -> None:
    scenario = SCENARIOS["provision"]
    wanted, good = expected(quick_path, scenario, like_nfs=like_nfs, fresh=True)
    for at in good.changing:
        sys = FaultySys(like_nfs=like_nfs, at=at, after=after)
        bench = Bench(quick_path / "share", scenario, sys, fresh=True)
        with suppress(Crash):
            bench.run()
        bench.rig.sys = FaultySys(like_nfs=like_nfs)
        bench.process()
        bench.run()
        end = {name: value for name, value in bench.end().items() if "sentinel." not in name}
        assert end == wanted, f"crash at call {at} ({sys.what})"


@MODES
def test_a_provisioning_that_crashed_and_is_not_wanted_any_more_leaves_nothing(
    quick_path: Path, like_nfs: bool
) -> None:
    scenario = SCENARIOS["provision"]
    _, good = expected(quick_path, scenario, like_nfs=like_nfs)
    for at in good.changing:
        sys = FaultySys(like_nfs=like_nfs, at=at)
        bench = Bench(quick_path / "share", scenario, sys)
        with suppress(Crash):
            bench.run()
        bench.rig.sys = FaultySys(like_nfs=like_nfs)
        bench.process()
        # The host asks again, is answered, and finds that the claim is gone.
        claim = make_claim("data", "ns1", uid="11111111-0000-4000-8000-000000000001")
        request = bench.rig.request(claim, {**PATTERN, "mode": "0770"})
        volume = bench.rig.unsaved(bench.rig.provision(request, save=False))
        assert isinstance(bench.rig.plugin.delete(volume), Removed)
        end = {name: value for name, value in bench.end().items() if "/trash/" not in name}
        assert end == bench.before, f"crash at call {at} ({sys.what})"
        assert bench.rig.staged() == []
        assert os.listdir(bench.rig.share / ".prov-host" / "owners") != []  # the neighbour's


def test_directories_are_never_seen_half_made(quick_path: Path) -> None:
    """Right after each call, whatever is at the volume's path has its final mode, or is an empty reservation."""
    scenario = SCENARIOS["provision"]
    for like_nfs in (False, True):
        _, good = expected(quick_path, scenario, like_nfs=like_nfs)
        for at in good.changing:
            bench = Bench(quick_path / "share", scenario, FaultySys(like_nfs=like_nfs, at=at, after=True))
            with suppress(Crash):
                bench.run()
            path = bench.rig.share / "team" / "ns1" / "data"
            if path.exists():
                mode = stat.S_IMODE(path.stat().st_mode)
                assert mode == 0o770 or (like_nfs and mode == 0o700)
