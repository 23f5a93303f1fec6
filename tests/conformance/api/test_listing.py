"""Lists: order, selectors, pages, revisions."""

from __future__ import annotations

import pytest


@pytest.fixture
def five(api):
    for number in range(5):
        lease = api.lease(f"l{number}")
        lease["metadata"]["labels"] = {"n": str(number), "app": "x"}
        api.ok("POST", api.leases, lease)


def names(answer) -> list[str]:
    return [item["metadata"]["name"] for item in answer["items"]]


def test_a_list_is_ordered_and_its_items_have_no_kind(api, five) -> None:
    listed = api.ok("GET", api.leases)
    assert listed["kind"] == "LeaseList"
    assert listed["apiVersion"] == "coordination.k8s.io/v1"
    assert names(listed) == ["l0", "l1", "l2", "l3", "l4"]
    assert not {"kind", "apiVersion"} & set(listed["items"][0])
    assert int(listed["metadata"]["resourceVersion"]) >= int(listed["items"][-1]["metadata"]["resourceVersion"])
    everywhere = api.ok("GET", "/apis/coordination.k8s.io/v1/leases")
    assert {(i["metadata"]["namespace"], i["metadata"]["name"]) for i in everywhere["items"]} >= {(api.namespace, "l0")}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("n=1", "l1"),
        ("n==1", "l1"),
        ("n!=1", "l0 l2 l3 l4"),
        ("n in (1, 2)", "l1 l2"),
        ("n notin (1,2,3)", "l0 l4"),
        ("app", "l0 l1 l2 l3 l4"),
        ("!app", ""),
        ("app=x,n>2", "l3 l4"),
        ("n<1", "l0"),
        ("other!=1", "l0 l1 l2 l3 l4"),
        ("other notin (1)", "l0 l1 l2 l3 l4"),
        ("", "l0 l1 l2 l3 l4"),
    ],
)
def test_label_selectors(api, five, selector, expected) -> None:
    assert names(api.ok("GET", api.leases, labelSelector=selector)) == expected.split()


@pytest.mark.parametrize("selector", ["n in (", "=x", "a b", "a=b c", "a,,b", "a in b"])
def test_what_is_no_label_selector_is_a_bad_request(api, selector) -> None:
    assert api("GET", api.leases, labelSelector=selector).status == 400


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("metadata.name=l1", "l1"),
        ("metadata.name==l1", "l1"),
        ("metadata.name!=l1", "l0 l2 l3 l4"),
        ("metadata.namespace=other", ""),
        ("metadata.name=l1,metadata.namespace!=other", "l1"),
    ],
)
def test_field_selectors(api, five, selector, expected) -> None:
    assert names(api.ok("GET", api.leases, fieldSelector=selector)) == expected.split()


def test_unknown_field_selectors_are_a_bad_request(api) -> None:
    answer = api("GET", api.claims, fieldSelector="spec.volumeName=x")
    assert (answer.status, answer.message) == (
        400,
        '"spec.volumeName" is not a known field selector: only "metadata.name", "metadata.namespace"',
    )
    assert api("GET", api.claims, fieldSelector="metadata.name").status == 400


def test_pages_fit_together_even_if_objects_change_between_them(api, five) -> None:
    first = api.ok("GET", api.leases, limit="2")
    assert first["metadata"]["remainingItemCount"] == 3
    api.ok("DELETE", f"{api.leases}/l3")
    api.ok("POST", api.leases, api.lease("l2a"))
    second = api.ok("GET", api.leases, limit="2", **{"continue": first["metadata"]["continue"]})
    third = api.ok("GET", api.leases, limit="2", **{"continue": second["metadata"]["continue"]})
    assert [names(page) for page in (first, second, third)] == [["l0", "l1"], ["l2", "l3"], ["l4"]]
    assert {page["metadata"]["resourceVersion"] for page in (first, second, third)} == {
        first["metadata"]["resourceVersion"]
    }
    assert "continue" not in third["metadata"]


def test_a_continue_token_expires_with_the_history_and_offers_an_inconsistent_rest(api, five) -> None:
    first = api.ok("GET", api.leases, limit="2")
    api.ok("DELETE", f"{api.leases}/l3")
    api.compact()
    answer = api.until(
        lambda: (
            (a := api("GET", api.leases, limit="2", **{"continue": first["metadata"]["continue"]})).status == 410 and a
        )
    )
    assert answer.reason == "Expired"
    assert answer.message.startswith("The provided continue parameter is too old to display a consistent list result.")
    rest = api.ok("GET", api.leases, **{"continue": answer.body["metadata"]["continue"]})
    assert names(rest) == ["l2", "l4"]


def test_a_damaged_continue_token_is_a_bad_request(api) -> None:
    answer = api("GET", api.leases, limit="2", **{"continue": "abc"})
    assert answer.status == 400
    assert answer.message.startswith("invalid continue token")


def test_a_list_at_an_exact_revision_shows_the_past(api) -> None:
    before = api.ok("POST", api.leases, api.lease("a"))["metadata"]["resourceVersion"]
    api.ok("POST", api.leases, api.lease("b"))
    api.ok("DELETE", f"{api.leases}/a")
    past = api.ok("GET", api.leases, resourceVersion=before, resourceVersionMatch="Exact")
    assert (names(past), past["metadata"]["resourceVersion"]) == (["a"], before)
    now = api.ok("GET", api.leases, resourceVersion=before, resourceVersionMatch="NotOlderThan")
    assert names(now) == ["b"]


def test_a_revision_of_the_future_is_a_timeout(api) -> None:
    answer = api("GET", api.leases, resourceVersion="999999999")
    assert (answer.status, answer.reason) == (504, "Timeout")
    assert answer.message.startswith("Timeout: Too large resource version: 999999999, current: ")
    assert answer.details["causes"] == [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]


@pytest.mark.parametrize(
    "query",
    [
        {"resourceVersionMatch": "NotOlderThan"},
        {"resourceVersionMatch": "Sometimes", "resourceVersion": "1"},
        {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
        {"sendInitialEvents": "true"},
    ],
)
def test_options_that_contradict_each_other_are_invalid(api, query) -> None:
    answer = api("GET", api.leases, **query)
    assert (answer.status, answer.details["kind"]) == (422, "ListOptions")


@pytest.mark.parametrize("query", [{"resourceVersion": "abc"}, {"limit": "x"}])
def test_options_that_are_no_numbers_are_bad_requests(api, query) -> None:
    assert api("GET", api.leases, **query).status == 400


def test_metadata_can_be_asked_for_alone(api, five) -> None:
    one = api.ok("GET", f"{api.leases}/l0", accept="application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
    assert (one["kind"], one["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert "spec" not in one
    many = api.ok("GET", api.leases, accept="application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
    assert many["kind"] == "PartialObjectMetadataList"
    assert names(many) == ["l0", "l1", "l2", "l3", "l4"]
