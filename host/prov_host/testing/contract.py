"""The contract suite: what every backend promises, as tests that an author gets by writing one fixture.

::

    from prov_host.testing import BackendContract, BackendUnderTest

    class TestMyBackend(BackendContract):
        @pytest.fixture
        def backend(self, tmp_path):
            root = tmp_path / "storage"
            root.mkdir()
            return BackendUnderTest(MyPlugin, {"root": str(root)}, storage=root)

Each failure begins with the name of the broken promise (:mod:`prov_host.testing.promises`) and says what the backend
did instead. The suite sees the storage only through the plugin's ``inventory`` hook or the subject's ``exists``, so
it fits directories, disks and services alike.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from prov_host.controller.build import build_volume
from prov_host.controller.options import ControllerOptions
from prov_host.errors import Infeasible, Outcome, PluginError, ProvisionError, Reschedule
from prov_host.model import POLICIES, Claim, Provisioned, ProvisionRequest, Removed, Volume
from prov_host.testing.objects import make_volume
from prov_host.testing.promises import broken, keeping
from prov_host.testing.subject import BackendUnderTest, LateError, RunningBackend

__all__ = ["HOSTILE_CLAIMS", "REFUSED_LATER", "BackendContract"]

_AT_ONCE = 8

# Claims as an attacker, or an old tool, would write them: options of `make_claim`.
HOSTILE_CLAIMS: Mapping[str, Mapping[str, Any]] = {
    "parent-name": {"name": ".."},
    "parent-namespace": {"namespace": "..", "name": "data"},
    "climbing-name": {"name": "../../../../etc/cron.d/x"},
    "absolute-name": {"name": "/etc/passwd"},
    "slash-in-namespace": {"namespace": "a/../../b"},
    "nul": {"name": "data\0/../../x"},
    "newline": {"name": "data\nrm -rf /"},
    "backslash": {"name": "..\\..\\x"},
    "long-name": {"name": "n" * 300, "namespace": "m" * 300},
    "dot-name": {"name": "."},
    "option-name": {"name": "-rf", "namespace": "--"},
    "shell-name": {"name": "$(touch /tmp/x);`id`;${HOME}"},
    "unicode-name": {"name": "\u202edata\ufeff\u2215etc", "namespace": "\u0661"},
    "surrogate-escape": {"name": "caf\u00e9\U0001f4a9"},
    "empty-names": {"name": "", "namespace": ""},
    "no-names": {"name": None, "namespace": None},
    "no-uid": {"uid": "../../x"},
    "no-modes": {"access_modes": None},
    "unknown-mode": {"access_modes": ("ReadWriteSometimes",)},
    "no-size": {"storage": None},
    "not-a-size": {"storage": "lots"},
    "negative-size": {"storage": "-1Gi"},
    "enormous-size": {"storage": "9" * 40 + "Ei"},
    "labels": {"labels": {"app": "../..", "..": "x", "a/b": "\0"}},
    "annotations": {"annotations": {"prov-host/record": "{}", "prov-host/mode": "4777", "p": "../../x" * 500}},
}


# What may have changed when a claim is asked for again: options of `make_claim`, and parameters of the class.
REFUSED_LATER: Mapping[str, Mapping[str, Any]] = {
    "an unknown parameter": {"parameters": {"noSuchParameter": "x"}},
    "a mode that is none": {"parameters": {"mode": "rwx"}},
    "a selector": {"spec": {"selector": {"matchLabels": {"a": "b"}}}},
    "a data source": {"spec": {"dataSource": {"kind": "VolumeSnapshot", "name": "s"}}},
    "a size that is none": {"storage": "lots"},
    "an enormous size": {"storage": "9" * 30 + "Ei"},
    "an unknown access mode": {"access_modes": ("ReadWriteSometimes",)},
}


class BackendContract:
    """Subclass it with a fixture ``backend``; pytest collects the tests with the subclass. Since 0.1."""

    @pytest.fixture
    def backend(self) -> BackendUnderTest:
        """The backend to be tested, on a storage of its own for each test: to be overridden."""
        pytest.fail(
            f"{type(self).__name__} needs a fixture `backend` that returns a prov_host.testing.BackendUnderTest"
        )

    def test_it_is_a_backend(self, backend: BackendUnderTest) -> None:
        """It has the hooks, a name to serve, a policy that exists, and finds its storage well."""
        running = backend.start()
        if missing := {"provisioners", "provision", "delete"} - running.hooks:
            broken("backend", f"no hook named {', '.join(sorted(missing))} (is it marked with @hookimpl?)")
        with keeping("backend", "asking for provisioners"):
            names = running.provisioners()
        if not isinstance(names, list | tuple) or not names or not all(isinstance(n, str) and n for n in names):
            broken("backend", f"provisioners returned {names!r}; return a list of names such as 'example.com/disk'")
        policy = running.default_policy()
        if policy not in POLICIES or (policy == "archive" and "archive" not in running.hooks):
            broken("backend", f"the default policy is {policy!r}, which it cannot carry out")
        with keeping("backend", "checking readiness"):
            wrong = running.check()
        if wrong:
            broken("backend", f"check says about a fresh storage: {'; '.join(wrong)}")
        with keeping("backend", "closing"):
            running.close()
        if backend.exists is None and "inventory" not in running.hooks:
            pytest.fail(
                "The suite cannot see the storage: implement the hook `inventory`, or give BackendUnderTest "
                "`exists`, a function that says whether a volume's asset is there.",
                pytrace=False,
            )

    def test_provisioning_answers_with_a_whole_volume(self, backend: BackendUnderTest) -> None:
        """The answer has the right type, one source, and survives being written as JSON."""
        running = backend.start()
        request = _request(backend, running)
        answer = _provision(running, request, "whole-answer")
        volume = make_volume(request, answer)
        if not _exists(backend, running, volume):
            broken("whole-answer", f"{volume.name} was provisioned, but its asset is not there")
        if answer.capacity is not None and answer.capacity < request.claim.requested_bytes:
            broken("whole-answer", f"capacity {answer.capacity} is less than the {request.claim.requested} asked for")

    def test_provisioning_again_answers_with_the_same_asset(self, backend: BackendUnderTest) -> None:
        """Retries, and a class that changed meanwhile, make no second asset."""
        running = backend.start()
        request = _request(backend, running)
        first = _provision(running, request, "idempotent-provision")
        second = _provision(running, request, "idempotent-provision")
        _same("idempotent-provision", first, second)

    def test_two_volumes_never_share_an_asset(self, backend: BackendUnderTest) -> None:
        """Same names in other namespaces, and a claim re-created under its name, get assets of their own."""
        running = backend.start()
        claims = [backend.claim("data", "a-b"), backend.claim("b-data", "a"), backend.claim("data", "a")]
        answers = {}
        for claim in claims:
            request = _request(backend, running, claim)
            answers[request.pv_name] = _provision(running, request, "own-asset")
        again = _request(backend, running, backend.claim("data", "a"))
        try:
            answers[again.pv_name] = running.provision(again)
        except LateError as error:
            broken("time-limit", str(error))
        except Outcome:
            pass  # refusing a second volume for one place is as good
        _all_different("own-asset", answers)

    def test_deleting_removes_the_asset_and_nothing_else(self, backend: BackendUnderTest) -> None:
        """A neighbour whose name begins alike stays."""
        running = backend.start()
        volume = _provisioned(backend, running, backend.claim("data"))
        neighbour = _provisioned(backend, running, backend.claim("data-2"))
        _delete(running, volume, "delete-removes")
        if _exists(backend, running, volume):
            broken("delete-removes", f"{volume.name} was deleted, but its asset is still there")
        if not _exists(backend, running, neighbour):
            broken("delete-removes", f"deleting {volume.name} removed {neighbour.name} as well")

    def test_deleting_again_is_a_success(self, backend: BackendUnderTest) -> None:
        """The host may call twice: a reply was lost, or the volume object was still in a cache."""
        running = backend.start()
        volume = _provisioned(backend, running)
        neighbour = _provisioned(backend, running)
        _delete(running, volume, "idempotent-delete")
        _delete(running, volume, "idempotent-delete")
        if not _exists(backend, running, neighbour):
            broken("idempotent-delete", f"deleting {volume.name} again removed {neighbour.name}")

    def test_a_missing_asset_is_a_success(self, backend: BackendUnderTest) -> None:
        """Also for a process that never saw the asset."""
        running = backend.start()
        volume = _provisioned(backend, running)
        _delete(running, volume, "missing-asset")
        fresh = backend.start()
        _delete(fresh, volume, "missing-asset")
        if "archive" in fresh.hooks:
            with keeping("missing-asset", f"archiving {volume.name}, whose asset is gone"):
                fresh.archive(volume)
        if _exists(backend, fresh, volume):
            broken("missing-asset", f"deleting {volume.name} without an asset made one")

    def test_a_restart_forgets_nothing(self, backend: BackendUnderTest) -> None:
        """The answer was lost in a crash; the next process is asked the same."""
        running = backend.start()
        request = _request(backend, running)
        first = _provision(running, request, "restart")
        fresh = backend.start()
        second = _provision(fresh, request, "restart")
        _same("restart", first, second)
        other = _request(backend, fresh)
        third = _provision(fresh, other, "restart")
        _all_different("restart", {request.pv_name: second, other.pv_name: third})

    def test_volumes_made_and_deleted_at_once_do_not_mix(self, backend: BackendUnderTest) -> None:
        """Several threads, one volume each, all at the same moment."""
        running = backend.start()
        requests = [_request(backend, running, backend.claim(f"data-{n}")) for n in range(_AT_ONCE)]
        made = _at_once("provisioning", [lambda r=r: running.provision(r) for r in requests])
        answers = {}
        for request, answer in zip(requests, made, strict=True):
            answers[request.pv_name] = _whole("concurrent-calls", answer)
            _same("concurrent-calls", answer, _provision(running, request, "concurrent-calls"))
        _all_different("concurrent-calls", answers)
        volumes = [make_volume(request, answers[request.pv_name]) for request in requests]
        gone, kept = volumes[::2], volumes[1::2]
        _at_once("deleting", [lambda v=v: running.delete(v) for v in gone])
        for volume in volumes:
            there = _exists(backend, running, volume)
            if there and volume in gone:
                broken("concurrent-calls", f"{volume.name} was deleted among others, but its asset is still there")
            if not there and volume in kept:
                broken("concurrent-calls", f"{volume.name} lost its asset while others were deleted")

    @pytest.mark.parametrize("hostile", HOSTILE_CLAIMS)
    def test_a_hostile_claim_is_refused_or_stays_inside(self, backend: BackendUnderTest, hostile: str) -> None:
        """Whatever the claim says, nothing outside the storage and no neighbour is touched."""
        running = backend.start()
        neighbour = _provisioned(backend, running)
        before = _surroundings(backend.storage)
        claim = backend.claim(**HOSTILE_CLAIMS[hostile])
        request = _request(backend, running, claim)
        answer = None
        try:
            answer = _whole("hostile-names", running.provision(request))
        except LateError as error:
            broken("time-limit", f"hostile claim {hostile}: {error}")
        except Outcome:
            pass
        except Exception as error:  # noqa: BLE001 - any other exception means "maybe still running", for ever
            broken("hostile-names", f"the claim {hostile} made provision raise {type(error).__name__}: {error}")
        if answer is not None:
            _stays_inside(answer)
            volume = make_volume(request, answer)
            _all_different("hostile-names", {volume.name: answer.source, neighbour.name: _source(neighbour)})
            _delete(running, volume, "hostile-names")
            if _exists(backend, running, volume):
                broken("hostile-names", f"the asset of the claim {hostile} is still there after its deletion")
        if changed := before ^ _surroundings(backend.storage):
            broken("hostile-names", f"the claim {hostile} changed {sorted(changed)}, outside the storage")
        if not _exists(backend, running, neighbour):
            broken("hostile-names", f"the claim {hostile} removed another volume's asset")

    def test_the_record_comes_back(self, backend: BackendUnderTest) -> None:
        """A process that knows nothing but the saved volume finds and removes the asset."""
        running = backend.start()
        request = _request(backend, running)
        answer = _provision(running, request, "record-round-trip")
        volume = make_volume(request, answer)
        fresh = backend.start()
        _delete(fresh, volume, "record-round-trip")
        if _exists(backend, fresh, volume):
            broken("record-round-trip", f"{volume.name}, read back from the API, was deleted; its asset is still there")

    def test_a_forged_volume_costs_nobody_an_asset(self, backend: BackendUnderTest) -> None:
        """Another name, claim and uid, and the victim's source and record: delete may refuse it or find nothing."""
        running = backend.start()
        request = _request(backend, running)
        answer = _provision(running, request, "forged-volume")
        victim = make_volume(request, answer)
        forged = make_volume(_request(backend, running, backend.claim("evil", "evil")), answer)
        for hook in (running.delete, running.archive) if "archive" in running.hooks else (running.delete,):
            try:
                hook(forged)
            except LateError as error:
                broken("time-limit", str(error))
            except Exception:  # noqa: BLE001, S110 - any refusal is fine
                pass
            if not _exists(backend, running, victim):
                broken("forged-volume", f"{forged.name} has the source and record of {victim.name}, and took its asset")

    def test_a_volume_given_up_leaves_nothing(self, backend: BackendUnderTest) -> None:
        """Asked, its answer too late and thrown away, asked by the next process, and then not wanted any more."""
        running = backend.start()
        before = _assets(running)
        request = _request(backend, running)
        _provision(running, request, "given-up")
        fresh = backend.start()
        volume = make_volume(request, _provision(fresh, request, "given-up"))
        _delete(fresh, volume, "given-up")
        if _exists(backend, fresh, volume):
            broken("given-up", f"{volume.name} was deleted, but its asset is still there")
        if left := _assets(fresh) - before:
            broken("given-up", f"after {volume.name} was deleted the inventory still lists {sorted(left)}")

    @pytest.mark.parametrize("change", REFUSED_LATER)
    def test_a_refusal_leaves_nothing(self, backend: BackendUnderTest, change: str) -> None:
        """Made, but not saved before the process died; then the claim or its class turns out not to be feasible.

        Whoever answers with an outcome that is final says that nothing is there, and nobody asks again.
        """
        running = backend.start()
        request = _request(backend, running)
        volume = make_volume(request, _provision(running, request, "given-up"))
        claim, storage_class = request.claim, request.storage_class
        options = dict(REFUSED_LATER[change])
        parameters = {**(storage_class.parameters or {}), **options.pop("parameters", {})}
        claim = backend.claim(claim.name, claim.namespace, **{"uid": claim.uid, **options})
        changed = msgspec.structs.replace(
            request, claim=claim, storage_class=msgspec.structs.replace(storage_class, parameters=parameters)
        )
        fresh = backend.start()
        try:
            fresh.provision(changed)
        except LateError as error:
            broken("time-limit", str(error))
        except (Infeasible, ProvisionError, Reschedule) as error:
            if _exists(backend, fresh, volume):
                broken(
                    "given-up",
                    f"asked again with {change}, provision raised {type(error).__name__}, which says that nothing is "
                    f"there, but the asset of {volume.name} still is; remove it first, or raise InBackground",
                )
            return
        except Exception:  # noqa: BLE001, S110 - not final: the host asks again
            pass
        _delete(fresh, volume, "given-up")
        if _exists(backend, fresh, volume):
            broken("given-up", f"{volume.name} was deleted, but its asset is still there")

    def test_archives_are_kept_apart(self, backend: BackendUnderTest) -> None:
        """A claim archived, re-created and archived again; without the hook, classes do not archive by default."""
        running = backend.start()
        if "archive" not in running.hooks:
            if running.default_policy() == "archive":
                broken("archive", "the default policy is 'archive', but there is no hook `archive`")
            return
        archives: set[str] = set()
        for round_ in (1, 2):
            volume = _provisioned(backend, running, backend.claim("data", "default"), policy="archive")
            for call in ("archiving", "archiving again"):
                with keeping("archive", f"{call} {volume.name}"):
                    removed = running.archive(volume)
                if removed is not None and not isinstance(removed, Removed):
                    broken("archive", f"archive returned {removed!r}; return a prov_host.Removed or nothing")
            if _exists(backend, running, volume):
                broken("archive", f"{volume.name} was archived, but its asset is still there")
            found = {asset.id for asset in running.inventory() if asset.kind == "archive"}
            if "inventory" in running.hooks and (len(found) != round_ or not archives <= found):
                broken("archive", f"after {round_} archived volumes the inventory lists {sorted(found)}")
            archives = found

    def test_the_inventory_tells_what_is_there(self, backend: BackendUnderTest) -> None:
        """Each asset once, by a stable id; without the hook, `exists` tells."""
        running = backend.start()
        volumes = [_provisioned(backend, running) for _ in range(3)]
        if "inventory" not in running.hooks:
            if not all(_exists(backend, running, volume) for volume in volumes):
                broken("inventory", "`exists` does not see every volume that was provisioned")
            return
        listed = [asset for asset in running.inventory() if asset.kind == "volume"]
        if len({asset.id for asset in listed}) != len(listed):
            broken("inventory", f"ids repeat: {sorted(asset.id for asset in listed)}")
        if {asset.pv_name for asset in listed} != {volume.name for volume in volumes}:
            broken("inventory", f"it lists {sorted(a.pv_name for a in listed)}, not {sorted(v.name for v in volumes)}")
        if {a.id for a in backend.start().inventory() if a.kind == "volume"} != {asset.id for asset in listed}:
            broken("inventory", "ids change with a restart")


