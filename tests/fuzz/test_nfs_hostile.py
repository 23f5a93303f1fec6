"""Hostile claims, classes, volumes and shares: nothing outside a volume's own directory is ever touched.

Together the tests make 20,000 examples. Each builds a share with a neighbour's volume, links that lead out of it,
around in it and in circles, and a directory beside it that must never change.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import tempfile
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, assume, example, given, settings
from hypothesis import strategies as st

from nfs_rig import EXPORT, PROVISIONER, SERVER, Rig, tree_of
from prov_host import DeleteError, Infeasible, Outcome, Volume
from prov_host.safedir import UnsafeName, normalize_absolute, relative_parts, split_relative
from prov_host.testing.objects import make_claim
from prov_host_nfs_subdir.parameters import read_parameters
from prov_host_nfs_subdir.pattern import parse
from prov_host_nfs_subdir.values import parse_duration, parse_id, parse_mode, parse_range

QUICK = {
    "deadline": None,
    "phases": (Phase.explicit, Phase.reuse, Phase.generate),
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
}

# --- what hostile people write --------------------------------------------------------------------------------------

SEGMENTS = st.sampled_from(
    [
        "..",
        ".",
        "",
        "a",
        "b",
        "out",
        "up",
        "loop",
        "self",
        "file",
        "ns",
        "victim",
        "empty",
        "full",
        ".prov-host",
        ".PROV-HOST",
        "trash",
        "owners",
        "sentinel",
        "archived-x",
        "\0",
        "..\\x",
        "x\ny",
        "\u202e",
        "\uff0e\uff0e",
        "x" * 255,
        "x" * 256,
        "ü" * 127,
        "~",
        "-rf",
        "*",
        " ",
        "$",
        "${",
        "}",
        "${.PVC.name}",
        "${.PV.name}",
        ".nfs0001",
    ]
)
TEXT = st.text(max_size=6)
VALUES = st.one_of(SEGMENTS, st.lists(st.one_of(SEGMENTS, TEXT), max_size=5).map("/".join), TEXT)
TOKENS = st.sampled_from(
    [
        "${.PVC.namespace}",
        "${.PVC.name}",
        "${.PV.name}",
        "${.PVC.labels.l}",
        "${.PVC.annotations.p}",
        "${.PVC.annotations.q}",
        "${.PVC.labels.none:-d}",
        "${.PVC.labels.none:-}",
        "${.PVC.annotations.p:-${.PVC.name}}",
        "$${.PVC.name}",
    ]
)
PATTERNS = st.one_of(
    st.lists(st.one_of(TOKENS, SEGMENTS, st.just("/"), st.just("/")), min_size=1, max_size=8).map("".join),
    st.lists(st.one_of(TOKENS, SEGMENTS), min_size=1, max_size=5).map("/".join),
    TEXT,
)
FLAGS = st.sampled_from(["true", "false"])
NAMES = st.one_of(st.sampled_from(["data", "victim", "a", "..", "../x", "", "x/y"]), TEXT)


@st.composite
def claims(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "name": draw(NAMES),
        "namespace": draw(NAMES),
        "labels": {"l": draw(VALUES)},
        "annotations": {"p": draw(VALUES), "q": draw(VALUES), "prov-host/mode": "0777"}
        | ({} if draw(st.booleans()) else {"prov-host/uid": draw(VALUES)}),
    }


PARAMETERS = st.fixed_dictionaries(
    {"pathPattern": PATTERNS, "allowSlashInValues": FLAGS, "adoptExisting": FLAGS},
    optional={"mode": st.sampled_from(["0700", "0000", "4777"]), "allowOverride": st.just("mode")},
)

# --- the playground --------------------------------------------------------------------------------------------------


class Playground:
    """A share with traps, and what is beside it."""

    def __init__(self, directory: Path) -> None:
        self.base = directory
        self.outside = directory / "outside"
        self.outside.mkdir()
        (self.outside / "secret").mkdir(mode=0o700)
        (self.outside / "secret" / "file").write_bytes(b"secret")
        self.share = directory / "share"
        self.share.mkdir(mode=0o755)
        self.rig = rig = Rig(self.share)
        self.start()
        self.victim = rig.make("ns", "victim", {"pathPattern": "ns/victim"}, uid="99999999-0000-4000-8000-000000000009")
        (rig.directory(self.victim) / "precious").write_bytes(b"precious")
        (self.share / "out").symlink_to(self.outside)
        (self.share / "up").symlink_to("..")
        (self.share / "self").symlink_to(".")
        (self.share / "loop").symlink_to("loop")
        (self.share / "file").write_bytes(b"file")
        (self.share / "empty").mkdir(mode=0o750)
        (self.share / "full" / "inner").mkdir(parents=True)
        (self.share / "full" / "inner" / "f").write_bytes(b"f")
        (self.share / "full" / "link").symlink_to(self.outside / "secret")
        (self.share / "archived-x").mkdir()
        (self.share / "archived-x.json").write_bytes(b'{"name": "archived-x", "archived": "2026-01-01T00:00:00Z"}')
        self.owners = self.share / ".prov-host" / "owners"
        self.records = set(os.listdir(self.owners))
        self.inside = self.existing()
        self.beside = tree_of(self.outside)

    def start(self) -> None:
        self.rig.start()
        for served in self.rig.plugin._served.values():
            served.trash.add = lambda _name: None  # type: ignore[method-assign]

    def existing(self) -> dict[str, str]:
        return tree_of(self.share, skip=(".prov-host",))

    def check(self) -> None:
        """Nothing that was there before has changed, and nothing is where nothing may be."""
        assert tree_of(self.outside) == self.beside
        assert sorted(os.listdir(self.base)) == ["outside", "share"]
        now = self.existing()
        assert {path: now.get(path) for path in self.inside} == self.inside

    def reset(self) -> None:
        """Forget what the last example made."""
        for path in sorted(self.existing().keys() - self.inside.keys(), key=len):
            there = self.share / path
            if there.is_dir() and not there.is_symlink():
                shutil.rmtree(there)
            else:
                there.unlink(missing_ok=True)
        shutil.rmtree(self.share / ".prov-host" / "trash", ignore_errors=True)
        # A volume that was kept has a record, and a later one around or inside its directory would be refused.
        left_over = set(os.listdir(self.owners)) - self.records
        for name in left_over:
            (self.owners / name).unlink()
        for served in self.rig.plugin._served.values():
            served.work._reserved.clear()
            for name in left_over:
                served.work.owners._put(name, None)


@pytest.fixture(scope="module")
def playground() -> Iterator[Playground]:
    memory = "/dev/shm"
    directory = Path(tempfile.mkdtemp(prefix="prov-host-", dir=memory if os.access(memory, os.W_OK) else None))
    yield Playground(directory)
    shutil.rmtree(directory, ignore_errors=True)


# --- properties ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", range(2))
@settings(max_examples=3000, **QUICK)
@given(pattern=PATTERNS, claim=claims(), slashes=st.booleans())
@example(pattern="${.PVC.annotations.p}", claim={"annotations": {"p": "a/../../x"}}, slashes=True)
def test_whatever_a_pattern_renders_to_is_a_path_strictly_inside(
    pattern: str, claim: dict[str, Any], slashes: bool, part: int
) -> None:
    try:
        names = parse(pattern).render(make_claim(**claim), "pvc-1", allow_slash=slashes)
    except Infeasible:
        return
    if not names:
        return
    path = "/".join(names)
    assert posixpath.normpath(path) == path
    assert not path.startswith(("/", "../"))
    assert path not in {"..", "."}
    for name in names:
        assert 0 < len(name.encode()) <= 255
        assert "\\" not in name
        assert not any(unicodedata.category(c) in {"Cc", "Cf"} for c in name)
        assert not name.casefold().startswith(".prov-host")
    if not slashes:
        # Only the pattern's own text can have made levels.
        assert len(names) <= pattern.count("/") + 1


@pytest.mark.parametrize("part", range(2))
@settings(max_examples=2000, **QUICK)
@given(claim=claims(), parameters=PARAMETERS, hook=st.sampled_from(["delete", "archive", "keep"]))
def test_no_claim_and_no_class_leads_out_of_its_own_directory(
    playground: Playground, claim: dict[str, Any], parameters: dict[str, str], hook: str, part: int
) -> None:
    playground.reset()
    rig = playground.rig
    if parameters["adoptExisting"] == "true":
        hook = "keep"  # what is adopted may be removed later; everything else may never be
    request = rig.request(make_claim(**claim), parameters)
    try:
        volume = rig.provision(request, save=False)
    except Outcome:
        playground.check()
        assert playground.existing() == playground.inside
        return
    playground.check()
    parts = volume.record["path"].split("/")
    assert (playground.share / volume.record["path"]).is_dir()
    assert not any(playground.share.joinpath(*parts[:depth]).is_symlink() for depth in range(1, len(parts) + 1))
    if hook != "keep":
        getattr(rig.plugin, hook)(volume)
        assert not (playground.share / volume.record["path"]).exists()
        new = playground.existing().keys() - playground.inside.keys()
        assert all(path.startswith("archived-ns") or "archived-" in path for path in new)
        assert bool(new) == (hook == "archive")
    playground.check()


PATHS = st.one_of(
    st.lists(SEGMENTS, max_size=6).map(lambda parts: EXPORT + "/" + "/".join(parts)),
    st.lists(SEGMENTS, max_size=6).map(lambda parts: "/" + "/".join(parts)),
    st.sampled_from([EXPORT, EXPORT + "/", EXPORT + "2/x", "/", "", EXPORT + "/ns", f"{EXPORT}/ns/victim/../victim"]),
    TEXT,
)
RECORDS = st.one_of(
    st.none(),
    TEXT,
    st.fixed_dictionaries(
        {},
        optional={
            "path": st.one_of(VALUES, st.sampled_from(["ns/victim", "empty", "full", "out/secret"])),
            "root": st.sampled_from(["", "id-00000001", "id-00000002", "x"]),
            "inode": st.sampled_from(["", "1", "-1"]),
            "export": st.sampled_from(["", "default", "x"]),
            "adopted": FLAGS,
            "retention": VALUES,
        },
    ).map(lambda record: msgspec.json.encode(record).decode()),
)


@pytest.mark.parametrize("part", range(2))
@settings(max_examples=2500, **QUICK)
@given(
    path=st.one_of(PATHS, st.integers(), st.none()),
    server=st.sampled_from([SERVER, SERVER.upper(), "other", "", None]),
    record=RECORDS,
    provisioned_by=st.sampled_from([PROVISIONER, "other", None]),
    name=st.sampled_from(["pvc-1", "..", "pvc-99999999-0000-4000-8000-000000000009", "", "x/y"]),
    hook=st.sampled_from(["delete", "archive"]),
    known=st.booleans(),
)
@example(f"{EXPORT}/ns/victim", SERVER, None, PROVISIONER, "pvc-1", "delete", True)
@example(f"{EXPORT}/ns/victim", SERVER, '{"path": "ns/victim"}', PROVISIONER, "pvc-1", "delete", False)
@example(f"{EXPORT}/ns", SERVER, None, PROVISIONER, "pvc-1", "delete", False)
@example(f"{EXPORT}/full/link/file", SERVER, None, PROVISIONER, "pvc-1", "delete", False)
def test_no_volume_gets_what_is_not_its_own(  # noqa: PLR0917
    playground: Playground,
    part: int,
    path: object,
    server: str | None,
    record: str | None,
    provisioned_by: str | None,
    name: str,
    hook: str,
    known: bool,
) -> None:
    """All but directories that really are there, without owner, and that an old volume of ours names."""
    assume(name != playground.victim.name or "victim" not in str(path))  # its own, whatever it lost
    playground.reset()
    rig = playground.rig
    annotations = {"pv.kubernetes.io/provisioned-by": provisioned_by, "prov-host/record": record}
    wire = {
        "metadata": {"name": name, "uid": "1", "annotations": {k: v for k, v in annotations.items() if v is not None}},
        "spec": {"nfs": {"server": server, "path": path}},
        "status": {"phase": "Released"},
    }
    volume = msgspec.convert(wire, Volume)
    rig.volumes = {playground.victim.name: playground.victim} if known or name == playground.victim.name else {}
    rig.host.known_volumes = list(rig.volumes.values())
    foreign = record is None and provisioned_by == PROVISIONER
    before = playground.inside
    with suppress(DeleteError):
        getattr(rig.plugin, hook)(volume)
    now = playground.existing()
    lost = {one for one in before if now.get(one) != before[one]}
    assert tree_of(playground.outside) == playground.beside
    assert not any(one == "ns" or one.startswith("ns/") for one in lost)
    if lost:
        # The Go provisioner's volumes have nothing but their path: that directory, whole, and nothing else.
        assert foreign
        assert isinstance(path, str)
        parts = relative_parts(normalize_absolute(path), EXPORT)
        assert parts
        top = "/".join(parts)
        assert all(one == top or one.startswith(top + "/") for one in lost)
        _put_back(playground, hook, top)
        playground.reset()
        playground.check()


def _put_back(playground: Playground, hook: str, top: str) -> None:
    area = playground.share if hook == "archive" else playground.share / ".prov-host" / "trash"
    inode = playground.inside[top].split()[2]
    (moved,) = [path for path in area.iterdir() if str(path.lstat().st_ino) == inode]
    (playground.share / f"{moved.name}.json").unlink(missing_ok=True)
    moved.rename(playground.share / top)


@settings(max_examples=2500, **QUICK)
@given(st.one_of(PATHS, st.lists(SEGMENTS, max_size=8).map(lambda parts: "/" + "/".join(parts))))
def test_absolute_paths_are_normalized_as_text(path: str) -> None:
    try:
        normal = normalize_absolute(path)
    except UnsafeName:
        assert not path.startswith("/") or "\0" in path or ".." in path.split("/")
        return
    assert normal == "/" + posixpath.normpath(path).lstrip("/")
    assert normalize_absolute(normal) == normal
    parts = relative_parts(normal, EXPORT)
    assert (parts is not None) == (normal == EXPORT or normal.startswith(EXPORT + "/"))
    if parts:
        with suppress(UnsafeName):
            assert split_relative("/".join(parts)) == parts


@settings(max_examples=2500, **QUICK)
@given(
    st.dictionaries(
        st.one_of(
            st.sampled_from(["mode", "uid", "gid", "uidRange", "allowOverride", "archiveRetention", "export"]), TEXT
        ),
        st.one_of(TEXT, st.sampled_from(["0o888", "-1", "99999", "1-2", "2-1", "30d", "uid,gid", "٣"])),
        max_size=5,
    )
)
def test_class_parameters_are_read_or_refused(parameters: dict[str, str]) -> None:
    try:
        read = read_parameters(parameters)
    except Infeasible:
        return
    assert read.mode is None or 0 <= read.mode <= 0o777
    assert read.uid is None or 0 <= read.uid <= 65535
    assert read.retention is None or read.retention > 0
    for parser, low, high in ((parse_mode, 0, 0o777), (parse_id, 0, 65535), (parse_duration, 0, None)):
        for text in parameters.values():
            try:
                number = parser(text)
            except ValueError:
                continue
            assert number >= low
            assert high is None or number <= high
    for text in parameters.values():
        try:
            first, last = parse_range(text)
        except ValueError:
            continue
        assert 0 <= first <= last <= 65535
