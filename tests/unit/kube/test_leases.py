"""Names, durations, records and the election's rules, on clocks that disagree and a server that misbehaves."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import itertools
import json
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prov_host.errors import ApiUnavailable, ConfigurationError
from prov_host.kube.client import Client
from prov_host.kube.election import Elector
from prov_host.kube.leases import ANN_ENDPOINTS_LEADER, Durations, EndpointsLock, lease_name, micro_time

NAME = "k8s-sigs.io-nfs"
LEASE_PATH = f"/apis/coordination.k8s.io/v1/namespaces/ns/leases/{NAME}"


# Names, durations, times.


def test_a_lease_is_named_as_the_go_library_names_it():
    assert lease_name("k8s-sigs.io/nfs-subdir-external-provisioner") == "k8s-sigs.io-nfs-subdir-external-provisioner"
    assert lease_name("a/b/c") == "a-b-c"


@pytest.mark.parametrize("name", ["", "Foo.bar/baz", "a_b", "a/", "/a", "a..b", "x" * 254, "é", "a b", "a\n", "-a"])
def test_a_name_the_api_would_refuse_is_refused_at_once(name):
    with pytest.raises(ConfigurationError, match="lower-case"):
        lease_name(name)


def test_the_references_durations_are_the_default_and_good():
    Durations().check()
    assert (Durations().lease, Durations().renew, Durations().retry) == (15, 10, 2)
    assert Durations().request_timeout == 5
    assert Durations(lease=3, renew=1.5, retry=0.5).request_timeout == 1


@pytest.mark.parametrize(
    ("durations", "words"),
    [
        (Durations(lease=10, renew=10), "longer than the renew deadline"),
        (Durations(lease=10.9, renew=10.5), "written as 10 s"),
        (Durations(renew=2.4, retry=2), "1.2 times the retry period"),
        (Durations(retry=0), "retry period of 0 s must be more than 0"),
        (Durations(lease=-1), "lease duration of -1 s"),
        (Durations(renew=float("nan")), "renew deadline of nan s"),
        (Durations(lease=2, renew=1, retry=0.1), "more than 1 s"),
    ],
)
def test_durations_that_cannot_work_are_refused(durations, words):
    with pytest.raises(ConfigurationError, match=words):
        durations.check()


def test_all_problems_of_the_durations_are_told_together():
    with pytest.raises(ConfigurationError) as caught:
        Durations(lease=5, renew=6, retry=6).check()
    assert len(caught.value.problems) == 2


def test_times_have_six_digits_even_if_they_are_zero():
    east = dt.timezone(dt.timedelta(hours=2))
    assert micro_time(dt.datetime(2026, 1, 2, 5, 4, 5, tzinfo=east)) == "2026-01-02T03:04:05.000000Z"


# The server and the contenders.


class LeaseServer:
    """Leases and Endpoints with resourceVersions and watches."""

    def __init__(self, kit):
        self.kit = kit
        self.objects = {}
        self.versions = itertools.count(10)
        self.changed = asyncio.Event()

    def put(self, path, obj):
        obj = json.loads(json.dumps(obj))
        obj["metadata"]["resourceVersion"] = str(next(self.versions))
        self.objects[path] = obj
        self.changed.set()
        self.changed = asyncio.Event()
        return obj

    def lease(self):
        return next((obj for path, obj in self.objects.items() if "/leases/" in path), None)

    def holder(self):
        return self.lease()["spec"]["holderIdentity"]

    def edit(self, **spec):
        path, obj = next((path, obj) for path, obj in self.objects.items() if "/leases/" in path)
        self.put(path, obj | {"spec": obj["spec"] | spec})

    def answer(self, method, path, body):
        kit = self.kit
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                return kit.status_reply(409, "AlreadyExists")
            body["metadata"]["uid"] = "u-1"
            return kit.reply(self.put(path, body), 201)
        if path not in self.objects:
            return kit.status_reply(404, "NotFound")
        if method == "PUT":
            if body["metadata"].get("resourceVersion") != self.objects[path]["metadata"]["resourceVersion"]:
                return kit.status_reply(409, "Conflict")
            self.put(path, body)
        return kit.reply(self.objects[path])


class Line:
    """One contender's connection to the server, with its own troubles."""

    def __init__(self, server, clock):
        self.server = server
        self.clock = clock
        self.trouble = ""
        self.requests = []

    async def request(self, method, path, *, query=None, body=None, content_type="", timeout=30.0):
        self.requests.append((method, path, self.clock.monotonic()))
        if self.trouble == "down":
            raise ApiUnavailable("connection refused")
        if self.trouble == "deaf":  # ignores even its own timeout
            await asyncio.get_running_loop().create_future()
        if self.trouble == "slow":
            await self.clock.sleep(timeout)
            raise ApiUnavailable("timed out")
        if self.trouble == "no endpoints" and "/endpoints/" in path:
            return self.server.kit.status_reply(403, "Forbidden")
        if self.trouble == "500":
            return self.server.kit.status_reply(500, "InternalError")
        if self.trouble == "forbidden":
            return self.server.kit.status_reply(403, "Forbidden")
        if self.trouble == "no namespace" and method == "POST":
            return self.server.kit.status_reply(404, "NotFound")
        reply = self.server.answer(method, path, json.loads(body) if body else None)
        if self.trouble == "answers get lost":
            raise ApiUnavailable("reset")
        return reply

    @contextlib.asynccontextmanager
    async def stream(self, path, *, query=None, idle_timeout=60.0):
        if self.trouble == "no watch":
            yield self.server.kit.ScriptedStream(b"{}", status=403)
            return
        if self.trouble:
            raise ApiUnavailable("refused")
        yield _LeaseStream(self.server, path + "/" + query["fieldSelector"].removeprefix("metadata.name="))

    async def close(self):
        pass