def _request(backend: BackendUnderTest, running: RunningBackend, claim: Claim | None = None) -> ProvisionRequest:
    with keeping("backend", "asking for provisioners"):
        return backend.request(claim, provisioner=running.provisioners()[0])


def _whole(promise: str, answer: Any) -> Provisioned:
    """The answer, if it is one; the promise of a whole answer is broken first, whatever was being tested."""
    if not isinstance(answer, Provisioned):
        broken("whole-answer", f"provision returned {answer!r} (seen while testing {promise!r})")
    source: Any = answer.source
    if not isinstance(source, Mapping) or len(source) != 1 or not isinstance(next(iter(source.values())), Mapping):
        broken("whole-answer", f"the source is {source!r}; it needs one key, for example {{'hostPath': {{...}}}}")
    return answer


def _provision(running: RunningBackend, request: ProvisionRequest, promise: str) -> Provisioned:
    with keeping(promise, f"provisioning {request.pv_name} for {request.claim.key}"):
        answer = running.provision(request)
    whole = _whole(promise, answer)
    try:
        build_volume(request, whole, plugin=running.subject.name, options=ControllerOptions())
    except PluginError as error:
        broken("record-round-trip" if "record" in str(error) else "whole-answer", str(error))
    return whole


def _provisioned(
    backend: BackendUnderTest, running: RunningBackend, claim: Claim | None = None, *, policy: str = "delete"
) -> Volume:
    request = msgspec.structs.replace(_request(backend, running, claim), policy=policy)
    volume = make_volume(request, _provision(running, request, "whole-answer"))
    if not _exists(backend, running, volume):
        broken("whole-answer", f"{volume.name} was provisioned, but its asset is not there")
    return volume


