"""The contract suite passes a good backend and fails each broken one, by the name of the promise it breaks."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from prov_host import (
    Asset,
    Claim,
    DeleteError,
    Infeasible,
    Provisioned,
    ProvisionError,
    ProvisionRequest,
    Removed,
    Volume,
    hookimpl,
)
from prov_host.testing import PROMISES, BackendContract, BackendUnderTest
from prov_host.testing.contract import HOSTILE_CLAIMS, REFUSED_LATER


class Good:
    """A backend that keeps every promise, on a storage that is a dict: assets by volume name."""

    def __init__(self, storage: dict[str, str]) -> None:
        self.storage = storage

    @hookimpl
    def provisioners(self) -> list[str]:
        return ["example.com/good"]

    @hookimpl
    def provision(self, request: ProvisionRequest) -> Provisioned:
        return self.make(request)

    @hookimpl
    def delete(self, volume: Volume) -> Removed | None:
        return self.remove(volume)

    @hookimpl
    def archive(self, volume: Volume) -> Removed | None:
        return self.put_aside(volume)

    @hookimpl
    def inventory(self) -> list[Asset]:
        return self.assets()

    def make(self, request: ProvisionRequest) -> Provisioned:
        asset = self.storage.setdefault(request.pv_name, request.pv_name)
        return self.answer(asset)

    def answer(self, asset: str) -> Provisioned:
        return Provisioned(source={"csi": {"driver": "good", "volumeHandle": asset}}, record={"asset": asset})

    def remove(self, volume: Volume) -> Removed | None:
        return Removed(already_absent=self.storage.pop(volume.name, None) is None)

    def put_aside(self, volume: Volume) -> Removed | None:
        if volume.name in self.storage:
            self.storage[f"archived/{volume.name}"] = self.storage.pop(volume.name)
        return None

    def assets(self) -> list[Asset]:
        return [
            Asset(id=name, kind="archive") if name.startswith("archived/") else Asset(id=name, pv_name=name)
            for name in list(self.storage)
        ]


class AnswersWithNothing(Good):
    def make(self, request: ProvisionRequest) -> Any:
        super().make(request)


class AnswersWithTwoSources(Good):
    def answer(self, asset: str) -> Provisioned:
        return Provisioned(source={"csi": {"driver": "x", "volumeHandle": asset}, "hostPath": {"path": "/x"}})


class MakesANewAssetEachTime(Good):
    def make(self, request: ProvisionRequest) -> Provisioned:
        asset = f"{request.pv_name}-{len(self.storage)}"
        self.storage[request.pv_name] = asset
        return self.answer(asset)


class NamesAssetsAfterTheClaim(Good):
    def make(self, request: ProvisionRequest) -> Provisioned:
        asset = f"{request.claim.namespace}-{request.claim.name}"
        self.storage[request.pv_name] = asset
        return self.answer(asset)


class DeletesByPrefix(Good):
    """Names assets after the claim, and removes whatever begins like it."""

    def make(self, request: ProvisionRequest) -> Provisioned:
        self.storage[request.pv_name] = f"{request.claim.name}"
        return super().answer(request.pv_name)

    def remove(self, volume: Volume) -> Removed | None:
        name = volume.claim_key.split("/")[-1]
        for key in [key for key, asset in self.storage.items() if asset.startswith(name)]:
            del self.storage[key]
        return None


class DeletesNothing(Good):
    def remove(self, volume: Volume) -> Removed | None:
        return Removed(message="gone, honestly")


class FailsOnASecondDelete(Good):
    def remove(self, volume: Volume) -> Removed | None:
        if volume.name not in self.storage:
            raise DeleteError(f"{volume.name} is not there")
        return super().remove(volume)


class DeletesOnlyWhatItRemembers(Good):
    """A second delete is fine in the process that made the first."""

    def __init__(self, storage: dict[str, str]) -> None:
        super().__init__(storage)
        self.deleted: set[str] = set()

    def remove(self, volume: Volume) -> Removed | None:
        if volume.name not in self.storage and volume.name not in self.deleted:
            raise KeyError(volume.name)
        self.deleted.add(volume.name)
        return super().remove(volume)


class KeepsItsListInMemory(Good):
    def __init__(self, storage: dict[str, str]) -> None:
        super().__init__(storage)
        self.made: dict[str, str] = {}

    def make(self, request: ProvisionRequest) -> Provisioned:
        if request.pv_name not in self.made:
            self.made[request.pv_name] = self.storage[request.pv_name] = f"{request.pv_name}-{id(self)}"
        return self.answer(self.made[request.pv_name])


class KeepsTheCurrentVolumeInAnAttribute(Good):
    current = ""

    def make(self, request: ProvisionRequest) -> Provisioned:
        self.current = request.pv_name
        time.sleep(0.001)  # the storage takes its time, and other threads take theirs
        return self.answer(self.storage.setdefault(self.current, self.current))


class RefusesToWorkAtOnce(Good):
    def __init__(self, storage: dict[str, str]) -> None:
        super().__init__(storage)
        self.busy = threading.Lock()

    def make(self, request: ProvisionRequest) -> Provisioned:
        if not self.busy.acquire(blocking=False):
            raise ProvisionError("busy")
        try:
            time.sleep(0.005)
            return super().make(request)
        finally:
            self.busy.release()


class PutsNamesIntoPaths(Good):
    def answer(self, asset: str) -> Provisioned:
        return Provisioned(source={"hostPath": {"path": asset}})

    def make(self, request: ProvisionRequest) -> Provisioned:
        self.storage[request.pv_name] = request.pv_name
        return self.answer(f"/srv/{request.claim.namespace}/{request.claim.name}/{request.pv_name}")


class StumblesOverOddSizes(Good):
    def make(self, request: ProvisionRequest) -> Provisioned:
        assert request.claim.requested_bytes >= 0
        return super().make(request)


class RecordsNumbers(Good):
    def answer(self, asset: str) -> Provisioned:
        record: Any = {"asset": asset, "size": 5}
        return Provisioned(source={"csi": {"driver": "x", "volumeHandle": asset}}, record=record)


class FindsOnlyWhatItMade(Good):
    """Looks the asset up by an object that never went through the API; a restart makes it blind."""

    def __init__(self, storage: dict[str, str]) -> None:
        super().__init__(storage)
        self.handles: dict[str, str] = {}

    def make(self, request: ProvisionRequest) -> Provisioned:
        self.handles[request.pv_name] = request.pv_name
        return super().make(request)

    def remove(self, volume: Volume) -> Removed | None:
        self.storage.pop(self.handles.get(volume.name, ""), None)
        return None


class BelievesTheRecord(Good):
    def remove(self, volume: Volume) -> Removed | None:
        self.storage.pop(volume.record.get("asset", ""), None)
        return None


class LeavesScraps(Good):
    def make(self, request: ProvisionRequest) -> Provisioned:
        self.storage.setdefault(f"{request.pv_name}.lock", "")
        return super().make(request)


class Hangs(Good):
    def make(self, request: ProvisionRequest) -> Provisioned:
        threading.Event().wait(0.3)
        return super().make(request)


class OverwritesItsArchives(Good):
    def put_aside(self, volume: Volume) -> Removed | None:
        if volume.name in self.storage:
            self.storage[f"archived/{volume.claim_key}"] = self.storage.pop(volume.name)
        return None


class CannotArchiveTwice(Good):
    def put_aside(self, volume: Volume) -> Removed | None:
        self.storage[f"archived/{volume.name}"] = self.storage.pop(volume.name)
        return None


class ListsTwice(Good):
    def assets(self) -> list[Asset]:
        return super().assets() * 2


class ServesNoName(Good):
    @hookimpl
    def provisioners(self) -> list[str]:
        return []


class RefusesBeforeItLooks(Good):
    def make(self, request: ProvisionRequest) -> Provisioned:
        if request.claim.spec.selector is not None:
            raise Infeasible("no selectors")
        return super().make(request)


class DislikesItsStorage(Good):
    @hookimpl
    def check(self) -> list[str]:
        return ["the disk is upside down"]


BROKEN = {
    AnswersWithNothing: "whole-answer",
    AnswersWithTwoSources: "whole-answer",
    MakesANewAssetEachTime: "idempotent-provision",
    NamesAssetsAfterTheClaim: "own-asset",
    DeletesByPrefix: "delete-removes",
    DeletesNothing: "delete-removes",
    FailsOnASecondDelete: "idempotent-delete",
    DeletesOnlyWhatItRemembers: "missing-asset",
    KeepsItsListInMemory: "restart",
    KeepsTheCurrentVolumeInAnAttribute: "concurrent-calls",
    RefusesToWorkAtOnce: "concurrent-calls",
    PutsNamesIntoPaths: "hostile-names",
    StumblesOverOddSizes: "hostile-names",
    RecordsNumbers: "record-round-trip",
    FindsOnlyWhatItMade: "record-round-trip",
    BelievesTheRecord: "forged-volume",
    LeavesScraps: "given-up",
    RefusesBeforeItLooks: "given-up",
    Hangs: "time-limit",
    OverwritesItsArchives: "archive",
    CannotArchiveTwice: "missing-asset",
    ListsTwice: "inventory",
    ServesNoName: "backend",
    DislikesItsStorage: "backend",
}


def _tests() -> list[Callable[[BackendUnderTest], None]]:
    """The suite's tests as pytest would call them, one per hostile claim and per later refusal."""
    suite = BackendContract()
    tests: list[Callable[[BackendUnderTest], None]] = []
    for name, method in inspect.getmembers(suite, inspect.ismethod):
        if name == "test_a_hostile_claim_is_refused_or_stays_inside":
            tests += [lambda backend, m=method, h=hostile: m(backend, h) for hostile in HOSTILE_CLAIMS]
        elif name == "test_a_refusal_leaves_nothing":
            tests += [lambda backend, m=method, c=change: m(backend, c) for change in REFUSED_LATER]
        elif name.startswith("test_"):
            tests.append(method)
    return tests