class _LeaseStream:
    status = 200

    def __init__(self, server, path):
        self.server = server
        self.path = path
        self.headers = {}

    async def lines(self):
        last = None
        while True:
            obj = self.server.objects.get(self.path)
            if obj is not last:
                last = obj
                yield json.dumps({"type": "MODIFIED", "object": obj}).encode()
            await self.server.changed.wait()


class Sink:
    def __init__(self):
        self.events = []

    def emit(self, regarding, *, type, reason, message):
        self.events.append((regarding.kind, regarding.namespace, regarding.name, type, reason, message))


class Contender:
    def __init__(self, server, clock, identity, **options):
        self.clock = clock
        self.line = Line(server, clock)
        self.story = []
        self.events = Sink()
        client = Client(self.line, clock, retries=0)
        old_lock = (
            EndpointsLock(client, name=NAME, namespace="ns", clock=clock) if options.pop("old_lock", False) else None
        )
        self.elector = Elector(
            client,
            provisioner="k8s-sigs.io/nfs",
            namespace="ns",
            identity=identity,
            clock=clock,
            rng=random.Random(identity),
            on_started=lambda: self.story.append(("started", clock.monotonic())),
            on_lost=lambda reason: self.story.append(("lost", clock.monotonic(), reason)),
            events=self.events,
            old_lock=old_lock,
            **{"durations": Durations()} | options,
        )

    @property
    def leading(self):
        return self.elector.leading


@pytest.fixture
def server(kit):
    return LeaseServer(kit)


@pytest.fixture
def contender(server, clock, background):
    def start(identity, **options):
        contender = Contender(server, clock, identity, **options)
        contender.task = background(contender.elector.run())
        return contender

    return start


# Taking it.


