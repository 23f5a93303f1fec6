"""Patches as functions; tests/conformance/api compares them with the real server's."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prov_host.embedded.failures import ApiFailure
from prov_host.embedded.patches import json_patch, merge_patch, strategic_patch
from prov_host.embedded.schema import listing, obj, primitive

TEXT = primitive("string")
TYPE = obj(
    "Thing",
    finalizers=listing(TEXT, merge=True),
    plain=listing(TEXT),
    keyed=listing(obj("Item", name=TEXT, value=TEXT), merge_key="name"),
    inner=obj("Inner", a=TEXT),
)
scalars = st.one_of(st.integers(-5, 5), st.booleans(), st.text("ab", max_size=2))
values = st.recursive(
    scalars, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner))
)
objects = st.dictionaries(st.sampled_from("abc"), values)
patches = st.recursive(st.none() | scalars, lambda inner: st.dictionaries(st.sampled_from("abc"), inner), max_leaves=8)


@settings(deadline=None)
@given(objects, st.dictionaries(st.sampled_from("abc"), patches))
def test_a_merge_patch_is_idempotent_and_leaves_its_arguments_alone(target, patch) -> None:
    before = copy.deepcopy((target, patch))
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once
    assert (target, patch) == before


@settings(deadline=None)
@given(objects, objects)
def test_some_merge_patch_turns_any_object_into_any_other(old, new) -> None:
    def difference(a: Any, b: Any) -> Any:
        if not isinstance(a, dict) or not isinstance(b, dict):
            return b
        removed = {key: None for key in a if key not in b}
        return removed | {key: difference(a.get(key), value) for key, value in b.items()}

    # A merge patch replaces what is no object, so an object that takes its place is built from nothing.
    assert merge_patch(old, difference(old, new)) == new


@settings(deadline=None)
@given(objects, st.sampled_from("abc"), values)
def test_what_a_json_patch_adds_it_can_test_and_remove(target, key, value) -> None:
    before = copy.deepcopy(target)
    path = f"/{key}"
    added = json_patch(
        target, [{"op": "add", "path": path, "value": value}, {"op": "test", "path": path, "value": value}]
    )
    assert added == {**target, key: value}
    removed = json_patch(added, [{"op": "remove", "path": path}])
    assert removed == {k: v for k, v in target.items() if k != key}
    assert target == before


@settings(deadline=None)
@given(st.lists(st.sampled_from("abcdef"), unique=True), st.lists(st.sampled_from("abcdef"), unique=True))
def test_removing_finalizers_never_touches_others(present, removed) -> None:
    order = [name for name in present if name not in removed]
    patch = {"$deleteFromPrimitiveList/finalizers": removed, "$setElementOrder/finalizers": order}
    assert strategic_patch({"finalizers": present}, patch, TYPE).get("finalizers", []) == order


@settings(deadline=None)
@given(st.lists(st.sampled_from("abcdef"), unique=True), st.lists(st.sampled_from("abcdef"), unique=True))
def test_merged_finalizers_are_a_set_that_keeps_the_others_in_order(present, added) -> None:
    merged = strategic_patch({"finalizers": present}, {"finalizers": added}, TYPE)["finalizers"] if added else present
    assert sorted(merged) == sorted({*present, *added})
    others = [name for name in merged if name not in added]
    assert others == [name for name in present if name not in added]


def test_plain_lists_are_replaced_and_keyed_lists_merged() -> None:
    target = {"plain": ["a"], "keyed": [{"name": "a", "value": "1"}, {"name": "b"}]}
    patch = {"plain": ["b"], "keyed": [{"name": "a", "value": "2"}, {"name": "b", "$patch": "delete"}]}
    assert strategic_patch(target, patch, TYPE) == {"plain": ["b"], "keyed": [{"name": "a", "value": "2"}]}


def test_an_object_can_be_replaced_whole() -> None:
    target = {"inner": {"a": "1", "b": "2"}}
    assert strategic_patch(target, {"inner": {"$patch": "replace", "c": "3"}}, TYPE) == {"inner": {"c": "3"}}
    assert strategic_patch(target, {"inner": {"$retainKeys": ["a"]}}, TYPE) == {"inner": {"a": "1"}}


@pytest.mark.parametrize(
    "patch",
    [
        {"$patch": "sideways"},
        {"$setElementOrder/finalizers": "a"},
        {"$deleteFromPrimitiveList/finalizers": "a"},
        {"keyed": [{}]},
    ],
)
def test_a_strategic_patch_that_contradicts_itself_is_refused(patch) -> None:
    with pytest.raises(ApiFailure) as refused:
        strategic_patch({"finalizers": ["a"]}, patch, TYPE)
    assert refused.value.code == 400