def _delete(running: RunningBackend, volume: Volume, promise: str) -> None:
    with keeping(promise, f"deleting {volume.name}"):
        removed = running.delete(volume)
    if removed is not None and not isinstance(removed, Removed):
        broken("delete-removes", f"delete returned {removed!r}; return a prov_host.Removed or nothing")


def _exists(backend: BackendUnderTest, running: RunningBackend, volume: Volume) -> bool:
    if backend.exists is not None:
        return backend.exists(volume)
    return volume.name in {asset.pv_name for asset in running.inventory() if asset.kind == "volume"}


def _assets(running: RunningBackend) -> set[str]:
    return {asset.id for asset in running.inventory() if asset.kind in ("volume", "unknown")}


def _same(promise: str, first: Provisioned, second: Provisioned) -> None:
    for field in ("source", "capacity", "record", "node_affinity"):
        one, two = getattr(first, field), getattr(second, field)
        if one != two:
            broken(promise, f"the {field} was {one!r} at first and {two!r} when asked again")


def _all_different(promise: str, answers: Mapping[str, Any]) -> None:
    seen: dict[bytes, str] = {}
    for name, answer in answers.items():
        source = answer.source if isinstance(answer, Provisioned) else answer
        key = msgspec.json.encode(source, order="sorted")
        if key in seen:
            broken(promise, f"{seen[key]} and {name} have the same source {source!r}")
        seen[key] = name


