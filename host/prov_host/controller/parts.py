"""What the claim path, the volume path and the saving of volumes share: one provisioner name's surroundings."""

from __future__ import annotations

import dataclasses
import enum
import random
from collections.abc import Callable

import msgspec

from prov_host.clock import Clock
from prov_host.controller.backend import Backend
from prov_host.controller.locks import KeyLocks
from prov_host.controller.metrics import Metrics
from prov_host.controller.options import ControllerOptions
from prov_host.errors import Outcome
from prov_host.kube.api import Api, Cache, EventSink
from prov_host.model import (
    ANN_MIGRATED_TO,
    ANN_PROVISIONED_BY,
    Claim,
    Note,
    ProvisionRequest,
    Record,
    StorageClass,
    Volume,
)

__all__ = ["DONE", "RETRY", "STOP", "Kind", "Parts", "Result", "default_volume_name", "wait"]


class Kind(enum.Enum):
    """The answers a work item may have. "Not tried again" and "succeeded" are different ones."""

    DONE = "done"
    """Nothing is left to do; the key's failures are forgotten."""
    STOP = "stop"
    """It did not work and trying again would not help until something changes."""
    RETRY = "retry"
    """It did not work; try again after the limiter's delay."""
    WAIT = "wait"
    """Nothing was tried; look again after a given time, and do not count it as a failure."""


class Result(msgspec.Struct, frozen=True):
    """What came of a work item.

    Attributes:
        kind: what to do with the key.
        error: why it did not work, for the log.
        after: seconds, for :attr:`Kind.WAIT`.
    """

    kind: Kind
    error: str = ""
    after: float = 0.0


DONE = Result(Kind.DONE)
STOP = Kind.STOP
RETRY = Kind.RETRY


def wait(seconds: float, why: str) -> Result:
    """The result that has a key looked at again in so many seconds."""
    return Result(Kind.WAIT, why, seconds)


def default_volume_name(claim: Claim) -> str:
    """The name of the volume for a claim: ``pvc-<uid>``."""
    return f"pvc-{claim.uid}"


def _snake_case(error: BaseException) -> str:
    """An outcome's name as records carry it: ``provision_error``."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in type(error).__name__).lstrip("_")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parts:
    """One provisioner name and everything around it.

    Attributes:
        name: the provisioner name.
        backend: the plugin that owns it.
        api: typed operations on the API.
        claims: all claims of the cluster.
        volumes: all volumes of the cluster.
        classes: all classes of the cluster.
        events: where events go.
        clock: time.
        rng: randomness, for jitter.
        metrics: the process's.
        options: the choices.
        locks: the process's, by volume name.
        volume_name: names the volume of a claim; must be a function of the claim's uid alone.
    """

    name: str
    backend: Backend
    api: Api
    claims: Cache[Claim]
    volumes: Cache[Volume]
    classes: Cache[StorageClass]
    events: EventSink
    clock: Clock
    rng: random.Random
    metrics: Metrics
    options: ControllerOptions
    locks: KeyLocks
    volume_name: Callable[[Claim], str] = default_volume_name

    def known(self, provisioner: str) -> bool:
        """Whether a provisioner name is ours: the controller's or an additional one."""
        return provisioner == self.name or provisioner in self.options.additional_provisioner_names

    def ours(self, volume: Volume) -> bool:
        """Whether a volume is ours to delete.

        ``provisioned-by``, if there is one, or ``migrated-to`` names us; without ``provisioned-by`` the CSI driver
        does, if there is one, else ``migrated-to``. Source: reference controller, "PV ownership".
        """
        migrated = volume.annotations.get(ANN_MIGRATED_TO, "")
        provisioned_by = volume.annotations.get(ANN_PROVISIONED_BY)
        if provisioned_by is not None:
            return self.known(provisioned_by) or self.known(migrated)
        if volume.spec.csi is not None:
            return self.known(str(volume.spec.csi.get("driver", "")))
        return self.known(migrated)

    def tell(self, about: Claim | Volume, reason: str, message: str) -> None:
        """Write a Normal event."""
        self.events.emit(about, type="Normal", reason=reason, message=message)

    def warn(self, about: Claim | Volume, reason: str, message: str) -> None:
        """Write a Warning event."""
        self.events.emit(about, type="Warning", reason=reason, message=message)

    def note(self, about: Claim | Volume, note: Note) -> None:
        """Write the event that a plugin wants."""
        kind = note.type if note.type in {"Normal", "Warning"} else "Normal"
        self.events.emit(about, type=kind, reason=note.reason, message=note.message)

    def observe(
        self,
        operation: str,
        volume: Volume | ProvisionRequest,
        began: float,
        *,
        error: Outcome | None = None,
        message: str = "",
        path: str = "",
    ) -> None:
        """Tell the observers of a finished hook.

        Args:
            operation: ``provision``, ``delete`` or ``archive``.
            volume: what it was about.
            began: when, on the monotonic clock.
            error: what it raised, or None.
            message: its words, if it raised nothing.
            path: where the data is or was.
        """
        if isinstance(volume, Volume):
            claim, claim_uid, name = volume.claim_key, volume.claim_uid, volume.name
            class_name = volume.spec.storage_class_name or ""
        else:
            claim, claim_uid, name = volume.claim.key, volume.claim.uid, volume.pv_name
            class_name = volume.storage_class.name
        self.backend.observe(
            Record(
                operation=operation,
                plugin=self.backend.plugin,
                provisioner=self.name if isinstance(volume, Volume) else volume.provisioner,
                outcome=_snake_case(error) if error else "ok",
                claim=claim,
                claim_uid=claim_uid,
                volume=name,
                class_name=class_name,
                duration=self.clock.monotonic() - began,
                message=str(error) if error else message,
                path=path,
            )
        )
