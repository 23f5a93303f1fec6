"""Objects that are not what they should be."""

from __future__ import annotations

import copy
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prov_host.errors import ApiError
from prov_host.kube.api import CLAIMS, CLASSES, VOLUMES
from prov_host.kube.decoding import Decoder, encode
from prov_host.model import Claim

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
GOOD = {
    "metadata": {
        "name": "a",
        "namespace": "ns",
        "uid": "u",
        "resourceVersion": "1",
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"l": "v"},
        "annotations": {"a": "v"},
        "finalizers": ["f"],
    },
    "spec": {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "c",
        "volumeName": "v",
        "resources": {"requests": {"storage": "1Gi"}},
        "selector": {"matchLabels": {"x": "y"}},
        "dataSource": {"kind": "k", "name": "n"},
    },
    "status": {"phase": "Pending"},
}


def _paths(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in items:
        yield from _paths(one, (*path, key))


PATHS = sorted(_paths(GOOD), key=str)


@given(st.lists(st.tuples(st.sampled_from(PATHS), JSON), min_size=1, max_size=3))
def test_whatever_is_in_its_place_the_rest_of_an_object_is_read(changes):
    obj = copy.deepcopy(GOOD)
    for path, value in changes:
        if not path:
            obj = value
            continue
        target = obj
        try:
            for key in path[:-1]:
                target = target[key]
            target[path[-1]] = value
        except (TypeError, KeyError, IndexError):
            continue
    data = json.dumps(obj).encode()
    try:
        found = Decoder(CLAIMS).decode(data)
    except ApiError:
        assert not isinstance(obj, dict)
        return
    assert isinstance(found, Claim)
    msgspec.convert(msgspec.to_builtins(found), Claim)  # every field has the type it says
    meta = obj.get("metadata")
    if isinstance(meta, dict):
        for key, value in (("name", found.name), ("uid", found.uid)):
            if isinstance(meta.get(key), str):
                assert value == meta[key]
        if meta.get("deletionTimestamp") == GOOD["metadata"]["deletionTimestamp"]:
            assert found.terminating
    spec = obj.get("spec")
    if isinstance(spec, dict) and isinstance(spec.get("volumeName"), (str, int, float)):
        assert bool(found.spec.volume_name) == (spec["volumeName"] != "")


@given(st.binary(max_size=60))
def test_bytes_are_an_object_or_an_api_error(data):
    for resource in (CLAIMS, VOLUMES, CLASSES):
        try:
            Decoder(resource).decode(data)
        except ApiError as error:
            assert "cannot be read" in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"metadata": {"name": "a", "labels": {"x": "\\ud800"}}}', "a"),
        ('{"metadata": {"name": "a\\ud800"}}', "a?"),
        ('{"metadata": {"name": "a", "labels": null, "annotations": {"x": null}}, "spec": null}', "a"),
        ('{"metadata": {"name": "a", "generation": 1e400}, "spec": {"resources": {"requests": {"storage": 5}}}}', "a"),
        ('{"metadata": {"name": "a"}, "metadata": {"name": "b"}}', "b"),
        ('{"unknown": {"of": ["the", "future"]}, "metadata": {"name": "a", "new": [1]}}', "a"),
    ],
)
def test_odd_but_legal_json(text, name):
    assert Decoder(CLAIMS).decode(text.encode()).name == name


def test_nesting_without_end_is_an_api_error_and_not_a_crash():
    deep = b'{"spec": {"selector": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}}"
    with pytest.raises(ApiError, match="cannot be read"):
        Decoder(CLAIMS).decode(deep)


def test_bodies_with_text_that_is_not_unicode_are_sent_with_replacements():
    assert json.loads(encode({"a": ["\udcff", {"\udcfe": 1}], "b": Claim()})) == {"a": ["?", {"?": 1}], "b": {}}
