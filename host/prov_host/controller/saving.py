"""Saving volumes: nothing that a plugin made may be lost because the API server did not take it.

Two ways, as the reference controller's two stores:

* *For ever* (the default): one attempt at once, and if that fails, more in the background by workers of their own,
  while the claim's worker goes on with other claims. The asset is never deleted. An event tells of each failure.
* *Bounded*: a number of attempts while the claim waits; then the asset is deleted, and the claim starts anew.

"It exists already" is success only if the live volume is provably the one to be saved: for this claim, by us, with the
same source, and not being deleted. A foreign volume of the name is a lasting error, and the fresh asset is removed
again, unless that volume points to the very same asset. An answer that got lost is not a failure: before an asset is
deleted for want of a volume, the volume is looked for. (Reference controller, "volume store".)
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from prov_host.controller.build import same_source
from prov_host.controller.options import Backoff, ExponentialLimit
from prov_host.controller.parts import Parts
from prov_host.controller.workqueue import Limiter, WorkQueue
from prov_host.errors import AlreadyExists, ApiError, Invalid, NotFound, Outcome
from prov_host.kube.api import VOLUMES
from prov_host.model import Claim, ProvisionRequest, Volume

__all__ = ["SAVE_WORKERS", "SaveFailed", "Saver", "attempts"]

logger = logging.getLogger(__name__)

SAVE_WORKERS = 4
_REMEMBER = 60.0  # seconds after which a saved volume that the watch never showed is taken for deleted again


class SaveFailed(Exception):
    """A volume could not be saved.

    Args:
        message: the last error.
        cleaned: whether its asset is gone; if not, the claim stays in progress.
    """

    def __init__(self, message: str, *, cleaned: bool) -> None:
        super().__init__(message)
        self.cleaned = cleaned


class _Foreign(Exception):
    """The volume's name is taken by another volume; ``shared`` if that one points to the same asset."""

    def __init__(self, message: str, *, shared: bool) -> None:
        super().__init__(message)
        self.shared = shared


@dataclasses.dataclass
class _Unsaved:
    """A volume on its way into the API."""

    claim: Claim
    body: dict[str, Any]
    volume: Volume
    foreign: str = ""  # why it never can be saved; its asset is being discarded


def attempts(schedule: Backoff, jitter: Callable[[], float]) -> Iterator[float | None]:
    """The waits after each attempt of a schedule, in seconds; None after the last one.

    Ends early once a wait would exceed the cap, as client-go's ``wait.Backoff`` does.

    Args:
        schedule: the schedule.
        jitter: random numbers in [0, 1).
    """
    duration = schedule.duration
    for step in range(1, schedule.steps + 1):
        following = duration * schedule.factor if schedule.factor else duration
        last = step == schedule.steps or bool(schedule.cap and following > schedule.cap)
        yield None if last else duration * (1.0 + schedule.jitter * jitter())
        if last:
            return
        duration = following


