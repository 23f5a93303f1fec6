"""The cache's indexes and what it tells its handlers."""

from __future__ import annotations

import sys
import threading

import msgspec
import pytest

from prov_host.kube.api import CLAIMS, VOLUMES
from prov_host.kube.store import Store, key_of
from prov_host.model import Claim, Volume


class Recorder:
    def __init__(self):
        self.heard = []

    def added(self, obj):
        self.heard.append(("added", obj.uid, obj.metadata.resource_version))

    def updated(self, old, new):
        self.heard.append(("updated", new.uid, old.metadata.resource_version, new.metadata.resource_version))

    def deleted(self, last):
        self.heard.append(("deleted", last.uid, last.metadata.resource_version))


@pytest.fixture
def store():
    return Store(CLAIMS)


@pytest.fixture
def recorder(store):
    recorder = Recorder()
    store.subscribe(recorder)
    return recorder


@pytest.fixture
def make(kit):
    return lambda *args, **kwargs: msgspec.convert(kit.claim(*args, **kwargs), Claim)


def test_keys_have_a_namespace_only_if_the_object_has(make):
    assert key_of(make("a", namespace="ns")) == "ns/a"
    assert key_of(msgspec.convert({"metadata": {"name": "v"}}, Volume)) == "v"
    assert key_of(Volume()) == ""


def test_objects_are_found_by_key_and_by_uid(store, make):
    one = make("a", "u1")
    store.apply(one)
    assert store.get("default/a") is one
    assert store.by_uid("u1") is one
    assert store.values() == (one,)
    assert store.get("default/b") is None
    assert store.by_uid("u2") is None
    assert store.by_uid("") is None


def test_an_object_made_anew_under_its_old_name_is_told_as_two(store, recorder, make):
    store.apply(make("a", "u1", "1"))
    store.apply(make("a", "u2", "5"))
    assert store.by_uid("u1") is None
    assert store.by_uid("u2") is store.get("default/a")
    assert recorder.heard == [("added", "u1", "1"), ("deleted", "u1", "1"), ("added", "u2", "5")]


def test_what_was_heard_already_is_not_told_again(store, recorder, make):
    store.apply(make("a", "u1", "1"))
    store.apply(make("a", "u1", "1"))
    store.replace([make("a", "u1", "1")])
    store.apply(make("a", "u1", "2"))
    assert recorder.heard == [("added", "u1", "1"), ("updated", "u1", "1", "2")]


def test_the_same_version_with_other_contents_is_news(store, recorder, make):
    store.apply(make("a", "u1", "1"))
    store.apply(make("a", "u1", "1", volumeName="restored"))
    assert len(recorder.heard) == 2


def test_objects_without_a_version_are_always_told(store, recorder, make):
    for _ in range(2):
        store.apply(make("a", "u1", version=""))
    assert len(recorder.heard) == 2


def test_a_deletion_of_an_earlier_object_does_not_touch_the_present_one(store, recorder, make):
    store.apply(make("a", "u2", "5"))
    store.remove(make("a", "u1", "4"))
    store.remove(make("b", "u9", "4"))
    assert store.get("default/a")
    store.remove(make("a", "u2", "6"))
    assert store.values() == ()
    assert store.by_uid("u2") is None
    assert recorder.heard == [("added", "u2", "5"), ("deleted", "u2", "5")]


def test_a_new_list_replaces_everything_and_tells_the_difference(store, recorder, make):
    store.replace([make("kept", "u1", "1"), make("changed", "u2", "1"), make("gone", "u3", "1"), make("again", "u4")])
    kept = store.get("default/kept")
    recorder.heard.clear()
    store.replace(
        [make("kept", "u1", "1"), make("changed", "u2", "7"), make("again", "u5", "8"), make("new", "u6", "9")]
    )
    assert sorted(recorder.heard) == [
        ("added", "u5", "8"),
        ("added", "u6", "9"),
        ("deleted", "u3", "1"),
        ("deleted", "u4", "1"),
        ("updated", "u2", "1", "7"),
    ]
    assert store.get("default/kept") is kept
    assert {one.uid for one in store.values()} == {"u1", "u2", "u5", "u6"}
    assert [store.by_uid(f"u{n}") is not None for n in range(1, 7)] == [True, True, False, False, True, True]