def _failures(plugin: type[Good], **options: Any) -> list[str]:
    found = []
    for test in _tests():
        storage: dict[str, str] = {}
        try:
            test(BackendUnderTest(lambda storage=storage: plugin(storage), **options))
        except pytest.fail.Exception as failure:
            found.append(str(failure))
    return found


def test_a_good_backend_passes() -> None:
    assert _failures(Good) == []


@pytest.mark.parametrize(("plugin", "promise"), BROKEN.items(), ids=lambda value: getattr(value, "__name__", value))
def test_a_broken_backend_fails_by_the_name_of_its_promise(plugin: type[Good], promise: str) -> None:
    found = _failures(plugin, time_limit=0.05 if plugin is Hangs else 5)
    assert any(text.startswith(f"broken promise {promise!r}: {PROMISES[promise]}.\nInstead: ") for text in found), found


def test_every_promise_has_a_backend_that_breaks_it() -> None:
    assert set(BROKEN.values()) == set(PROMISES)


def test_a_backend_that_cannot_be_seen_into_is_told_what_to_do() -> None:
    class Blind(Good):
        inventory = None  # type: ignore[assignment]

    assert any("give BackendUnderTest `exists`" in text for text in _failures(Blind))


def test_a_backend_without_an_inventory_is_seen_through_exists() -> None:
    class Blind(Good):
        inventory = None  # type: ignore[assignment]

    for test in _tests():
        storage: dict[str, str] = {}
        test(
            BackendUnderTest(
                lambda storage=storage: Blind(storage), exists=lambda volume, storage=storage: volume.name in storage
            )
        )


