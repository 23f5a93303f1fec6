"""The export's budget: what is promised counts from the moment it is promised, whoever has saved it or not."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nfs_rig import EXPORT, PROVISIONER, SERVER, Rig
from prov_host import Provisioned, ProvisionError, Volume
from prov_host.testing.objects import make_claim, make_class, make_request, make_volume
from prov_host_nfs_subdir import provisioning
from prov_host_nfs_subdir.ledger import Ledger
from prov_host_nfs_subdir.settings import Export

BY_NAME = {"pathPattern": "${.PVC.namespace}/${.PVC.name}"}
SHARED = {"pathPattern": "${.PVC.annotations.p}", "adoptExisting": "true"}
GI = 1024**3


@pytest.fixture
def rig(rig: Rig) -> Rig:
    rig.settings["budget"] = "10Gi"
    rig.start()
    return rig


def promised(rig: Rig) -> float | None:
    return rig.host.registry.get_sample_value("prov_host_nfs_subdir_export_promised_bytes", {"export": "default"})


def test_a_budget_bounds_the_sum_of_all_volumes(rig: Rig) -> None:
    rig.make("ns1", "a", storage="6Gi")
    with pytest.raises(ProvisionError, match=r"budget.*6 GiB of 10 GiB"):
        rig.make("ns1", "b", storage="5Gi")
    rig.make("ns1", "c", storage="4Gi")


def test_volumes_that_share_a_directory_count_once(rig: Rig) -> None:
    for name in ("a", "b"):
        rig.make("ns1", name, SHARED, annotations={"p": "x"}, storage="6Gi")
    rig.make("ns1", "c", storage="4Gi")


def test_archives_do_not_count(rig: Rig) -> None:
    rig.archive(rig.make("ns1", "a", storage="6Gi"))
    rig.make("ns1", "b", storage="6Gi")


def test_an_adopted_directory_counts(rig: Rig) -> None:
    (rig.share / "x").mkdir()
    rig.make("ns1", "a", storage="6Gi")
    with pytest.raises(ProvisionError, match="budget"):
        rig.make("ns1", "b", SHARED, annotations={"p": "x"}, storage="6Gi")


def test_two_claims_at_once_cannot_both_have_the_last_of_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are between the decision and the directory, where nothing on disk or in the cluster tells of the other."""
    entered, go_on = threading.Event(), threading.Event()
    check = provisioning.check_space  # type: ignore[attr-defined]

    def slow(*args: object) -> None:
        entered.set()
        assert go_on.wait(10)
        check(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(provisioning, "check_space", slow)
    first, second = (rig.request(make_claim(name, storage="6Gi")) for name in "ab")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(rig.plugin.provision, first)
        assert entered.wait(10)
        with pytest.raises(ProvisionError, match=r"budget.*6 GiB of 10 GiB"):
            rig.plugin.provision(second)
        go_on.set()
        running.result()
    assert promised(rig) == 6 * GI


def test_many_claims_at_once_get_what_is_there_and_no_more(rig: Rig) -> None:
    requests = [rig.request(make_claim(f"a{number}", storage="3Gi")) for number in range(12)]

    def ask(number: int) -> bool:
        try:
            rig.plugin.provision(requests[number])
        except ProvisionError:
            return False
        return True

    with ThreadPoolExecutor(12) as pool:
        assert sum(pool.map(ask, range(12))) == 3


def test_a_promise_holds_until_the_volume_is_saved_or_given_up(rig: Rig) -> None:
    first, second = (rig.request(make_claim(name, storage="6Gi")) for name in "ab")
    for _ in range(3):
        answer = rig.plugin.provision(first)  # asked again, because the volume cannot be saved
        assert promised(rig) == 6 * GI
        with pytest.raises(ProvisionError, match="budget"):
            rig.plugin.provision(second)
    rig.plugin.delete(rig.unsaved(make_volume(first, answer)))
    assert promised(rig) == 0
    rig.save(second, rig.plugin.provision(second))
    assert promised(rig) == 6 * GI
    with pytest.raises(ProvisionError, match="budget"):
        rig.plugin.provision(first)


def test_a_claim_that_fails_promises_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (rig.request(make_claim(name, storage="6Gi")) for name in "ab")

    def full(*_args: object) -> None:
        raise ProvisionError("full")

    with monkeypatch.context() as patch:
        patch.setattr(provisioning, "check_space", full)
        with pytest.raises(ProvisionError, match="full"):
            rig.plugin.provision(first)
    rig.plugin.provision(second)


@pytest.mark.parametrize("waits", [True, False])
def test_what_a_former_process_promised_to_a_claim_that_still_waits_counts(rig: Rig, waits: bool) -> None:
    first, second = (rig.request(make_claim(name, storage="6Gi")) for name in "ab")
    rig.plugin.provision(first)
    rig.start()
    rig.host.known_claims = [first.claim, second.claim] if waits else [second.claim]
    if not waits:
        rig.plugin.provision(second)
        return
    with pytest.raises(ProvisionError, match="budget"):
        rig.plugin.provision(second)
    rig.save(first, rig.plugin.provision(first))
    with pytest.raises(ProvisionError, match="budget"):
        rig.plugin.provision(second)


def test_what_a_former_process_made_counts_once_it_is_asked_for_again(rig: Rig) -> None:
    first, second = (rig.request(make_claim(name, storage="6Gi")) for name in "ab")
    rig.plugin.provision(first)
    rig.start()
    rig.plugin.provision(first)
    with pytest.raises(ProvisionError, match="budget"):
        rig.plugin.provision(second)


def test_there_is_no_moment_without_the_promise_while_it_is_asked_for_again(rig: Rig) -> None:
    work = rig.plugin._served["default"].work
    with work.reserve("pv", ("a",)) as mine:
        mine.size, mine.keep = 5, True
    with work.reserve("pv", ("a",)):
        assert work.promises() == {"pv": (("a",), 5)}


def test_the_metric_follows_every_change(rig: Rig) -> None:
    a, b = rig.make("ns1", "a", storage="6Gi"), rig.make("ns1", "b", storage="1Gi")
    assert promised(rig) == 7 * GI
    rig.delete(a)
    rig.plugin.check()
    assert promised(rig) == 1 * GI
    rig.drop(b)
    rig.plugin.check()
    assert promised(rig) == 0


_export = Export(
    name="x",
    server=SERVER,
    servers=frozenset({SERVER}),
    path=EXPORT,
    roots=(EXPORT,),
    mount="/m",
    provisioners=(PROVISIONER,),
)


def _volume(pv: str, path: str, size: int) -> Volume:
    request = make_request(make_claim(storage=str(size)), make_class(provisioner=PROVISIONER))
    answer = Provisioned(source={"nfs": {"server": SERVER, "path": f"{EXPORT}/{path}"}}, record={"path": path})
    wire = msgspec.to_builtins(make_volume(request, answer, plugin="nfs_subdir", phase="Bound"))
    wire["metadata"]["name"] = pv
    return msgspec.convert(wire, Volume)


_named = st.tuples(st.sampled_from("abcdef"), st.sampled_from(["p", "q", "r/s"]), st.integers(0, 9))


@settings(max_examples=200, deadline=None)
@given(rounds=st.lists(st.tuples(st.lists(_named, max_size=6), st.lists(_named, max_size=3), st.sampled_from("abcx"))))
def test_the_ledger_is_what_adding_up_would_be(
    rounds: list[tuple[list[tuple[str, str, int]], list[tuple[str, str, int]], str]],
) -> None:
    ledger = Ledger(_export)
    kept: dict[tuple[str, str, int], Volume] = {}
    for saved, more, but in rounds:
        now = {pv: (pv, path, size) for pv, path, size in saved}
        for one in now.values():
            if one not in kept:
                kept[one] = _volume(*one)
        extra = {pv: (tuple(path.split("/")), size) for pv, path, size in more if pv not in now}
        sizes: dict[tuple[str, ...], int] = {}
        for pv, parts, size in [
            *((pv, tuple(path.split("/")), size) for pv, path, size in now.values()),
            *((pv, parts, size) for pv, (parts, size) in extra.items()),
        ]:
            if pv != but:
                sizes[parts] = max(sizes.get(parts, 0), size)
        assert ledger.total([kept[one] for one in now.values()], extra, but=but) == sum(sizes.values())


def test_an_unreadable_size_counts_as_nothing() -> None:
    volume = _volume("a", "p", 7)
    assert volume.spec.capacity is not None
    volume.spec.capacity["storage"] = "lots"
    assert Ledger(_export).total([volume, _volume("b", "q", 5)]) == 5