def test_handlers_never_see_a_list_half_taken(store, make):
    seen = []

    class Reader(Recorder):
        def added(self, obj):
            seen.append(len(store.values()))

        def deleted(self, last):
            seen.append((len(store.values()), store.by_uid(last.uid)))

    store.subscribe(Reader())
    store.replace([make("a"), make("b"), make("c")])
    store.replace([make("c")])
    assert seen == [3, 3, 3, (1, None), (1, None)]


def test_objects_without_a_name_are_skipped(store, make, caplog):
    store.apply(Claim())
    store.replace([Claim(), make("a")])
    assert len(store.values()) == 1
    assert caplog.text.count("without a name") == 2


async def test_a_new_handler_hears_what_is_there_and_the_undo_silences_it(store, make):
    store.apply(make("a", "u1", "1"))
    recorder = Recorder()
    undo = store.subscribe(recorder)
    assert recorder.heard == [("added", "u1", "1")]
    undo()
    undo()
    store.apply(make("a", "u1", "2"))
    assert len(recorder.heard) == 1


def test_a_handler_that_raises_costs_nobody_else_the_news(store, make, caplog):
    class Broken(Recorder):
        def added(self, obj):
            raise RuntimeError("broken")

    store.subscribe(Broken())
    recorder = Recorder()
    store.subscribe(recorder)
    store.apply(make("a"))
    assert recorder.heard
    assert "a handler failed on default/a" in caplog.text


def test_our_own_write_is_taken_unless_the_watch_was_faster(store, recorder, make):
    old, ours, theirs = make("a", "u1", "1"), make("a", "u1", "2"), make("a", "u1", "3")
    store.apply(old)
    assert store.replace_if_unchanged(old, ours)
    assert store.get("default/a") is ours
    store.apply(theirs)
    assert not store.replace_if_unchanged(ours, make("a", "u1", "4"))
    assert not store.replace_if_unchanged(theirs, make("a", "u2", "4"))
    assert not store.replace_if_unchanged(theirs, make("b", "u1", "4"))
    assert store.get("default/a") is theirs
    assert recorder.heard == [("added", "u1", "1"), ("updated", "u1", "1", "2"), ("updated", "u1", "2", "3")]


def test_a_replay_tells_each_object_as_it_is_then(store, recorder, make):
    for name in "abc":
        store.apply(make(name, version="1"))
    recorder.heard.clear()
    replay = store.replay()
    next(replay)
    store.apply(make("b", version="2"))
    store.remove(make("c"))
    list(replay)
    assert recorder.heard == [
        ("updated", "uid-a", "1", "1"),
        ("updated", "uid-b", "1", "2"),
        ("deleted", "uid-c", "1"),
        ("updated", "uid-b", "2", "2"),
    ]


async def test_synced_after_the_first_list_even_if_it_is_empty(store):
    assert not store.synced
    store.replace([])
    await store.wait_synced()
    assert store.synced


def test_snapshots_are_shared_and_never_change(store, make):
    store.apply(make("a"))
    first = store.values()
    assert store.values() is first
    store.apply(make("b"))
    assert len(first) == 1
    assert len(store.values()) == 2


def test_reading_from_other_threads_while_it_is_written():
    store = Store(VOLUMES)
    objects = [msgspec.convert({"metadata": {"name": f"v{n}", "uid": f"u{n}"}}, Volume) for n in range(50)]
    done = threading.Event()
    failures = []

    def read():
        while not done.is_set():
            try:
                for one in store.values():
                    assert one.uid
                    store.get(one.name)
                    store.by_uid(one.uid)
            except Exception as error:
                failures.append(error)
                return

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=read) for _ in range(2)]
    try:
        for thread in threads:
            thread.start()
        for _ in range(30):
            for one in objects:
                store.apply(one)
            for one in objects[::2]:
                store.remove(one)
            store.replace(objects[:10])
    finally:
        done.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert failures == []