def test_a_hook_with_a_wrong_argument_is_named() -> None:
    class Misspelt(Good):
        @hookimpl
        def delete(self, volum: Volume) -> None:
            pass

    with pytest.raises(Exception, match="volum"):
        BackendUnderTest(lambda: Misspelt({})).start()


def test_a_refusing_backend_passes_the_hostile_claims() -> None:
    class Careful(Good):
        def make(self, request: ProvisionRequest) -> Provisioned:
            if not all(part.isalnum() for part in (request.claim.namespace, request.claim.name.replace("-", ""))):
                raise Infeasible(f"{request.claim.key} has an odd name")
            return super().make(request)

    assert [text for text in _failures(Careful) if "hostile" in text] == []


def test_something_changed_beside_the_storage_is_found(tmp_path: Any) -> None:
    class Escapes(Good):
        def make(self, request: ProvisionRequest) -> Provisioned:
            if request.claim.name == "..":
                (tmp_path / "outside").touch()
            return super().make(request)

    found = _failures(Escapes, storage=tmp_path / "storage")
    assert len(found) == 1
    assert "outside the storage" in found[0]
    assert "broken promise 'hostile-names'" in found[0]


def test_a_claim_made_for_a_test_reads_like_the_real_thing() -> None:
    claim = BackendUnderTest(lambda: Good({})).claim("data", "ns1", storage="2Gi", labels={"a": "b"})
    assert isinstance(claim, Claim)
    assert (claim.key, claim.requested_bytes, claim.labels) == ("ns1/data", 2 * 1024**3, {"a": "b"})
