"""Settings that cannot work are refused all at once, and each node gets what is meant for it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prov_host import ConfigurationError
from prov_host_hostpath import HostpathSettings
from prov_host_hostpath.settings import parse_duration, resolve


def _resolve(node: str = "node-1", **settings: object):  # type: ignore[no-untyped-def]
    return resolve(msgspec.convert(settings, HostpathSettings), node)


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(ConfigurationError) as caught:
        _resolve(
            "Not A Node",
            provisioner="no good/",
            directories=["relative", "/", "/a/b", "/a", {"path": "/c", "reserve": "some", "budget": "-1"}],
            reserve="x",
            forget_after="soon",
        )
    text = "\n".join(caught.value.problems)
    for words in (
        "'no good/' is no provisioner name",
        "'Not A Node' is no node name",
        "'relative' is not an absolute path",
        "the root of the file system cannot hold volumes",
        "/a and /a/b overlap",
        "reserve of directory /c: 'some' is not a quantity",
        "budget of directory /c: '-1' is negative",
        "hostpath: reserve: 'x' is not a quantity",
        "forget_after: 'soon' is not a duration",
        "cannot be the value of the label kubernetes.io/hostname",
    ):
        assert words in text


def test_a_node_has_the_common_directories_unless_it_has_its_own() -> None:
    nodes = {"node-2": {"directories": ["/mnt/ssd"]}, "node-3": {"directories": []}, "node-4": {"hostname": "h4"}}
    paths = {
        node: [place.path for place in _resolve(node, directories=["/data"], nodes=nodes).places]
        for node in ("node-1", "node-2", "node-3", "node-4")
    }
    assert paths == {"node-1": ["/data"], "node-2": ["/mnt/ssd"], "node-3": [], "node-4": ["/data"]}
    assert _resolve("node-4", nodes=nodes).hostname == "h4"


def test_a_directory_may_reserve_and_limit() -> None:
    (place,) = _resolve(directories=[{"path": "//data/./x/", "reserve": "1Gi", "budget": "10Gi"}], reserve="5Gi").places
    assert (place.path, place.node_path, place.reserve, place.budget) == ("/data/x", "/data/x", 2**30, 10 * 2**30)
    (place,) = _resolve(directories=["/data"], reserve="5Gi").places
    assert (place.reserve, place.budget) == (5 * 2**30, None)


def test_an_unknown_field_of_a_directory_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="bugdet"):
        _resolve(directories=[{"path": "/data", "bugdet": "1Gi"}])


@pytest.mark.parametrize(
    ("text", "seconds"), [("7d", 604800), ("12h", 43200), ("1d12h", 129600), ("90s", 90), ("0s", 0)]
)
def test_durations_are_read(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@settings(deadline=None)
@given(st.text(max_size=20))
def test_anything_else_is_no_duration(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except ValueError:
        return
    assert seconds >= 0
    assert text.isascii()
    assert text[-1] in "dhms"