class Saver:
    """Saves the volumes of one controller.

    Args:
        parts: the controller's surroundings.
        saved: told on the loop of each volume once it is saved.
        discarded: told of each claim whose volume never can be saved, once its asset is gone.

    Belongs to the event loop. Since 0.1.
    """

    def __init__(
        self, parts: Parts, *, saved: Callable[[Claim, Volume], None], discarded: Callable[[Claim, str], None]
    ) -> None:
        self._parts = parts
        self._saved = saved
        self._discarded = discarded
        self._unsaved: dict[str, _Unsaved] = {}
        self._fresh: dict[str, tuple[Volume, float]] = {}
        limit = parts.options.pv_create_limiter or ExponentialLimit()
        limiter = Limiter(parts.clock, base=limit.base, maximum=limit.maximum, rate=0.0)
        self.queue = WorkQueue(parts.clock, limiter, parts.metrics.queue_observer("unsavedpvs"))
        parts.metrics.watch_queue("unsavedpvs", self.queue)

    # ------------------------------------------------------------------ what is not in the cache yet

    def find(self, name: str) -> Volume | None:
        """The volume of that name if it is being saved, or was saved and the watch has not told yet."""
        if name in self._unsaved:
            return self._unsaved[name].volume
        volume, until = self._fresh.get(name, (None, 0.0))
        if volume is not None and self._parts.clock.monotonic() > until:
            del self._fresh[name]
            return None
        return volume

    def volumes(self) -> tuple[Volume, ...]:
        """All of them. Safe from any thread.

        What was saved and never seen by the watch is left out after a minute, as in :meth:`find`. A list that does
        not have it says nothing: it may be older than the volume.
        """
        now = self._parts.clock.monotonic()
        unsaved = tuple(entry.volume for entry in tuple(self._unsaved.values()))
        return unsaved + tuple(volume for volume, until in tuple(self._fresh.values()) if now <= until)

    @property
    def unsaved(self) -> tuple[str, ...]:
        """Names of the volumes that exist on storage and are not saved yet."""
        return tuple(self._unsaved)

    def seen(self, name: str) -> None:
        """The watch told of the volume: the cache knows better from now on."""
        self._fresh.pop(name, None)

    # ------------------------------------------------------------------ saving

    async def save(self, request: ProvisionRequest, body: dict[str, Any]) -> None:
        """Save a volume, or take it over to be saved in the background. The caller holds the name's lock.

        Args:
            request: what the volume was made for.
            body: the volume in JSON form.

        Raises:
            SaveFailed: it is not saved and nobody goes on trying.
        """
        entry = _Unsaved(request.claim, body, msgspec.convert(body, Volume))
        self._unsaved[request.pv_name] = entry
        schedule = self._parts.options.save_schedule
        try:
            if schedule is None:
                await self._save_for_ever(entry)
            else:
                await self._save_bounded(entry, schedule)
        except _Foreign as error:
            self._parts.warn(entry.claim, "ProvisioningFailed", str(error))
            try:
                await self._discard_foreign(entry, error)
            except Outcome as problem:
                raise self._failed(
                    entry, f"{error} Its asset could not be removed: {problem}", cleaned=False
                ) from error
            raise self._failed(entry, str(error), cleaned=True) from error

    def _failed(self, entry: _Unsaved, message: str, *, cleaned: bool) -> SaveFailed:
        self._unsaved.pop(entry.volume.name, None)
        return SaveFailed(message, cleaned=cleaned)

    async def _save_for_ever(self, entry: _Unsaved) -> None:
        try:
            volume = await self._create(entry)
        except ApiError as error:
            self._tell_failure(entry, error)
            self.queue.add(entry.volume.name)  # the first retry comes at once, as the reference's
        else:
            self._finish(entry, volume)

    async def process(self, name: str) -> None:
        """Try again to save one volume; the work of the save workers."""
        async with self._parts.locks.hold(name):
            entry = self._unsaved.get(name)
            if entry is None:
                self.queue.forget(name)
                return
            try:
                if entry.foreign:
                    await self._delete_asset(entry)
                    self._give_away(entry)
                else:
                    self._finish(entry, await self._create(entry))
            except _Foreign as error:
                entry.foreign = str(error)
                if error.shared:
                    self._give_away(entry)
                else:
                    self.queue.add(name)
                return
            except (ApiError, Outcome) as error:
                if isinstance(error, Invalid) and self._unwanted(entry.claim):
                    # Nobody waits for it, and it never can be saved: it would keep its claim from going.
                    entry.foreign = f"Volume {name} cannot be saved ({error}) and its claim is being deleted."
                    self.queue.add(name)
                    return
                logger.warning("error saving volume %s for claim %s: %s", name, entry.claim.key, error)
                if isinstance(error, ApiError):
                    self._tell_failure(entry, error)
                else:
                    self._tell_cleanup_failure(entry, error)
                self.queue.retry(name)
                return
            self.queue.forget(name)

    def _unwanted(self, claim: Claim) -> bool:
        cached = self._parts.claims.by_uid(claim.uid)
        return cached is None or cached.terminating

    def _finish(self, entry: _Unsaved, volume: Volume) -> None:
        name = entry.volume.name
        now = self._parts.clock.monotonic()
        while self._fresh and next(iter(self._fresh.values()))[1] < now:  # the oldest come first
            del self._fresh[next(iter(self._fresh))]
        if self._parts.volumes.get(name) is None:
            self._fresh.pop(name, None)
            self._fresh[name] = (volume, now + _REMEMBER)
        self._unsaved.pop(name, None)
        self._saved(entry.claim, volume)

    def _give_away(self, entry: _Unsaved) -> None:
        self._unsaved.pop(entry.volume.name, None)
        self.queue.forget(entry.volume.name)
        self._discarded(entry.claim, entry.foreign)

    async def _save_bounded(self, entry: _Unsaved, schedule: Backoff) -> None:
        clock, claim = self._parts.clock, entry.claim
        last: ApiError | None = None
        for pause in attempts(schedule, self._parts.rng.random):
            try:
                volume = await self._create(entry)
            except ApiError as error:
                last = error
                logger.warning("error saving volume %s for claim %s: %s", entry.volume.name, claim.key, error)
            else:
                self._finish(entry, volume)
                return
            if pause is not None:
                await clock.sleep(pause)
        # A create whose answer was lost may have worked, and then the asset has an owner.
        try:
            volume = await self._verified(entry)
        except NotFound:
            pass
        except ApiError as error:
            self._tell_failure(entry, error)
            raise self._failed(entry, str(last), cleaned=False) from last
        else:
            self._finish(entry, volume)
            return
        message = f"Error creating provisioned PV object for claim {claim.key}: {last}. Deleting the volume."
        logger.error("%s", message)
        self._parts.warn(claim, "ProvisioningFailed", message)
        problem: Outcome | None = None
        for pause in attempts(schedule, self._parts.rng.random):
            try:
                await self._delete_asset(entry)
            except Outcome as error:
                problem = error
            else:
                raise self._failed(entry, str(last), cleaned=True) from last
            if pause is not None:
                await clock.sleep(pause)
        assert problem is not None
        self._tell_cleanup_failure(entry, problem)
        raise self._failed(entry, str(last), cleaned=False) from last

    # ------------------------------------------------------------------ one step each

    async def _create(self, entry: _Unsaved) -> Volume:
        """One attempt. Raises ApiError or _Foreign."""
        try:
            return await self._parts.api.create(VOLUMES, entry.body)
        except AlreadyExists:
            return await self._verified(entry)

    async def _verified(self, entry: _Unsaved) -> Volume:
        """The live volume, if it is the one to be saved. Raises NotFound, other ApiErrors or _Foreign."""
        ours = entry.volume
        live = await self._parts.api.get(VOLUMES, ours.name)
        same_claim = live.claim_uid == ours.claim_uid
        shared = same_source(ours.spec, live.spec)
        # One that the claim is bound to goes with the claim, in the usual way: nothing is to be waited for.
        if same_claim and live.terminating and not (shared and live.phase == "Bound"):
            raise ApiError(f"volume {ours.name} for this claim exists already and is being deleted; waiting for that")
        if same_claim and shared and self._parts.ours(live):
            return live
        owner = live.claim_key or "no claim"
        raise _Foreign(
            f"A volume named {ours.name} exists already and is not the one made for this claim (it is for {owner}, "
            f"uid {live.claim_uid or 'none'}); delete or rename it.",
            shared=shared,
        )

    async def _discard_foreign(self, entry: _Unsaved, error: _Foreign) -> None:
        if error.shared:
            logger.error(
                "Volume %s for claim %s: %s Its asset is the same one, and stays",
                entry.volume.name,
                entry.claim.key,
                error,
            )
        else:
            await self._delete_asset(entry)

    async def _delete_asset(self, entry: _Unsaved) -> None:
        """Have the asset deleted that no volume will own. Raises Outcome."""
        parts, volume = self._parts, entry.volume
        began = parts.clock.monotonic()
        try:
            removed = await parts.backend.delete(volume, timeout=parts.options.deletion_timeout or None)
        except Outcome as error:
            parts.observe("delete", volume, began, error=error)
            raise
        parts.observe("delete", volume, began, message=removed.message, path=removed.path)
        logger.info(
            "Deleted the asset of unsaved volume %s for claim %s: %s", volume.name, entry.claim.key, removed.message
        )

    def _tell_failure(self, entry: _Unsaved, error: ApiError) -> None:
        message = (
            f"Error creating provisioned PV object for claim {entry.claim.key}: {error}. "
            f"Volume {entry.volume.name} exists on storage; saving it is tried again."
        )
        self._parts.warn(entry.claim, "ProvisioningFailed", message)

    def _tell_cleanup_failure(self, entry: _Unsaved, error: Outcome) -> None:
        message = f"Error cleaning provisioned volume for claim {entry.claim.key}: {error}. Please delete manually."
        logger.error("%s", message)
        self._parts.warn(entry.claim, "ProvisioningCleanupFailed", message)
