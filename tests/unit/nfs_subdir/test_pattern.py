"""Rule 1: what a pathPattern renders to, and what it refuses."""

from __future__ import annotations

import pytest

from prov_host import Infeasible
from prov_host.testing.objects import make_claim
from prov_host_nfs_subdir.pattern import parse

LABELS = {"app.kubernetes.io/name": "web", "team": "blue", "empty": ""}
ANNOTATIONS = {"p": "a/b", "dot": ".", "nfs.io/storage-path": "path"}


def render(pattern: str, *, allow_slash: bool = False, **claim: object) -> str:
    options = {"labels": LABELS, "annotations": ANNOTATIONS, **claim}
    return "/".join(
        parse(pattern).render(make_claim("data", "ns1", **options), "pvc-1", allow_slash=allow_slash)  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("${.PVC.namespace}/${.PVC.name}", "ns1/data"),
        ("${.PVC.namespace}-${.PVC.name}", "ns1-data"),
        ("/application/dev/${.PVC.name}", "application/dev/data"),
        ("//application//./dev/${.PVC.name}/", "application/dev/data"),
        ("a//b/./c/", "a/b/c"),
        ("${.PV.name}", "pvc-1"),
        ("${.PVC.labels.app.kubernetes.io/name}/x", "web/x"),
        ("${.PVC.annotations.nfs.io/storage-path}", "path"),
        ("$${.PVC.name}", "$data"),
        ("$$${.PVC.name}$", "$$data$"),
        ("cost$5/${.PVC.name}", "cost$5/data"),
        ("x-${.PVC.labels.missing}", "x-"),
        ("${.PVC.labels.missing:-fallback}/x", "fallback/x"),
        ("${.PVC.labels.empty:-fallback}/x", "fallback/x"),
        ("${.PVC.labels.team:-fallback}/x", "blue/x"),
        ("${.PVC.labels.missing:-${.PVC.name}}/x", "data/x"),
        ("${.PVC.labels.missing:-${.PVC.labels.none:-deep}}/x", "deep/x"),
        ("${.PVC.labels.missing:-}/x", "x"),
        ("${.PVC.labels.missing:-a/b}/x", "a/b/x"),
        ("}${.PVC.name}{", "}data{"),
        ("...", "..."),
    ],
)
def test_tokens_text_and_defaults_render(pattern: str, path: str) -> None:
    assert render(pattern) == path


@pytest.mark.parametrize("pattern", ["", "/", "./", "//.//", "${.PVC.annotations.missing}", "${.PVC.labels.none:-}"])
def test_nothing_left_means_the_default_name(pattern: str) -> None:
    assert render(pattern) == ""


@pytest.mark.parametrize(
    "pattern",
    [
        "${.PVC.labels.missing}/${.PVC.name}",
        "${.PVC.name}/${.PVC.labels.empty}",
        "a/${.PVC.labels.missing}${.PVC.labels.empty}/b",
        "a/${.PVC.annotations.dot}/b",
        "a/.${.PVC.labels.missing}/b",
        ".${.PVC.annotations.dot}/b",
        "${.PVC.labels.missing:-${.PVC.labels.none}}/x",
    ],
)
def test_a_segment_that_a_value_left_empty_is_refused(pattern: str) -> None:
    with pytest.raises(Infeasible, match="ns1/data"):
        render(pattern)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("${.PVC.Namespace}", "did you mean"),
        ("${.pvc.name}", "did you mean"),
        ("${PVC.name}", "unknown token"),
        ("${.PVC.labels.}", "unknown token"),
        ("${.PVC.labels}", "unknown token"),
        ("${.PVC.uid}", "unknown token"),
        ("${.PVC.name", "no closing"),
        ("x/${", "no closing"),
        ("${}", "unknown token"),
        ("${.PVC.labels.x:-${.PVC.name}", "closed"),
        ("${.PVC.labels.x:-a${.PVC.name}}", "one token"),
        ("${.PVC.labels.x:-${.PVC.name}b}", "one token"),
        ("${.PVC.labels.${.PVC.name}}", "unknown token"),
        ("../${.PVC.name}", "not allowed"),
        ("a/../${.PVC.name}", "not allowed"),
        (".prov-host/trash", "reserved"),
        ("a/.PROV-HOST-x/b", "reserved"),
        (".snapshot/${.PVC.name}", "file server"),
        ("a\nb", "control"),
        ("a\\b", "backslash"),
        ("x" * 5000, "characters long"),
        ("${a:-" * 10 + "}" * 10, "nested"),
    ],
)
def test_a_wrong_pattern_is_refused_when_the_class_is_first_used(pattern: str, words: str) -> None:
    with pytest.raises(Infeasible, match=words):
        parse(pattern)


def test_a_slash_in_a_value_needs_the_class_s_permission() -> None:
    with pytest.raises(Infeasible, match="allowSlashInValues"):
        render("x/${.PVC.annotations.p}")
    assert render("x/${.PVC.annotations.p}", allow_slash=True) == "x/a/b"


@pytest.mark.parametrize("value", ["/a", "a/", "a//b", "a/./b", "a/../b", "/", "//"])
def test_a_value_with_slashes_may_not_bring_odd_segments(value: str) -> None:
    with pytest.raises(Infeasible):
        render("x/${.PVC.annotations.p}", allow_slash=True, annotations={"p": value})


def test_a_namespace_with_a_slash_is_refused_whatever_the_class_says() -> None:
    claim = make_claim("data", "a/b")
    with pytest.raises(Infeasible, match="slash"):
        parse("${.PVC.namespace}").render(claim, "pvc-1", allow_slash=True)


@pytest.mark.parametrize(
    "value",
    [
        "x" * 256,
        "ü" * 128,
        "a\u202eb",
        "a\u200bb",
        "a\x85b",
        "a\u2028b",
        "\uff0e\uff0e",  # fullwidth dots
        "\u2024\u2024",  # one dot leaders
        "a\uff0fb",  # fullwidth solidus
        "a\uff3cb",  # fullwidth reverse solidus
        "   ",
        "\u3000",
        ".Prov-Host",
        "\uff0eprov-host",
        ".nfs000000000123",
        "lost+found",
        ".ZFS",
    ],
)
def test_names_that_surprise_somebody_are_refused(value: str) -> None:
    with pytest.raises(Infeasible):
        render("${.PVC.annotations.p}", annotations={"p": value})


@pytest.mark.parametrize("value", ["日本語", "naïve file", "a b", "-rf", "$HOME", "`id`", "*", "~", "x" * 255])
def test_names_that_are_only_unusual_are_used(value: str) -> None:
    assert render("${.PVC.annotations.p}", annotations={"p": value}) == value
