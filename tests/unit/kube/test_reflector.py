"""Filling and following: what is asked of the server, when, and what becomes of its answers."""

from __future__ import annotations

import itertools
import random

import pytest

from prov_host import errors
from prov_host.kube.api import CLAIMS
from prov_host.kube.client import Client
from prov_host.kube.reflector import Reflector
from prov_host.kube.store import Store


@pytest.fixture
def transport(kit):
    return kit.ScriptedTransport()


@pytest.fixture
def store():
    return Store(CLAIMS)


@pytest.fixture
def reflect(transport, store, clock, background):
    def start(**options):
        options.setdefault("watch_list", False)
        reflector = Reflector(
            Client(transport, clock), CLAIMS, store, clock=clock, rng=random.Random(1), **{"resync": 0.0} | options
        )
        background(reflector.run())
        return reflector

    return start


def _names(store):
    return sorted(one.name for one in store.values())


def _asked(transport):
    """What was asked for, in short: ("GET", version) or ("WATCH", version)."""
    return [(r.method, r.query.get("resourceVersion")) for r in transport.requests]


def _listing(kit, version, *objects):
    return kit.reply({"metadata": {"resourceVersion": version}, "items": list(objects)})


async def test_lists_at_any_version_then_watches_from_the_version_of_the_list(reflect, transport, store, clock, kit):
    transport.answers.append(_listing(kit, "100", kit.claim("a", version="7")))
    transport.streams.append(kit.ScriptedStream(kit.event("ADDED", kit.claim("b", version="101")), open_end=True))
    reflect()
    await clock.run_for(0)
    assert _names(store) == ["a", "b"]
    assert _asked(transport) == [("GET", "0"), ("WATCH", "100")]
    query = transport.requests[1].query
    assert query["allowWatchBookmarks"] == "true"
    assert 300 <= int(query["timeoutSeconds"]) <= 600


async def test_goes_on_from_the_last_event_or_bookmark_when_the_server_ends_the_watch(
    reflect, transport, store, clock, kit
):
    transport.answers.append(_listing(kit, "100"))
    transport.streams += [
        kit.ScriptedStream(kit.event("ADDED", kit.claim("b", version="101"))),
        kit.ScriptedStream(kit.event("DELETED", kit.claim("b", version="102")), kit.bookmark("opaque-éü")),
        kit.ScriptedStream(open_end=True),
    ]
    reflect()
    await clock.run_for(0)
    assert _asked(transport) == [("GET", "0"), ("WATCH", "100"), ("WATCH", "101"), ("WATCH", "opaque-éü")]
    assert _names(store) == []


async def test_an_expired_version_lists_again_and_the_vanished_are_told(reflect, transport, store, clock, kit):
    transport.answers += [_listing(kit, "100", kit.claim("a"), kit.claim("b")), _listing(kit, "200", kit.claim("b"))]
    gone = kit.event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
    transport.streams += [kit.ScriptedStream(gone), kit.ScriptedStream(open_end=True)]
    deleted = []
    reflect()
    store.subscribe(_Handler(deleted=deleted.append))
    await clock.run_for(0)
    assert _names(store) == ["a", "b"]  # kept until the new list is in
    await clock.run_for(1.7)
    assert _names(store) == ["b"]
    assert [one.name for one in deleted] == ["a"]
    assert _asked(transport) == [("GET", "0"), ("WATCH", "100"), ("GET", "100"), ("WATCH", "200")]


async def test_a_list_at_an_expired_version_is_asked_for_the_latest_at_once(reflect, transport, clock, kit):
    transport.answers += [
        _listing(kit, "100"),
        kit.status_reply(410, "Expired", "too old"),
        _listing(kit, "200"),
    ]
    transport.streams += [errors.Gone("too old", status=410), kit.ScriptedStream(open_end=True)]
    reflect()
    await clock.run_for(1.7)
    assert _asked(transport) == [("GET", "0"), ("WATCH", "100"), ("GET", "100"), ("GET", None), ("WATCH", "200")]


