"""Whatever the server, the network and the watch do: the cache ends equal to the server, and its story is consistent.

The server is a small model: objects, a history that may be compacted, watches that may break, stutter or expire, an
older replica, a restored storage. Hypothesis chooses what happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator

from hypothesis import given, settings
from hypothesis import strategies as st

from prov_host.errors import ApiUnavailable
from prov_host.kube.api import CLAIMS
from prov_host.kube.client import Client
from prov_host.kube.reflector import Reflector
from prov_host.kube.store import Store


class ModelServer:
    """A transport that is an API server. Its resourceVersions are opaque: they do not even grow as text."""

    def __init__(self, kit, rng):
        self.kit = kit
        self.rng = rng
        self.objects = {}
        self.history = []  # (sequence, type, object)
        self.sequence = 1
        self.oldest = 0  # watches from before this are expired
        self.uids = 0
        self.versions = {}
        self.states = {1: {}}
        self.faults = []  # what the next requests get
        self.changed = asyncio.Event()
        self.breaks = 0  # how many times all open watches were broken
        self.stutter = False
        self.watch_list = True

    def version(self, sequence):
        return self.versions.setdefault(sequence, f"v{self.rng.getrandbits(64)}")

    def sequence_of(self, version):
        return next((n for n, known in self.versions.items() if known == version), None)

    # What the test does to it.

    def put(self, name):
        self.sequence += 1
        old = self.objects.get(name)
        if old is None:
            self.uids += 1
        uid = old["metadata"]["uid"] if old else f"u{self.uids}"
        self._record("MODIFIED" if old else "ADDED", self.kit.claim(name, uid, self.version(self.sequence)))

    def delete(self, name):
        if name in self.objects:
            self.sequence += 1
            gone = json.loads(json.dumps(self.objects[name]))
            gone["metadata"]["resourceVersion"] = self.version(self.sequence)
            self._record("DELETED", gone)

    def remake(self, name):
        self.delete(name)
        self.put(name)

    def compact(self, _):
        self.oldest = self.sequence

    def break_watches(self, _):
        self.breaks += 1
        self._wake()

    def restore_storage(self, _):
        """Back to an older state, as from a backup: the versions known are from the future.

        (Unlike etcd's, ours never come back for other contents. A watch that sleeps through that cannot notice.)
        """
        self.sequence = max(1, self.sequence - 2)
        self.objects = dict(self.states[max(n for n in self.states if n <= self.sequence)])
        self.states = {n: state for n, state in self.states.items() if n <= self.sequence}
        self.history = [one for one in self.history if one[0] <= self.sequence]
        self.versions = {n: version for n, version in self.versions.items() if n <= self.sequence}
        self.oldest = self.sequence
        self.break_watches(None)

    def fail(self, kind):
        self.faults.append(kind)

    def set_stutter(self, _):
        self.stutter = not self.stutter

    def bookmark(self, _):
        self.sequence += 1
        self.history.append((self.sequence, "BOOKMARK", None))
        self._wake()

    def _record(self, kind, obj):
        if kind == "DELETED":
            del self.objects[obj["metadata"]["name"]]
        else:
            self.objects[obj["metadata"]["name"]] = obj
        self.history.append((self.sequence, kind, obj))
        self.states[self.sequence] = dict(self.objects)
        self._wake()

    def _wake(self):
        self.changed.set()
        self.changed = asyncio.Event()

    # What the host asks of it.

    def _fault(self):
        fault = self.faults.pop(0) if self.faults else None
        if fault == "refused":
            raise ApiUnavailable("refused")
        return self.kit.status_reply(*fault) if fault else None

    async def request(self, method, path, *, query=None, body=None, content_type="", timeout=30.0):
        version = query.get("resourceVersion")
        fault = self._fault()
        if fault:
            return fault
        if version not in {None, "", "0"}:
            known = self.sequence_of(version)
            if known is None:
                return self.kit.status_reply(504, "Timeout", "Too large resource version: x, current: y")
            if known < self.oldest and self.rng.random() < 0.3:
                return self.kit.status_reply(410, "Expired", "too old")
        meta = {"resourceVersion": self.version(self.sequence)}
        return self.kit.reply({"metadata": meta, "items": list(self.objects.values())})

    @contextlib.asynccontextmanager
    async def stream(self, path, *, query=None, idle_timeout=60.0):
        fault = self._fault()
        if fault:
            yield self.kit.ScriptedStream(fault.body, status=fault.status)
        elif query.get("sendInitialEvents") and not self.watch_list:
            yield self.kit.ScriptedStream(b"{}", status=422)
        else:
            yield _ModelStream(self, query)

    async def close(self):
        pass


class _ModelStream:
    status = 200

    def __init__(self, server, query):
        self.headers = {}
        self.server = server
        self.query = query

    async def lines(self) -> AsyncIterator[bytes]:
        server, kit, breaks = self.server, self.server.kit, self.server.breaks
        position = server.sequence_of(self.query["resourceVersion"])
        if self.query.get("sendInitialEvents"):
            if self.query["resourceVersion"] and position is None:
                yield _line(
                    kit.event("ERROR", json.loads(kit.status_reply(504, "", "Too large resource version").body))
                )
                return
            position, initial = server.sequence, list(server.objects.values())
            for obj in initial:
                await asyncio.sleep(0)
                if server.breaks != breaks:
                    raise ApiUnavailable("reset")
                yield _line(kit.event("ADDED", obj))
            yield _line(kit.bookmark(server.version(position), end=True))
        elif position is None or position < server.oldest:
            code = 410 if position is not None else 504
            words = "too old" if position is not None else "Too large resource version"
            yield _line(kit.event("ERROR", json.loads(kit.status_reply(code, "", words).body)))
            return
        while True:
            if server.breaks != breaks:
                if breaks % 2:
                    return
                raise ApiUnavailable("reset")
            changed = server.changed
            for sequence, kind, obj in [one for one in server.history if one[0] > position]:
                position = sequence
                line = _line(kit.bookmark(server.version(sequence)) if kind == "BOOKMARK" else kit.event(kind, obj))
                yield line
                if server.stutter and kind != "DELETED":
                    yield line
            if server.changed is changed and server.breaks == breaks:
                await changed.wait()


def _line(event):
    return json.dumps(event).encode()


class Story:
    """Checks that what a handler hears makes sense, and keeps what it believes to exist."""

    def __init__(self):
        self.live = {}
        self.dead = set()

    def added(self, obj):
        assert obj.uid not in self.live, "added twice"
        self.live[obj.uid] = obj

    def updated(self, old, new):
        assert self.live[new.uid] is old, "an update from something never told"
        self.live[new.uid] = new

    def deleted(self, last):
        assert self.live.pop(last.uid) is last, "the deletion of something never told"


NAMES = st.sampled_from(["a", "b", "c", "d"])
ACTIONS = st.one_of(
    st.tuples(st.just("put"), NAMES),
    st.tuples(st.just("put"), NAMES),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("remake"), NAMES),
    st.tuples(st.sampled_from(["compact", "break_watches", "bookmark", "set_stutter", "restore_storage"]), st.none()),
    st.tuples(
        st.just("fail"),
        st.sampled_from(
            ["refused", (410, "Expired"), (429, "TooManyRequests"), (500, "InternalError"), (403, "Forbidden")]
        ),
    ),
    st.tuples(st.just("pass"), st.floats(0, 40)),
)


@given(actions=st.lists(ACTIONS, max_size=40), watch_list=st.booleans(), seed=st.integers(0, 1000))
@settings(max_examples=100, deadline=None)
def test_the_cache_ends_equal_to_the_server_and_tells_a_consistent_story(kit_, actions, watch_list, seed):
    async def scenario():
        clock = kit_.ManualClock()
        server = ModelServer(kit_, random.Random(seed))
        server.watch_list = watch_list
        store = Store(CLAIMS)
        story = Story()
        store.subscribe(story)
        reflector = Reflector(Client(server, clock), CLAIMS, store, clock=clock, rng=random.Random(seed), resync=7.0)
        task = asyncio.get_running_loop().create_task(reflector.run())
        for action, argument in actions:
            if action == "pass":
                await clock.run_for(argument)
            else:
                getattr(server, action)(argument)
                await clock.settle(seed % 4)
            if task.done():
                task.result()
        server.faults.clear()
        await clock.run_for(300)
        truth = {obj["metadata"]["uid"]: obj["metadata"]["resourceVersion"] for obj in server.objects.values()}
        assert {one.uid: one.metadata.resource_version for one in store.values()} == truth
        assert story.live == {one.uid: one for one in store.values()}
        assert all(store.by_uid(uid) is obj for uid, obj in story.live.items())
        assert reflector.problem == ""
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
