"""Which volumes are at, inside and around a directory, among many."""

from __future__ import annotations

import time

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from prov_host import Volume
from prov_host.safedir import overlaps
from prov_host_nfs_subdir.locating import parts_in, users
from prov_host_nfs_subdir.settings import Export, NfsSubdirSettings, read_exports

(EXPORT,) = read_exports(NfsSubdirSettings(server="nfs", path="/exports/k8s", provisioner=("p",)), {})


def volume(name: str, path: str, server: str = "nfs") -> Volume:
    wire = {"metadata": {"name": name}, "spec": {"nfs": {"server": server, "path": path}}}
    return msgspec.convert(wire, Volume)


def slowly(export: Export, volumes: list[Volume], parts: tuple[str, ...], but: str) -> set[str]:
    """What the rule says, word by word."""
    return {
        one.name for one in volumes if one.name != but and (theirs := parts_in(export, one)) and overlaps(theirs, parts)
    }


NAMES = st.sampled_from(["a", "b", "ab"])
PATHS = st.lists(NAMES, max_size=4).map("/".join)


@settings(deadline=None)
@given(st.lists(st.lists(PATHS, max_size=6), max_size=5), st.lists(NAMES, min_size=1, max_size=3).map(tuple))
def test_the_index_finds_what_the_rule_says_while_volumes_come_and_go(
    generations: list[list[str]], parts: tuple[str, ...]
) -> None:
    kept: list[Volume] = []
    for number, paths in enumerate(generations):
        kept = kept[1::2] + [volume(f"pv-{number}-{n}", f"/exports/k8s/{path}") for n, path in enumerate(paths)]
        for but in ("", f"pv-{number}-0"):
            found = [use.volume.name for use in users(EXPORT, kept, parts, but)]
            assert len(found) == len(set(found))
            assert set(found) == slowly(EXPORT, kept, parts, but)


def test_volumes_of_other_servers_paths_and_kinds_do_not_count() -> None:
    others = [
        volume("server", "/exports/k8s/a", "other"),
        volume("path", "/exports/k8s2/a"),
        volume("root", "/exports/k8s"),
        volume("above", "/exports"),
        volume("relative", "exports/k8s/a"),
        msgspec.convert({"metadata": {"name": "local"}, "spec": {"hostPath": {"path": "/exports/k8s/a"}}}, Volume),
        msgspec.convert({"metadata": {"name": "odd"}, "spec": {"nfs": {"server": 1, "path": None}}}, Volume),
    ]
    assert users(EXPORT, others, ("a",), "") == []
    assert [use.volume.name for use in users(EXPORT, [*others, volume("it", "/exports/k8s/a/")], ("a",), "")] == ["it"]


def test_asking_again_among_ten_thousand_volumes_costs_next_to_nothing() -> None:
    many = tuple(volume(f"pv-{n}", f"/exports/k8s/team/ns{n % 50}/d{n}") for n in range(10_000))
    users(EXPORT, many, ("team", "ns1", "new"), "")
    best = min(_seconds(many) for _ in range(5))
    assert best < 0.02, "a scan of them all takes longer"


def _seconds(many: tuple[Volume, ...]) -> float:
    began = time.thread_time()
    assert users(EXPORT, many, ("team", "ns1", "new"), "") == []
    return time.thread_time() - began
