"""The volume path: from a volume in the queue to its asset handled and the object gone, top to bottom.

Each way out stands where it is decided, with its event and its metric beside it. D1 to D5 are the steps of the
reference controller's delete operation.

Before anything is done to an asset the volume is read again from the API, and everything is judged, and the plugin
called, on *that*: a stale cache is how data of a re-created volume is lost. Then the operation may wait, for votes, for
the rate limit, for a thread; so right before the hook runs, on its thread, the cache is asked whether all that still
holds: who says Retain in time keeps the data. Once an asset is gone this is remembered
for the volume's uid, so that the passes which follow (the API keeps an object until its finalizers are gone) finish
the object and never call the plugin a second time.
"""

from __future__ import annotations

import functools
import logging

from prov_host.controller.backend import Withdrawn
from prov_host.controller.finalizers import reconciliation, removal
from prov_host.controller.parts import DONE, Kind, Parts, Result, wait
from prov_host.controller.policy import Decision, volume_policy
from prov_host.errors import ApiError, DeleteError, HookTimeout, Ignored, NotFound, Outcome, VolumeInUse
from prov_host.kube.api import VOLUMES
from prov_host.model import FINALIZER, Removed, Volume

__all__ = ["VolumePath"]

logger = logging.getLogger(__name__)

_LOOK_AGAIN = 1.0  # seconds until a volume is looked at again that was decided about otherwise while it waited

_DONE_EVENTS = {"delete": "VolumeDeleted", "archive": "VolumeArchived", "retain": "VolumeRetained"}


