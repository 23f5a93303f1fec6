"""Names and paths as text."""

from __future__ import annotations

import pytest

from prov_host.safedir import (
    UnsafeName,
    check_name,
    check_new_name,
    normalize_absolute,
    overlaps,
    relative_parts,
    split_relative,
)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/", "a\0", "x" * 256, "ü" * 128, "\ud800"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(UnsafeName):
        check_name(name)
    with pytest.raises(UnsafeName):
        check_new_name(name)


@pytest.mark.parametrize(
    "name", ["a\nb", "\x7f", "a\\b", " ", "\u202e", "\u200b", "\u2028", "\uff0e", "\u2025", "\uff0f", "\udc80"]
)
def test_odd_names_may_exist_but_are_not_made(name: str) -> None:
    check_name(name)
    with pytest.raises(UnsafeName):
        check_new_name(name)


@pytest.mark.parametrize("name", ["a", "...", "-rf", "日本", "x" * 255, "a b", "é"])
def test_ordinary_names_are_fine(name: str) -> None:
    check_new_name(name)


def test_a_message_never_carries_what_it_refuses_raw() -> None:
    with pytest.raises(UnsafeName) as caught:
        check_new_name("\x1b[2J" * 100)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("path", "normal"),
    [
        ("/", "/"),
        ("//", "/"),
        ("/exports/k8s/", "/exports/k8s"),
        ("//exports//k8s", "/exports/k8s"),
        ("/exports/../exports/./k8s", "/exports/k8s"),
        ("/a/b/..", "/a"),
        ("/a/..", "/"),
    ],
)
def test_absolute_paths_are_normalized(path: str, normal: str) -> None:
    assert normalize_absolute(path) == normal


@pytest.mark.parametrize("path", ["", "a", "./a", "/..", "/a/../..", "/a\0"])
def test_paths_that_are_not_absolute_are_refused(path: str) -> None:
    with pytest.raises(UnsafeName):
        normalize_absolute(path)


@pytest.mark.parametrize(
    ("path", "root", "parts"),
    [
        ("/exports/k8s/a/b", "/exports/k8s", ("a", "b")),
        ("/exports/k8s", "/exports/k8s", ()),
        ("/exports/k8s2/x", "/exports/k8s", None),
        ("/exports", "/exports/k8s", None),
        ("/a", "/", ("a",)),
        ("/", "/", ()),
    ],
)
def test_a_path_below_a_root(path: str, root: str, parts: tuple[str, ...] | None) -> None:
    assert relative_parts(path, root) == parts


@pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", "a/../b", "./a"])
def test_a_relative_path_that_was_not_written_by_us_is_refused(path: str) -> None:
    with pytest.raises(UnsafeName):
        split_relative(path)


def test_overlapping_paths() -> None:
    assert overlaps(("a",), ("a",))
    assert overlaps(("a", "b"), ("a",))
    assert overlaps(("a",), ("a", "b"))
    assert not overlaps(("a",), ("ab",))
    assert not overlaps(("a", "b"), ("a", "c"))