async def test_a_missing_lease_is_created_as_the_reference_does(contender, server, clock):
    one = contender("one")
    await clock.run_for(0.1)
    assert one.leading
    assert one.story == [("started", clock.monotonic() - 0.1)]
    lease = server.objects[f"/apis/coordination.k8s.io/v1/namespaces/ns/leases/{NAME}"]
    stamp = lease["spec"]["acquireTime"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", stamp)
    assert lease["spec"] == {
        "holderIdentity": "one",
        "leaseDurationSeconds": 15,
        "acquireTime": stamp,
        "renewTime": stamp,
        "leaseTransitions": 0,
    }
    assert set(lease["metadata"]) == {"name", "namespace", "uid", "resourceVersion"}
    assert one.events.events == [("Lease", "ns", NAME, "Normal", "LeaderElection", "one became leader")]


async def test_it_is_renewed_every_two_seconds_and_keeps_its_history(contender, server, clock):
    one = contender("one")
    await clock.run_for(0.1)
    first = server.lease()["spec"]
    await clock.run_for(20)
    spec = server.lease()["spec"]
    assert spec["acquireTime"] == first["acquireTime"]
    assert spec["renewTime"] > first["renewTime"]
    assert spec["leaseTransitions"] == 0
    renewals = [at for method, _, at in one.line.requests if method == "PUT"]
    assert [round(later - earlier, 6) for earlier, later in itertools.pairwise(renewals)] == [2] * 9
    assert {method for method, _, _ in one.line.requests} == {"GET", "POST", "PUT"}
    assert [method for method, _, _ in one.line.requests].count("GET") == 1  # renewing needs no reading


async def test_only_one_of_many_leads(contender, clock):
    all_of_them = [contender(f"c{number}") for number in range(5)]
    for _ in range(60):
        await clock.run_for(1)
        assert sum(one.leading for one in all_of_them) == 1
    assert sum(len(one.story) for one in all_of_them) == 1


async def test_tries_come_at_random_two_to_four_seconds_apart(contender, clock):
    contender("one")
    await clock.run_for(0.1)
    two = contender("two")
    await clock.run_for(60)
    gets = [at for method, _, at in two.line.requests]
    gaps = [later - earlier for earlier, later in itertools.pairwise(gets)]
    assert all(2 <= gap <= 4.4 for gap in gaps)
    assert len({round(gap, 3) for gap in gaps}) > 5


async def test_a_dead_leaders_lease_is_taken_when_it_has_been_seen_unchanged_for_its_duration(contender, server, clock):
    one = contender("one")
    await clock.run_for(5)
    two = contender("two")
    await clock.run_for(5)
    one.task.cancel()
    died = clock.monotonic()
    await clock.run_for(13)
    assert not two.leading
    await clock.run_for(12)
    assert two.leading
    assert 13 < two.story[0][1] - died < 15 + 2 + 4.4
    assert server.lease()["spec"]["leaseTransitions"] == 1


@pytest.mark.parametrize("skew", [-86400, -5, 5, 86400])
async def test_wall_clocks_that_disagree_change_nothing(contender, server, clock, kit, skew):
    one = contender("one")
    await clock.run_for(1)
    other_clock = kit.ManualClock()
    other_clock.shift_wall(skew)
    two = Contender(server, other_clock, "two")
    task = asyncio.get_running_loop().create_task(two.elector.run())
    for _ in range(100):
        await clock.run_for(0.5)
        await other_clock.run_for(0.5)
        assert one.leading
        assert not two.leading
    one.task.cancel()
    await other_clock.run_for(25)
    assert two.leading
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_an_ancient_record_is_waited_out_before_it_is_taken(contender, server, clock):
    server.put(
        f"/apis/coordination.k8s.io/v1/namespaces/ns/leases/{NAME}",
        {"metadata": {"name": NAME}, "spec": {"holderIdentity": "gone", "renewTime": "1999-01-01T00:00:00.000000Z"}},
    )
    one = contender("one")
    await clock.run_for(14.9)
    assert not one.leading
    await clock.run_for(5)
    assert one.leading


async def test_the_records_own_duration_counts_not_ours(contender, server, clock):
    server.put(
        f"/apis/coordination.k8s.io/v1/namespaces/ns/leases/{NAME}",
        {"metadata": {"name": NAME}, "spec": {"holderIdentity": "other", "leaseDurationSeconds": 60}},
    )
    one = contender("one")
    await clock.run_for(59)
    assert not one.leading
    await clock.run_for(6)
    assert one.leading


async def test_a_lease_with_nobody_or_nothing_in_it_is_taken_at_once(contender, server, clock):
    path = f"/apis/coordination.k8s.io/v1/namespaces/ns/leases/{NAME}"
    for spec in (None, {}, {"holderIdentity": "", "leaseTransitions": 4}, {"holderIdentity": None}):
        server.put(path, {"metadata": {"name": NAME}, "spec": spec})
        one = contender("one")
        await clock.run_for(0.1)
        assert one.leading
        assert server.lease()["spec"]["leaseTransitions"] == (5 if spec and spec.get("leaseTransitions") else 1)
        one.task.cancel()
        await clock.run_for(0.1)


async def test_what_we_do_not_know_of_a_lease_survives(contender, server, clock):
    server.put(
        f"/apis/coordination.k8s.io/v1/namespaces/ns/leases/{NAME}",
        {
            "metadata": {"name": NAME, "labels": {"a": "b"}, "ownerReferences": [{"name": "x"}]},
            "spec": {"holderIdentity": "", "strategy": "OldestEmulationVersion"},
        },
    )
    one = contender("one")
    await clock.run_for(5)
    one.elector.stop()
    await clock.run_for(1)
    lease = server.lease()
    assert lease["metadata"]["labels"] == {"a": "b"}
    assert lease["metadata"]["ownerReferences"] == [{"name": "x"}]
    assert lease["spec"]["strategy"] == "OldestEmulationVersion"


async def test_a_server_that_is_down_at_the_start_is_asked_until_it_is_up(contender, clock):
    one = contender("one")
    one.line.trouble = "down"
    await clock.run_for(60)
    assert one.story == []
    one.line.trouble = ""
    await clock.run_for(5)
    assert one.leading


@pytest.mark.parametrize(
    ("trouble", "remedy"),
    [
        (
            "forbidden",
            "allow get, create, update and watch of leases in the namespace ns, or choose another namespace with",
        ),
        ("no namespace", "create the namespace ns, or choose another namespace with --leader-election-namespace"),
        ("500", ""),
    ],
)
async def test_who_cannot_take_part_says_so_again_and_again_and_what_to_do(contender, clock, caplog, trouble, remedy):
    one = contender("one")
    one.line.trouble = trouble
    await clock.run_for(20)
    assert one.elector.problem == ""  # it may pass
    await clock.run_for(281)
    assert "cannot take part in the election" in one.elector.problem
    assert remedy in one.elector.problem
    told = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert 5 <= len(told) <= 7, told  # once a minute, although it is tried every few seconds
    assert all(remedy in line for line in told)
    one.line.trouble = ""
    await clock.run_for(5)
    assert one.leading
    assert one.elector.problem == ""


async def test_troubles_that_take_turns_are_not_told_at_each_turn(contender, clock, caplog):
    one = contender("one")
    for turn in range(60):
        one.line.trouble = ("forbidden", "no namespace", "down")[turn % 3]
        await clock.run_for(5)
    assert one.elector.problem
    assert len([r for r in caplog.records if r.levelname == "WARNING"]) <= 3 * 6


async def test_standing_by_is_no_problem(contender, clock):
    contender("one")
    await clock.run_for(1)
    two = contender("two")
    await clock.run_for(120)
    assert two.elector.problem == ""


async def test_a_holder_that_never_renews_and_whose_lease_never_ends_is_told(contender, server, clock, caplog):
    spec = {"holderIdentity": "forged", "leaseDurationSeconds": 2**31 - 1}
    server.put(LEASE_PATH, {"metadata": {"name": NAME}, "spec": spec})
    one = contender("one")
    await clock.run_for(29)
    assert one.elector.problem == ""  # it may renew yet
    await clock.run_for(300)
    assert not one.leading
    assert "forged holds it and has not renewed it for more than 30 s" in one.elector.problem
    assert "good for 2147483647 s" in one.elector.problem
    assert "delete the Lease ns/" in one.elector.problem
    assert [r.levelname for r in caplog.records if "has not renewed it" in r.getMessage()] == ["WARNING"]
    server.put(LEASE_PATH, {"metadata": {"name": NAME}, "spec": spec | {"renewTime": "2026-01-01T00:00:00.000000Z"}})
    await clock.run_for(5)
    assert one.elector.problem == ""  # it is alive
    server.put(LEASE_PATH, {"metadata": {"name": NAME}, "spec": {"holderIdentity": ""}})
    await clock.run_for(5)
    assert one.leading
    assert one.elector.problem == ""


@pytest.mark.parametrize(("before", "after"), [(2**31 - 2, 2**31 - 1), (2**31 - 1, 0)])
async def test_the_count_of_transitions_starts_over_where_the_field_ends(contender, server, clock, before, after):
    spec = {"holderIdentity": "", "leaseTransitions": before}
    server.put(LEASE_PATH, {"metadata": {"name": NAME}, "spec": spec})
    one = contender("one")
    await clock.run_for(5)
    assert one.leading
    assert server.lease()["spec"]["leaseTransitions"] == after


# Keeping it.


async def test_an_outage_shorter_than_the_deadline_costs_nothing(contender, clock):
    one = contender("one")
    await clock.run_for(2.1)
    one.line.trouble = "down"
    await clock.run_for(9)
    one.line.trouble = ""
    await clock.run_for(30)
    assert one.leading
    assert len(one.story) == 1


@pytest.mark.parametrize("trouble", ["down", "deaf", "slow", "500", "answers get lost"])
async def test_no_renewal_until_the_deadline_is_a_loss_at_the_deadline(contender, server, clock, trouble):
    one = contender("one")
    await clock.run_for(2.1)
    sent = [at for method, _, at in one.line.requests if method == "PUT"][-1]
    one.line.trouble = trouble
    await clock.run_for(9.8)
    assert one.leading
    await clock.run_for(0.2)
    assert not one.leading
    what, when, reason = one.story[-1]
    assert what == "lost"
    assert when == pytest.approx(sent + 10)
    assert "no renewal succeeded within 10 s" in reason
    assert one.events.events[-1][-1] == "one stopped leading"
    assert one.task.done()
    assert server.holder() == "one"  # whoever comes next waits until it has run out


async def test_answers_that_get_lost_for_a_while_do_not_cost_the_lease(contender, clock):
    one = contender("one")
    await clock.run_for(2.1)
    one.line.trouble = "answers get lost"
    await clock.run_for(7)
    one.line.trouble = ""
    await clock.run_for(20)
    assert one.leading
    assert len(one.story) == 1


async def test_somebody_else_in_the_lease_is_a_loss_at_once(contender, server, clock):
    one = contender("one")
    await clock.run_for(2.1)
    server.edit(holderIdentity="thief")
    await clock.run_for(2)
    assert one.story[-1][0] == "lost"
    assert "thief holds it now" in one.story[-1][2]
    assert not one.leading
    await clock.run_for(10)
    assert server.holder() == "thief"


async def test_a_change_by_somebody_who_is_not_after_it_is_taken_in(contender, server, clock):
    one = contender("one")
    await clock.run_for(2.1)
    path, obj = next((path, obj) for path, obj in server.objects.items())
    obj["metadata"]["labels"] = {"team": "storage"}
    server.put(path, obj)
    await clock.run_for(10)
    assert one.leading
    assert server.lease()["metadata"]["labels"] == {"team": "storage"}


async def test_a_lease_that_was_deleted_is_made_again(contender, server, clock):
    one = contender("one")
    await clock.run_for(2.1)
    server.objects.clear()
    await clock.run_for(3)
    assert one.leading
    assert server.holder() == "one"


async def test_a_process_that_was_suspended_does_not_believe_to_lead(contender, clock):
    one = contender("one")
    await clock.run_for(2.1)
    clock._time += 11  # nothing ran meanwhile, not even the election
    assert not one.leading


# Handing it over.


async def test_stopping_releases_it_and_the_next_one_leads_at_once(contender, server, clock):
    one = contender("one")
    await clock.run_for(5)
    two = contender("two")
    await clock.run_for(5)
    one.elector.stop()
    await clock.run_for(0.1)
    assert one.task.done()
    assert not one.leading
    assert two.leading
    assert [what for what, *_ in one.story] == ["started"]
    assert one.events.events[-1][-1] == "one stopped leading"
    assert server.lease()["spec"]["leaseTransitions"] == 1


async def test_a_released_lease_says_nobody_for_a_second(contender, server, clock):
    one = contender("one")
    await clock.run_for(1)
    one.elector.stop()
    await clock.run_for(0.1)
    spec = server.lease()["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("", 1, 0)
    assert spec["renewTime"] == spec["acquireTime"]


async def test_without_permission_to_watch_the_next_one_leads_soon(contender, clock):
    one = contender("one")
    await clock.run_for(1)
    two = contender("two")
    two.line.trouble = "no watch"
    await clock.run_for(5)
    one.elector.stop()
    await clock.run_for(4.5)
    assert two.leading


async def test_stopping_a_standby_writes_nothing(contender, server, clock):
    contender("one")
    await clock.run_for(1)
    two = contender("two")
    await clock.run_for(5)
    two.elector.stop()
    await clock.run_for(0.1)
    assert two.task.done()
    assert {method for method, _, _ in two.line.requests} == {"GET"}
    assert two.events.events == []


async def test_a_release_that_fails_is_told_and_does_not_hang(contender, clock, caplog):
    one = contender("one")
    await clock.run_for(1)
    one.line.trouble = "deaf"
    one.elector.stop()
    await clock.run_for(11)
    assert one.task.done()
    assert "not released" in caplog.text
    assert [what for what, *_ in one.story] == ["started"]


async def test_a_release_that_meets_a_conflict_looks_again(contender, server, clock):
    one = contender("one")
    await clock.run_for(1)
    server.edit(renewTime="2026-01-01T00:00:00.000000Z")
    one.elector.stop()
    await clock.run_for(0.1)
    assert server.holder() == ""


async def test_a_lease_that_was_taken_meanwhile_is_not_released(contender, server, clock):
    one = contender("one")
    await clock.run_for(1)
    server.edit(holderIdentity="thief")
    one.elector.stop()
    await clock.run_for(0.1)
    assert server.holder() == "thief"


TROUBLES = st.sampled_from(["", "", "down", "deaf", "slow", "500", "answers get lost", "no watch"])
MOVES = st.one_of(
    st.tuples(st.just("trouble"), st.integers(0, 2), TROUBLES),
    st.tuples(st.just("stop"), st.integers(0, 2), st.none()),
    st.tuples(st.just("kill"), st.integers(0, 2), st.none()),
    st.tuples(st.just("suspend"), st.integers(0, 2), st.floats(0, 40)),
    st.tuples(st.just("run"), st.just(0), st.floats(0, 30)),
    st.tuples(st.just("run"), st.just(0), st.floats(0, 30)),
    st.tuples(st.just("delete"), st.just(0), st.none()),
)


@given(moves=st.lists(MOVES, max_size=25), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_whatever_happens_never_do_two_believe_to_lead_and_in_the_end_one_does(kit_, moves, seed):
    async def scenario():
        clock = kit_.ManualClock()
        server = LeaseServer(kit_)
        names = itertools.count()
        loop = asyncio.get_running_loop()
        tasks = []

        def start():
            contender = Contender(server, clock, f"c{next(names)}-{seed}")
            contender.task = loop.create_task(contender.elector.run())
            tasks.append(contender.task)
            return contender

        everyone = []
        three = [start() for _ in range(3)]
        everyone += three

        async def run(seconds):
            while seconds > 0:
                await clock.run_for(min(seconds, 0.25))
                seconds -= 0.25
                assert sum(one.leading for one in everyone) <= 1
                for number, one in enumerate(three):
                    if one.task.done():
                        assert one.task.cancelled() or one.task.exception() is None
                        three[number] = start()
                        everyone.append(three[number])

        for move, who, argument in moves:
            if move == "trouble":
                three[who].line.trouble = argument
            elif move == "stop":
                three[who].elector.stop()
            elif move == "kill":
                three[who].task.cancel()
                three[who].elector._leading = False  # a dead process believes nothing
            elif move == "suspend":
                clock._time += argument  # all of them at once: a machine that slept
            elif move == "delete" and not any(one.leading for one in three):
                server.objects.clear()
            elif move == "run":
                await run(argument)
            assert sum(one.leading for one in everyone) <= 1
        for one in three:
            one.line.trouble = ""
        await run(60)
        assert sum(one.leading for one in everyone) == 1
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(scenario())


# The Endpoints lock of older provisioners.


def _hold_endpoints(server, holder, renewed):
    record = {
        "holderIdentity": holder,
        "leaseDurationSeconds": 15,
        "renewTime": f"2020-01-01T00:00:{renewed:02}Z",
    }
    server.put(
        f"/api/v1/namespaces/ns/endpoints/{NAME}",
        {"metadata": {"name": NAME, "annotations": {ANN_ENDPOINTS_LEADER: json.dumps(record)}}},
    )


async def test_an_older_provisioner_that_keeps_renewing_keeps_us_waiting(contender, server, clock, caplog):
    caplog.set_level("INFO")
    _hold_endpoints(server, "go-pod_123", 0)
    one = contender("one", old_lock=True)
    for number in range(1, 31):
        await clock.run_for(2)
        _hold_endpoints(server, "go-pod_123", number)
        assert not one.leading
    assert server.lease() is None
    assert caplog.text.count("go-pod_123 holds the Endpoints lock ns/k8s-sigs.io-nfs") == 1
    await clock.run_for(14)
    assert not one.leading
    await clock.run_for(6)
    assert one.leading


async def test_a_released_or_empty_or_missing_old_lock_is_no_obstacle(contender, server, clock):
    path = f"/api/v1/namespaces/ns/endpoints/{NAME}"
    for prepare in (
        lambda: None,
        lambda: _hold_endpoints(server, "", 0),
        lambda: server.put(path, {"metadata": {"name": NAME}}),
        lambda: server.put(path, {"metadata": {"name": NAME, "annotations": {"other": "x"}}}),
    ):
        server.objects.clear()
        prepare()
        one = contender("one", old_lock=True)
        await clock.run_for(0.1)
        assert one.leading
        one.task.cancel()
        await clock.run_for(0.1)


@pytest.mark.parametrize("text", ["{", "[]", "null", '"x"', '{"holderIdentity": 5}', "[" * 5000])
async def test_a_record_nobody_can_read_is_somebody_until_it_stays_the_same(contender, server, clock, text):
    path = f"/api/v1/namespaces/ns/endpoints/{NAME}"
    server.put(path, {"metadata": {"name": NAME, "annotations": {ANN_ENDPOINTS_LEADER: text}}})
    one = contender("one", old_lock=True)
    await clock.run_for(14)
    assert not one.leading
    await clock.run_for(6)
    assert one.leading


async def test_not_being_allowed_to_read_the_old_lock_is_said_once(contender, clock, caplog):
    one = contender("one", old_lock=True)
    one.line.trouble = "no endpoints"
    await clock.run_for(130)
    assert one.leading
    assert caplog.text.count("not allowed to see") == 1


async def test_a_standby_has_watched_the_old_lock_already_when_its_turn_comes(contender, server, clock):
    _hold_endpoints(server, "gone", 0)
    one = contender("one", old_lock=True)
    two = contender("two", old_lock=True)
    await clock.run_for(30)
    leader, standby = (one, two) if one.leading else (two, one)
    leader.elector.stop()
    await clock.run_for(0.1)
    assert standby.leading


async def test_an_older_provisioner_started_while_we_lead_is_reported(contender, server, clock, caplog):
    one = contender("one", old_lock=True)
    await clock.run_for(30)
    for number in range(100):
        _hold_endpoints(server, "go-pod_9", number)
        await clock.run_for(2)
    assert one.leading
    assert caplog.text.count("go-pod_9, an older provisioner") == 1
