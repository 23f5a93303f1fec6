"""Delete, archive or retain: what a class says, and what an old volume without a frozen policy gets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prov_host.controller.policy import class_policy, volume_policy
from prov_host.errors import DeleteError, Infeasible
from prov_host.model import ANN_ON_DELETE, POLICIES, ObjectMeta, StorageClass, Volume, VolumeSpec

PLUGIN = {"default": "archive", "supports_archive": True, "plugin": "nfs_subdir"}
NO_ARCHIVE = {"default": "delete", "supports_archive": False, "plugin": "hostpath"}


def volume(policy: str | None = None) -> Volume:
    annotations = {} if policy is None else {ANN_ON_DELETE: policy}
    return Volume(
        metadata=ObjectMeta(name="pv", uid="u", annotations=annotations), spec=VolumeSpec(storage_class_name="c")
    )


def storage_class(**parameters: str) -> StorageClass:
    return StorageClass(metadata=ObjectMeta(name="c"), provisioner="p", parameters=parameters)


@pytest.mark.parametrize(
    ("parameters", "policy"),
    [
        ({}, "archive"),
        *[({"archiveOnDelete": word}, "archive") for word in ("1", "t", "T", "TRUE", "true", "True")],
        *[({"archiveOnDelete": word}, "delete") for word in ("0", "f", "F", "FALSE", "false", "False")],
        ({"onDelete": "delete"}, "delete"),
        ({"onDelete": "retain"}, "retain"),
        ({"onDelete": "archive"}, "archive"),
        ({"onDelete": "delete", "archiveOnDelete": "true"}, "delete"),
        ({"onDelete": "archive", "archiveOnDelete": "false"}, "archive"),
        ({"unrelated": "x"}, "archive"),
    ],
)
def test_a_class_chooses_the_policy(parameters: dict[str, str], policy: str) -> None:
    assert class_policy(parameters, **PLUGIN) == policy


@pytest.mark.parametrize("word", ["Delete", "RETAIN", "", " delete", "remove", "archive\n"])
def test_a_wrong_word_is_refused_with_parameter_value_and_what_is_allowed(word: str) -> None:
    with pytest.raises(Infeasible) as caught:
        class_policy({"onDelete": word}, **PLUGIN)
    assert "onDelete" in str(caught.value)
    assert repr(word) in str(caught.value)
    assert "delete, archive, retain" in str(caught.value)


@pytest.mark.parametrize("word", ["no", "yes", "", "tRUE", "on"])
def test_a_wrong_bool_is_refused_even_beside_on_delete(word: str) -> None:
    for parameters in ({"archiveOnDelete": word}, {"archiveOnDelete": word, "onDelete": "delete"}):
        with pytest.raises(Infeasible, match="archiveOnDelete"):
            class_policy(parameters, **PLUGIN)


@pytest.mark.parametrize("parameters", [{"onDelete": "archive"}, {"archiveOnDelete": "true"}])
def test_archiving_is_refused_when_the_plugin_cannot(parameters: dict[str, str]) -> None:
    with pytest.raises(Infeasible, match="plugin hostpath cannot"):
        class_policy(parameters, **NO_ARCHIVE)
    assert class_policy({}, **NO_ARCHIVE) == "delete"


@given(st.dictionaries(st.sampled_from(["onDelete", "archiveOnDelete", "x"]), st.text(max_size=300), max_size=3))
def test_any_parameters_give_a_policy_or_a_refusal_of_bounded_length(parameters: dict[str, str]) -> None:
    refusal = ""
    try:
        assert class_policy(parameters, **PLUGIN) in POLICIES
    except Infeasible as error:
        refusal = str(error)
    assert len(refusal) < 900


@pytest.mark.parametrize("policy", POLICIES)
def test_the_frozen_policy_counts_whatever_the_class_says_now(policy: str) -> None:
    for live in (None, storage_class(onDelete="delete"), storage_class(onDelete="nonsense")):
        decision = volume_policy(volume(policy), live, **PLUGIN)
        assert (decision.policy, decision.reason) == (policy, "")


@pytest.mark.parametrize("policy", ["", "Delete", "x" * 1000])
def test_an_unreadable_frozen_policy_leaves_the_asset_alone(policy: str) -> None:
    with pytest.raises(DeleteError, match="left alone") as caught:
        volume_policy(volume(policy), None, **PLUGIN)
    assert len(str(caught.value)) < 300


def test_a_volume_to_be_archived_is_kept_when_the_plugin_cannot_any_more() -> None:
    with pytest.raises(DeleteError, match="does not support it any more"):
        volume_policy(volume("archive"), None, **NO_ARCHIVE)


def test_a_volume_of_another_program_follows_its_live_class_and_says_so() -> None:
    decision = volume_policy(volume(), storage_class(archiveOnDelete="false"), **PLUGIN)
    assert decision.policy == "delete"
    assert 'its class "c" says delete' in decision.reason


@pytest.mark.parametrize("live", [None, storage_class(onDelete="Delete"), storage_class(archiveOnDelete="no")])
def test_a_volume_of_another_program_is_archived_when_its_class_does_not_tell(live: StorageClass | None) -> None:
    decision = volume_policy(volume(), live, **PLUGIN)
    assert decision.policy == "archive"
    assert "loses nothing" in decision.reason


def test_without_an_archive_the_reclaim_policy_is_followed() -> None:
    assert volume_policy(volume(), None, **NO_ARCHIVE).policy == "delete"


def test_a_live_class_that_asks_to_archive_is_not_overruled_by_deleting() -> None:
    with pytest.raises(DeleteError, match="cannot"):
        volume_policy(volume(), storage_class(onDelete="archive"), **NO_ARCHIVE)
