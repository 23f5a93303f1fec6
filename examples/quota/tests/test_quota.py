"""A namespace never gets more storage than its budget, and every refusal says why."""

import contextlib
import threading

import pytest
from prov_host_quota import QuotaPlugin, QuotaSettings

from prov_host import ConfigurationError, InBackground, Infeasible, Provisioned, ProvisionError, hookimpl
from prov_host.testing import FakeHost, hooks_of, make_claim, make_request, make_volume

ANSWER = Provisioned(source={"hostPath": {"path": "/x"}})


class Backend:
    failure = None

    @hookimpl
    def provision(self, request):
        if self.failure:
            raise self.failure
        return ANSWER

    @hookimpl
    def delete(self, volume):
        return None


@pytest.fixture
def host():
    return FakeHost("quota")


@pytest.fixture
def backend():
    return Backend()


@pytest.fixture
def hooks(host, backend):
    plugin = QuotaPlugin()
    plugin.configure(QuotaSettings(default="", budgets={"a": "3Gi", "none": "0"}), host)
    return hooks_of(backend, plugin)


def ask(hooks, namespace, size):
    request = make_request(make_claim("data", namespace, storage=size))
    hooks.provision(request=request)
    return request


def test_a_namespace_without_a_budget_gets_what_it_asks_for(hooks):
    assert ask(hooks, "b", "900Ti")


def test_a_claim_over_the_budget_is_refused_with_the_numbers(hooks, host):
    request = ask(hooks, "a", "2Gi")
    host.know([make_volume(request, ANSWER)])
    with pytest.raises(ProvisionError, match="budget of 3Gi and uses 2Gi; a/data wants 2Gi"):
        ask(hooks, "a", "2Gi")
    assert ask(hooks, "a", "1Gi")


def test_a_budget_of_nothing_gives_nothing(hooks):
    with pytest.raises(ProvisionError, match="budget of 0"):
        ask(hooks, "none", "1")


def test_claims_that_come_at_once_do_not_overrun_the_budget_together(hooks):
    gate = threading.Barrier(8)
    made = []

    def run():
        gate.wait()
        with contextlib.suppress(ProvisionError):
            made.append(ask(hooks, "a", "1Gi"))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 3


def test_asking_again_for_one_volume_counts_once(hooks):
    request = ask(hooks, "a", "2Gi")
    assert hooks.provision(request=request) == ANSWER


def test_room_that_was_not_used_is_given_back(hooks, backend):
    backend.failure = ProvisionError("disk full")
    with pytest.raises(ProvisionError, match="disk full"):
        ask(hooks, "a", "3Gi")
    backend.failure = None
    assert ask(hooks, "a", "3Gi")


def test_room_is_kept_while_something_may_still_come_of_it(hooks, backend):
    backend.failure = InBackground("copying")
    with pytest.raises(InBackground):
        ask(hooks, "a", "3Gi")
    backend.failure = None
    with pytest.raises(ProvisionError, match="uses 3Gi"):
        ask(hooks, "a", "1Gi")


def test_a_volume_that_was_undone_gives_its_room_back(hooks):
    request = ask(hooks, "a", "3Gi")
    hooks.delete(volume=make_volume(request, ANSWER))
    assert ask(hooks, "a", "3Gi")


def test_a_volume_that_came_and_went_leaves_no_promise_behind(hooks, host):
    request = ask(hooks, "a", "3Gi")
    host.know([make_volume(request, ANSWER)])
    seconds, job = host.jobs["forget volumes that are saved"]
    assert seconds == 10
    job()
    host.known_volumes.clear()
    assert ask(hooks, "a", "3Gi")


def test_a_size_that_cannot_be_read_is_refused_for_good(hooks):
    with pytest.raises(Infeasible, match="'lots' is not a quantity"):
        ask(hooks, "a", "lots")


def test_all_bad_budgets_are_reported_together(host):
    with pytest.raises(ConfigurationError) as caught:
        QuotaPlugin().configure(QuotaSettings(default="much", budgets={"a": "-1"}), host)
    assert [problem.split(":")[1].strip() for problem in caught.value.problems] == [
        "the setting default",
        "the setting budgets.a",
    ]