async def test_a_server_that_is_behind_is_asked_for_what_it_has(reflect, transport, clock, kit):
    behind = kit.status_reply(504, "Timeout", "Too large resource version: 100, current: 5")
    transport.answers += [_listing(kit, "100"), _listing(kit, "5")]
    transport.streams += [kit.ScriptedStream(behind.body, status=504), kit.ScriptedStream(open_end=True)]
    reflect()
    await clock.run_for(1.7)
    assert _asked(transport) == [("GET", "0"), ("WATCH", "100"), ("GET", None), ("WATCH", "5")]


@pytest.mark.parametrize(
    "failure",
    [
        errors.ApiUnavailable("connection refused"),
        errors.TooManyRequests("busy", status=429),
        errors.ApiError("internal", status=500),
    ],
)
async def test_a_server_in_trouble_is_asked_for_the_same_watch_again(reflect, transport, clock, kit, failure):
    transport.answers.append(_listing(kit, "100"))
    transport.streams += [failure, failure, kit.ScriptedStream(open_end=True)]
    reflector = reflect()
    await clock.run_for(0)
    assert reflector.problem
    await clock.run_for(5)
    assert _asked(transport) == [("GET", "0")] + [("WATCH", "100")] * 3
    assert reflector.problem == ""


async def test_a_trouble_lasts_when_it_has_not_passed_within_half_a_minute(reflect, transport, clock, kit):
    transport.answers.append(_listing(kit, "100"))
    down = errors.ApiUnavailable("connection refused")
    transport.streams += [down, down, kit.ScriptedStream(open_end=True)]
    reflector = reflect()
    await clock.run_for(0.5)
    assert reflector.problem
    assert reflector.lasting_problem == ""
    await clock.run_for(5)
    assert reflector.problem == ""


async def test_a_trouble_that_lasts_or_keeps_the_cache_empty_is_known_as_such(reflect, transport, clock, kit):
    transport.default = kit.status_reply(403, "Forbidden", "not yours")
    reflector = reflect()
    await clock.run_for(0)
    assert "not yours" in reflector.lasting_problem  # nothing has ever been listed
    transport.default = _listing(kit, "100")
    await clock.run_for(10)  # the watch is refused now, and goes on to be
    assert "refused" in reflector.problem
    assert reflector.lasting_problem == ""
    await clock.run_for(31)
    assert "refused" in reflector.lasting_problem


async def test_a_broken_connection_costs_no_list(reflect, transport, store, clock, kit):
    transport.answers.append(_listing(kit, "100"))
    added = kit.event("ADDED", kit.claim("a", version="101"))
    transport.streams += [
        kit.ScriptedStream(added, errors.ApiUnavailable("reset")),
        kit.ScriptedStream(open_end=True),
    ]
    reflect()
    await clock.run_for(1.7)
    assert _asked(transport) == [("GET", "0"), ("WATCH", "100"), ("WATCH", "101")]
    assert _names(store) == ["a"]


async def test_waits_grow_to_thirty_seconds_with_jitter_and_honour_the_server(reflect, transport, clock, kit):
    transport.default = kit.status_reply(500, "InternalError")
    times = []
    transport.default = lambda _: (times.append(clock.monotonic()), errors.ApiError("x", status=500))[1]
    reflect()
    await clock.run_for(400)
    waits = [later - earlier for earlier, later in itertools.pairwise(times)]
    for wait, base in zip(waits, [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30, 30], strict=False):
        assert base <= wait <= 2 * base
    transport.default = lambda _: (times.append(clock.monotonic()), errors.TooManyRequests("x", retry_after=25.0))[1]
    await clock.run_for(200)  # quiet, so that the waits start over
    assert min(later - earlier for earlier, later in itertools.pairwise(times[-3:])) >= 25


@pytest.mark.parametrize("asked", [31.0, 200.0, 86400.0])
async def test_a_server_that_asks_for_a_day_is_asked_again_in_half_a_minute(reflect, transport, clock, kit, asked):
    transport.answers += [
        errors.ApiError("maintenance", status=503, retry_after=asked),
        _listing(kit, "1", kit.claim("a")),
    ]
    reflect()
    await clock.run_for(29.9)
    assert len(transport.requests) == 1
    await clock.run_for(0.2)
    assert transport.requests[1].method == "GET"