def _source(volume: Volume) -> Any:
    spec = msgspec.to_builtins(volume.spec)
    wanted = ("nfs", "hostPath", "local", "csi", "iscsi", "fc", "cephfs", "rbd", "flexVolume")
    return {key: spec[key] for key in wanted if key in spec}


def _stays_inside(answer: Provisioned) -> None:
    """The path of a hostPath, local or nfs source does not climb and has no control characters."""
    for key, value in next(iter(answer.source.values())).items():
        text = str(value) if key == "path" else ""
        if ".." in text.replace("\\", "/").split("/") or not text.isprintable():
            broken("hostile-names", f"the source {answer.source!r} has a path that leads elsewhere")


def _surroundings(storage: Path | None) -> set[str]:
    """Everything around the storage, which must not change: names, sizes and modes."""
    if storage is None:
        return set()
    found = set()
    for path in storage.parent.rglob("*"):
        if storage not in (path, *path.parents):
            status = path.lstat()
            found.add(f"{path} {status.st_mode:o} {status.st_uid} {status.st_size}")
    return found


def _at_once(what: str, calls: list[Any]) -> list[Any]:
    """Start all calls at the same moment; any failure breaks the promise."""
    gate = threading.Barrier(len(calls))
    results: list[Any] = [None] * len(calls)
    failures: list[Exception] = []

    def run(index: int) -> None:
        gate.wait()
        try:
            results[index] = calls[index]()
        except Exception as error:  # noqa: BLE001 - any exception of a plugin is a finding
            failures.append(error)

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        with keeping("concurrent-calls", f"{what} {len(calls)} volumes at once"):
            raise failures[0]
    return results