class VolumePath:
    """Deletes, archives or retains the released volumes of one controller.

    Args:
        parts: the controller's surroundings.

    Belongs to the event loop. Since 0.1.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        # Volumes whose asset was handled, by uid: since when; None once the object was told to go, too.
        self._gone: dict[str, float | None] = {}

    def forget(self, volume: Volume) -> None:
        """A volume vanished."""
        self._gone.pop(volume.uid, None)

    async def process(self, name: str) -> Result:
        """Look at one volume and do what is to be done; the work of the volume workers.

        Args:
            name: the volume's.

        Returns:
            What to do with the key.
        """
        parts = self._parts
        volume = parts.volumes.get(name)
        if volume is None or not parts.ours(volume):
            return DONE
        if (patch := reconciliation(volume, enabled=parts.options.add_finalizer)) is not None:
            try:
                volume = await parts.api.patch(VOLUMES, name, patch)
            except NotFound:
                return DONE
            except ApiError as error:
                wanted = "add" if "finalizers" in patch["metadata"] else "remove"
                message = f"failed to {wanted} finalizer {FINALIZER} on volume {name} err: {error}"
                self._refused(volume, message, error, needs="patch")
                return Result(Kind.RETRY, message)
        if not self.may_delete(volume):
            return DONE
        # One at a time for the name: it may be that it is being provisioned anew.
        async with parts.locks.hold(name):
            return await self._delete(volume)

    def may_delete(self, volume: Volume) -> bool:
        """Whether a volume of ours is released and to be reclaimed, as far as it tells itself.

        A Failed volume is not. One that is being deleted is, if our finalizer keeps it. Since 0.1. Source: reference
        controller, "shouldDelete"; ownership and the plugins' say are not part of it.
        """
        if volume.terminating and not (self._parts.options.add_finalizer and FINALIZER in volume.finalizers):
            return False
        return volume.phase == "Released" and volume.reclaim_policy == "Delete"

    async def should_delete(self, volume: Volume) -> bool:
        """:meth:`may_delete`, and no plugin has anything against it.

        Raises:
            Outcome: a hook failed.
        """
        return self.may_delete(volume) and await self._parts.backend.should_delete(volume)

    async def _delete(self, volume: Volume) -> Result:
        parts, name = self._parts, volume.name
        if volume.uid in self._gone:
            if self._gone[volume.uid] is None:
                return DONE  # the cache shows what is over
            return await self._remove_object(volume)
        if parts.options.live_reads:
            try:
                live = await parts.api.get(VOLUMES, name)
            except NotFound:
                return DONE  # someone finished it
            except ApiError as error:
                parts.metrics.delete_failed(volume)
                message = f"reading volume {name}: {error}"
                self._refused(volume, message, error, needs="get")
                return Result(Kind.RETRY, message)
            if live.uid != volume.uid or not parts.ours(live) or not self.may_delete(live):
                return DONE  # not that volume any more, or not to be deleted any more; the watch will tell
            volume = live
        began = parts.clock.monotonic()
        try:
            if not await parts.backend.should_delete(volume):
                return DONE
            decision = self._decide(volume)
            removed = await self._reclaim(volume, decision)  # D1
        except Withdrawn as error:
            logger.info("Volume %s and its asset are left as they are: %s", name, error)
            return wait(_LOOK_AGAIN, str(error))
        except Ignored as error:
            logger.info("Volume %s and its asset are left alone: %s", name, error)
            parts.metrics.delete_succeeded(volume, parts.clock.monotonic() - began)  # as the reference counts it
            return DONE
        except VolumeInUse as error:
            self._parts.tell(volume, "VolumeDelete", str(error))
            return Result(Kind.RETRY, str(error))
        except Outcome as error:
            if isinstance(error, HookTimeout):
                logger.warning("Volume %s of claim %s: %s", name, volume.claim_key, error)
            self._parts.warn(volume, "VolumeFailedDelete", str(error))
            parts.metrics.delete_failed(volume)
            return Result(Kind.RETRY, str(error))
        self._gone[volume.uid] = began
        self._tell(volume, decision, removed)
        return await self._remove_object(volume)

    def _decide(self, volume: Volume) -> Decision:
        """What is to become of the asset. Raises DeleteError."""
        parts = self._parts
        storage_class = parts.classes.get(volume.spec.storage_class_name or "")
        return volume_policy(
            volume,
            storage_class if storage_class and parts.known(storage_class.provisioner or "") else None,
            default=parts.backend.default_policy,
            supports_archive=parts.backend.supports_archive,
            plugin=parts.backend.plugin,
        )

    def _still(self, volume: Volume, decision: Decision) -> bool:
        """Whether the volume, as the cache has it now, is still to be handled so. Callable from any thread."""
        cached = self._parts.volumes.by_uid(volume.uid)
        if cached is None or not self._parts.ours(cached) or not self.may_delete(cached):
            return False
        try:
            return self._decide(cached).policy == decision.policy
        except Outcome:
            return False

    async def _reclaim(self, volume: Volume, decision: Decision) -> Removed:
        """D1: what the policy says is done to the asset. Raises Outcome or Withdrawn."""
        parts = self._parts
        still = functools.partial(self._still, volume, decision)
        if decision.reason:
            logger.info("%s", decision.reason)
        if decision.policy == "retain":
            if not still():
                raise Withdrawn(f"removing volume {volume.name} is not wanted any more")
            return Removed(message=f"The data of volume {volume.name} stays where it is; only the volume is removed")
        call = parts.backend.archive if decision.policy == "archive" else parts.backend.delete
        began = parts.clock.monotonic()
        try:
            removed = await call(volume, timeout=parts.options.deletion_timeout or None, still=still)
        except Withdrawn:
            raise  # nothing was done, so there is nothing to tell observers
        except Outcome as error:
            parts.observe(decision.policy, volume, began, error=error)
            raise
        except Exception as error:
            logger.exception("%s of volume %s of claim %s", decision.policy, volume.name, volume.claim_key)
            problem = DeleteError(f"{type(error).__name__}: {error}")
            parts.observe(decision.policy, volume, began, error=problem)
            raise problem from error
        parts.observe(decision.policy, volume, began, message=removed.message, path=removed.path)
        return removed

    def _tell(self, volume: Volume, decision: Decision, removed: Removed) -> None:
        """The event and the metric of an asset that was handled."""
        reason = "VolumeAlreadyAbsent" if removed.already_absent else _DONE_EVENTS[decision.policy]
        message = removed.message or f"Policy {decision.policy} was carried out for volume {volume.name}"
        logger.info("%s: volume %s of claim %s: %s", reason, volume.name, volume.claim_key, message)
        if decision.reason:
            self._parts.tell(volume, "VolumePolicyAssumed", decision.reason)
        self._parts.tell(volume, reason, message)
        for note in removed.notes:
            self._parts.note(volume, note)
        self._parts.metrics.released(self._parts.name, "absent" if removed.already_absent else decision.policy)

    async def _remove_object(self, volume: Volume) -> Result:
        """D2 to D5: the asset is handled, the object goes. A later pass begins here."""
        parts, name, uid = self._parts, volume.name, volume.uid
        began = self._gone[uid]
        assert began is not None
        needs = "delete"
        try:
            if not volume.terminating:
                await parts.api.delete(VOLUMES, name, uid=uid)  # D2
            if FINALIZER in volume.finalizers:
                needs = "patch"
                await parts.api.patch(VOLUMES, name, removal(volume, FINALIZER))  # D4
        except NotFound:
            pass
        except ApiError as error:
            # A conflict among them: if another volume has the name by now, the next pass finds that.
            logger.warning("The asset of volume %s was handled, but the volume could not be removed: %s", name, error)
            parts.metrics.delete_failed(volume)
            message = f"the asset of volume {name} was handled, but the volume could not be removed: {error}"
            self._refused(volume, message, error, needs=needs)
            return Result(Kind.RETRY, message)
        parts.metrics.delete_succeeded(volume, parts.clock.monotonic() - began)
        if parts.volumes.by_uid(uid) is None:
            self._gone.pop(uid, None)
        else:
            self._gone[uid] = None
        return DONE

    def _refused(self, volume: Volume, message: str, error: ApiError, *, needs: str) -> None:
        """The event of a request that the API server answered with no. An unreachable one could not take events."""
        if error.status:
            remedy = f"; grant the host {needs} on persistentvolumes" if error.status == 403 else ""
            self._parts.warn(volume, "VolumeFailedDelete", f"{message}{remedy}")