async def test_repeated_failures_end_in_a_list(reflect, transport, clock, kit):
    transport.answers += [_listing(kit, "100"), _listing(kit, "300")]
    transport.streams += [errors.ApiError("internal", status=500)] * 5 + [kit.ScriptedStream(open_end=True)]
    reflect()
    await clock.run_for(60)
    assert _asked(transport) == [("GET", "0")] + [("WATCH", "100")] * 5 + [("GET", "100"), ("WATCH", "300")]


async def test_a_server_that_hangs_up_at_once_is_not_asked_in_a_tight_loop(reflect, transport, clock, kit):
    transport.answers.append(_listing(kit, "100"))
    transport.streams += [kit.ScriptedStream() for _ in range(1000)]
    reflect()
    await clock.run_for(1)
    assert len(transport.requests) <= 4


async def test_a_line_that_makes_no_sense_lists_again(reflect, transport, store, clock, kit):
    transport.answers += [_listing(kit, "100"), _listing(kit, "200", kit.claim("a"))]
    transport.streams += [kit.ScriptedStream(b'{"type": "ADD'), kit.ScriptedStream(open_end=True)]
    reflect()
    await clock.run_for(1.7)
    assert _names(store) == ["a"]


async def test_an_unknown_event_type_is_skipped_and_the_watch_goes_on(reflect, transport, clock, kit, caplog):
    transport.answers.append(_listing(kit, "100"))
    future = kit.event("RENAMED\n", kit.claim("x", version="101"))
    transport.streams += [kit.ScriptedStream(future, kit.bookmark("105")), kit.ScriptedStream(open_end=True)]
    reflect()
    await clock.run_for(0)
    assert _asked(transport)[-1] == ("WATCH", "105")
    assert "'RENAMED\\n'" in caplog.text


async def test_forbidden_is_said_with_what_to_do_and_tried_again(reflect, transport, clock, kit, caplog):
    forbidden = kit.status_reply(403, "Forbidden", "persistentvolumeclaims is forbidden")
    transport.answers += [forbidden, _listing(kit, "100")]
    transport.streams.append(kit.ScriptedStream(open_end=True))
    reflector = reflect()
    await clock.run_for(0)
    assert "grant the permission" in reflector.problem
    assert "grant the permission" in caplog.text
    await clock.run_for(2)
    assert reflector.problem == ""


class _Handler:
    def __init__(self, added=None, updated=None, deleted=None):
        self.added = added or (lambda obj: None)
        self.updated = updated or (lambda old, new: None)
        self.deleted = deleted or (lambda last: None)


# WatchList.


async def test_a_watch_list_fills_the_store_at_its_end_mark_and_goes_on(reflect, transport, store, clock, kit):
    waiting = kit.ScriptedStream(
        kit.event("ADDED", kit.claim("a", version="3")),
        kit.event("ADDED", kit.claim("b", version="4")),
        kit.event("MODIFIED", kit.claim("a", version="8")),
        kit.event("DELETED", kit.claim("b", version="9")),
        kit.bookmark("10", end=True),
        kit.event("ADDED", kit.claim("c", version="11")),
    )
    transport.streams += [waiting, kit.ScriptedStream(open_end=True)]
    reflect(watch_list=True)
    await clock.run_for(0)
    assert _names(store) == ["a", "c"]
    assert store.get("default/a").metadata.resource_version == "8"
    assert _asked(transport) == [("WATCH", ""), ("WATCH", "11")]
    assert transport.requests[0].query["sendInitialEvents"] == "true"
    assert transport.requests[0].query["resourceVersionMatch"] == "NotOlderThan"
    assert "sendInitialEvents" not in transport.requests[1].query


async def test_nothing_is_shown_before_the_initial_objects_are_complete(reflect, transport, store, clock, kit):
    transport.streams.append(kit.ScriptedStream(kit.event("ADDED", kit.claim("a")), open_end=True))
    reflect(watch_list=True)
    await clock.run_for(0)
    assert not store.synced
    assert _names(store) == []


@pytest.mark.parametrize("code", [400, 422, 404, 406])
async def test_a_server_without_watch_list_gets_an_ordinary_list_for_good(reflect, transport, clock, kit, code):
    refused = kit.status_reply(code, "Invalid", "sendInitialEvents: Forbidden")
    transport.answers += [_listing(kit, "100"), _listing(kit, "200")]
    transport.streams += [
        kit.ScriptedStream(refused.body, status=code),
        kit.ScriptedStream(kit.event("ERROR", {"code": 410})),
        kit.ScriptedStream(open_end=True),
    ]
    reflect(watch_list=True)
    await clock.run_for(2)
    assert _asked(transport) == [("WATCH", ""), ("GET", "0"), ("WATCH", "100"), ("GET", "100"), ("WATCH", "200")]


async def test_a_watch_list_that_breaks_in_the_middle_is_begun_anew_then_listed(reflect, transport, store, clock, kit):
    half = [kit.event("ADDED", kit.claim("half")), errors.ApiUnavailable("reset")]
    transport.streams += [kit.ScriptedStream(*half), kit.ScriptedStream(*half), kit.ScriptedStream(open_end=True)]
    transport.answers.append(_listing(kit, "100", kit.claim("a")))
    reflect(watch_list=True)
    await clock.run_for(5)
    assert _asked(transport) == [("WATCH", ""), ("WATCH", ""), ("GET", "0"), ("WATCH", "100")]
    assert _names(store) == ["a"]


async def test_a_server_that_is_down_is_still_asked_for_a_watch_list_later(reflect, transport, clock, kit):
    transport.streams += [errors.ApiUnavailable("refused")] * 4 + [
        kit.ScriptedStream(kit.bookmark("5", end=True), open_end=True)
    ]
    reflect(watch_list=True)
    await clock.run_for(60)
    assert _asked(transport) == [("WATCH", "")] * 5


async def test_after_a_watch_list_an_expired_version_asks_for_one_not_older(reflect, transport, store, clock, kit):
    transport.streams += [
        kit.ScriptedStream(kit.event("ADDED", kit.claim("a")), kit.bookmark("5", end=True)),
        errors.Gone("too old", status=410),
        errors.Gone("too old", status=410),
        kit.ScriptedStream(kit.bookmark("9", end=True), open_end=True),
    ]
    reflect(watch_list=True)
    await clock.run_for(8)
    assert _asked(transport) == [("WATCH", ""), ("WATCH", "5"), ("WATCH", "5"), ("WATCH", "")]
    assert _names(store) == []


# Resync.


async def test_a_resync_replays_the_cache_without_a_request(reflect, transport, store, clock, kit):
    transport.answers.append(_listing(kit, "100", kit.claim("a"), kit.claim("b")))
    transport.streams.append(kit.ScriptedStream(open_end=True))
    replayed = []
    store.subscribe(_Handler(updated=lambda old, new: replayed.append((new.name, old is new))))
    reflect(resync=900)
    await clock.run_for(899)
    assert replayed == []
    await clock.run_for(2)
    assert sorted(replayed) == [("a", True), ("b", True)]
    await clock.run_for(900)
    assert len(replayed) == 4
    assert len(transport.requests) == 2


async def test_a_resync_period_below_a_second_is_a_second_and_zero_is_never(reflect, transport, store, clock, kit):
    transport.answers.append(_listing(kit, "100", kit.claim("a")))
    transport.streams.append(kit.ScriptedStream(open_end=True))
    replayed = []
    store.subscribe(_Handler(updated=lambda old, new: replayed.append(new)))
    reflect(resync=0.001)
    await clock.run_for(3.5)
    assert len(replayed) == 3


def test_a_negative_resync_period_is_refused(transport, store, clock):
    with pytest.raises(ValueError, match="resync"):
        Reflector(Client(transport, clock), CLAIMS, store, clock=clock, rng=random.Random(1), resync=-1)
