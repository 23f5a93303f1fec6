"""The claim path: from a claim in the queue to a saved volume, top to bottom.

Each way out of it stands where it is decided, with its event and its metric beside it. The letters P1 to P13 are the
steps of the reference controller's provision operation.

Three things differ from the reference, all for one reason, that an asset must never be left without an owner
(docs/architecture.md has the whole argument):

* A claim is marked before a plugin is asked (:mod:`prov_host.controller.intent`), and what is marked or remembered as
  in progress is brought to its end even if the claim is being deleted, is bound to another volume, or is gone.
* What a plugin is asked again after "still working" is the very same request, not one made from a newer claim.
* Only the backend's own words are final. Everything unexpected means "may still be running", and a wrapper's refusal
  says nothing about what exists already.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

import msgspec

from prov_host.controller.build import build_volume, source_path
from prov_host.controller.intent import Intents
from prov_host.controller.parts import DONE, Kind, Parts, Result, wait
from prov_host.controller.policy import class_policy
from prov_host.controller.reschedule import give_node_back
from prov_host.controller.saving import SaveFailed, Saver
from prov_host.controller.slowset import SlowSet
from prov_host.errors import (
    ApiError,
    HookTimeout,
    Ignored,
    InBackground,
    Infeasible,
    NoChange,
    Outcome,
    PluginError,
    ProvisionError,
    Reschedule,
)
from prov_host.model import (
    ANN_SELECTED_NODE,
    INTENT_FINALIZER,
    Claim,
    ProvisionRequest,
    StorageClass,
    Volume,
    VolumeSpec,
)

__all__ = ["ClaimPath", "Unfinished"]

logger = logging.getLogger(__name__)

_NOTHING_TO_DO = Result(Kind.DONE, "nothing to do")  # unlike DONE: nothing was provisioned, nothing is counted
_STALE = 1.0  # seconds until a claim is looked at again that the cache shows as it is no longer


class _ClassMissing(Outcome):
    """The claim's class does not exist."""


@dataclasses.dataclass(frozen=True)
class Unfinished:
    """A claim for which a plugin may still be working, or may have worked before this process began.

    Attributes:
        claim: as it was when the plugin was asked.
        request: what the plugin was asked; None if that was another process.
    """

    claim: Claim
    request: ProvisionRequest | None = None


class ClaimPath:
    """Provisions the claims of one controller.

    Args:
        parts: the controller's surroundings.
        enqueue: puts a claim's uid into the queue.

    Belongs to the event loop. Since 0.1.
    """

    def __init__(self, parts: Parts, enqueue: Callable[[str], None]) -> None:
        self._parts = parts
        self._enqueue = enqueue
        self.in_progress: dict[str, Unfinished] = {}
        self.slow = SlowSet(parts.clock, parts.options.infeasible_retention)
        self.intents = Intents(parts)
        self.saver = Saver(parts, saved=self._on_saved, discarded=self._on_discarded)
        self._declined: dict[str, float] = {}  # uids of left-over claims on their way out: voted against since when
        self._served: set[str] = set()  # uids of claims whose volume is saved or being saved by this process

    # ------------------------------------------------------------------ what concerns us

    def concerns(self, claim: Claim) -> bool:
        """Whether a change of a claim is worth a look."""
        return (
            self._parts.known(claim.provisioner)
            or claim.uid in self.in_progress
            or (INTENT_FINALIZER in claim.finalizers and not claim.provisioner)
        )

    def forget(self, claim: Claim) -> None:
        """A claim vanished. What is in progress for it goes on."""
        self.slow.forget(claim.uid)
        self.intents.forget(claim.uid)
        self._declined.pop(claim.uid, None)
        self._served.discard(claim.uid)

    def give_up(self, uid: str) -> None:
        """The threshold of failures was reached. A mark on the claim stays: its asset may exist."""
        if self.in_progress.pop(uid, None) is not None:
            self.intents.disown(uid)  # else the mark is being taken away

    # ------------------------------------------------------------------ the path

    async def process(self, uid: str) -> Result:
        """Look at one claim and do what is to be done; the work of the claim workers.

        Args:
            uid: the claim's.

        Returns:
            What to do with the key.
        """
        known = self._find(uid)
        if known is None:
            logger.debug('claim "%s" in work queue no longer exists', uid)
            return DONE
        # One at a time for the volume's name: a former volume of that name may still be on its way out.
        async with self._parts.locks.hold(self._parts.volume_name(known)):
            claim = self._find(uid)
            return DONE if claim is None else await self._sync(claim, self.in_progress.get(uid))

    def _find(self, uid: str) -> Claim | None:
        """The claim as the cache has it, or as it is remembered if it is gone and something is in the making."""
        unfinished = self.in_progress.get(uid)
        return self._parts.claims.by_uid(uid) or (unfinished.claim if unfinished else None)

    async def _sync(self, claim: Claim, unfinished: Unfinished | None) -> Result:
        parts = self._parts
        if unfinished is None and not self._wants_volume(claim):
            return DONE
        if (remaining := self.slow.remaining(claim.uid, parts.classes.get(claim.class_name))) > 0:
            # No event, no metric, and no failure counted: nothing was tried.
            return wait(
                remaining,
                f"skipping volume provisioning for pvc {claim.uid}, "
                "because provisioning previously failed with infeasible error",
            )
        if unfinished is None and self._left_over(claim):
            unfinished = Unfinished(claim)
        try:
            storage_class = await self.should_provision(claim, unfinished)
        except Outcome as error:
            parts.metrics.provision_failed(claim, class_exists=self._class_exists(claim))
            if not isinstance(error, _ClassMissing):
                self._parts.warn(claim, "ProvisioningFailed", str(error))
            elif unfinished is not None and claim.terminating:
                return self._not_asked(claim, Result(Kind.RETRY, str(error)), unfinished)
            return Result(Kind.RETRY, str(error))
        if storage_class is None:
            return self._voted_down(claim, unfinished) if unfinished is not None and claim.terminating else DONE
        self._declined.pop(claim.uid, None)
        began = parts.clock.monotonic()
        try:
            result = await self._provision(claim, storage_class, unfinished)
        except BaseException:
            self.intents.disown(claim.uid)  # whatever went wrong, the mark tells that something may exist
            raise
        if result is DONE:
            seconds = parts.clock.monotonic() - began
            parts.metrics.provision_succeeded(claim, seconds, class_exists=self._class_exists(claim))
            return DONE
        if result is _NOTHING_TO_DO:
            return DONE
        if result.kind is not Kind.WAIT:
            parts.metrics.provision_failed(claim, class_exists=self._class_exists(claim))
        return result

    def _class_exists(self, claim: Claim) -> bool:
        """Whether the class that metrics name is one; it need not be the one of the beta annotation."""
        return self._parts.classes.get(claim.spec.storage_class_name or "") is not None

    def _wants_volume(self, claim: Claim) -> bool:
        """Whether a claim that we do not remember is to be worked on, as far as it tells itself."""
        if not self._addressed(claim):
            return False
        if claim.spec.volume_name == self._parts.volume_name(claim):
            self._release(claim)  # saved and bound; only a mark may be left of it
            return False
        if claim.spec.volume_name or claim.terminating:
            # Nothing is begun for it, but a former process may have begun something.
            return self._left_over(claim)
        return True

    def _left_over(self, claim: Claim) -> bool:
        """Whether the claim carries a mark that this process did not set: a former one may have made something."""
        return INTENT_FINALIZER in claim.finalizers and not self.intents.knows(claim.uid)

    def _addressed(self, claim: Claim) -> bool:
        """Whether the claim asks for one of our names; without an annotation a mark of ours says so with the class."""
        if claim.provisioner or INTENT_FINALIZER not in claim.finalizers:
            return self._parts.known(claim.provisioner)
        storage_class = self._parts.classes.get(claim.class_name)
        return storage_class is not None and self._parts.known(storage_class.provisioner or "")

    async def should_provision(self, claim: Claim, unfinished: Unfinished | None = None) -> StorageClass | None:
        """Whether a claim is to be provisioned now.

        Args:
            claim: the claim.
            unfinished: what is known to be in progress for it.

        Returns:
            Its class, or None for no.

        Raises:
            Outcome: it cannot be told: the class is missing, or a hook failed.

        Since 0.1. Source: reference controller, "shouldProvision"; unlike there, plugins are asked last and only
        about claims that are addressed to us.
        """
        if unfinished is not None and unfinished.request is not None:
            return unfinished.request.storage_class  # asked and answered before; it must be brought to an end
        if unfinished is None and (claim.spec.volume_name or not self._addressed(claim)):
            return None
        storage_class = self._parts.classes.get(claim.class_name)
        if storage_class is None:
            raise _ClassMissing(f'storageClass "{claim.class_name}" not found')
        # A mark alone is no reason to do without a node, as long as the scheduler may still choose one.
        if not (unfinished is not None and claim.terminating) and _awaits_node(claim, storage_class):
            return None
        agreed = await self._parts.backend.should_provision(claim, storage_class)
        return storage_class if agreed else None

    async def _provision(self, claim: Claim, storage_class: StorageClass, unfinished: Unfinished | None) -> Result:
        parts, uid = self._parts, claim.uid
        pv_name = parts.volume_name(claim)  # P2

        # P3: there is a volume of that name already, saved, or being saved.
        existing = parts.volumes.get(pv_name) or self.saver.find(pv_name)
        if existing is not None and existing.claim_uid == uid and (unfinished is None or parts.ours(existing)):
            self.in_progress.pop(uid, None)
            if pv_name not in self.saver.unsaved:
                self._release(claim)
            if uid in self._served or unfinished is not None:
                return _NOTHING_TO_DO  # our own work, seen again
            return Result(Kind.STOP, f"volume {pv_name} already exists")
        if existing is not None and unfinished is None:
            message = (
                f"A volume named {pv_name} exists already and is not for this claim (it is for "
                f"{existing.claim_key or 'no claim'}); delete it to have this claim provisioned."
            )
            self._parts.warn(claim, "ProvisioningFailed", message)
            return Result(Kind.RETRY, message)
        self._served.discard(uid)

        if unfinished is not None and unfinished.request is not None:
            # Asked before, and perhaps still at work: the same question again.
            request = unfinished.request
            cached = parts.claims.by_uid(uid)
            if cached is not None and not cached.terminating and INTENT_FINALIZER not in cached.finalizers:
                try:
                    await self.intents.hold(cached)  # if it is gone by now: it is remembered, and goes on
                except ApiError as error:
                    return Result(Kind.RETRY, f"marking claim {claim.key}: {error}")
            return await self._ask(request, unfinished=True)

        # P5
        if claim.spec.volume_mode == "Block":
            try:
                supported = await parts.backend.supports_block()
            except Outcome as error:
                self._parts.warn(claim, "ProvisioningFailed", str(error))
                return Result(Kind.RETRY, str(error))
            if not supported:
                message = f"{parts.name} does not support block volume provisioning"
                self._parts.warn(claim, "ProvisioningFailed", message)
                return self._not_asked(claim, Result(Kind.STOP, message), unfinished)
        # P7
        if not parts.known(storage_class.provisioner or ""):
            message = f"class {storage_class.name} of claim {claim.key} is for {storage_class.provisioner}, not for us"
            logger.error("%s", message)
            return self._not_asked(claim, Result(Kind.STOP, message), unfinished)
        try:
            policy = class_policy(
                storage_class.parameters or {},
                default=parts.backend.default_policy,
                supports_archive=parts.backend.supports_archive,
                plugin=parts.backend.plugin,
            )
        except Infeasible as error:
            return self._not_asked(claim, self._infeasible(claim, storage_class, error), unfinished)

        # From here on the claim cannot vanish under us; and this is how it is now.
        try:
            held = await self.intents.hold(claim)
        except ApiError as error:
            if unfinished is None:
                self._release(claim)  # the mark may have been set although the answer was lost
            else:
                self.intents.disown(uid)  # what a former process left is still what the mark says
            if error.status == 403:
                self._parts.warn(
                    claim,
                    "ProvisioningFailed",
                    f"Not allowed to mark the claim ({error}); grant the host get and patch on persistentvolumeclaims",
                )
            return Result(Kind.RETRY, f"marking claim {claim.key}: {error}")
        live = held.claim or (claim if uid in self.in_progress else None)
        if live is None:
            logger.info("Claim %s (uid %s) is %s; nothing is provisioned for it", claim.key, uid, held.state)
            return _NOTHING_TO_DO
        if unfinished is None and not live.terminating:
            if live.spec.volume_name or not parts.known(live.provisioner) or _awaits_node(live, storage_class):
                logger.info("Claim %s (uid %s) does not want a volume from us any more", claim.key, uid)
                self._release(live)
                return _NOTHING_TO_DO
            if live.selected_node != claim.selected_node or live.class_name != claim.class_name:
                self._release(live)
                return wait(_STALE, "the claim changed meanwhile")  # what plugins were asked above is out of date
        elif not live.terminating and (live.selected_node, live.class_name) != (claim.selected_node, claim.class_name):
            self.intents.disown(uid)  # likewise, but the mark stays
            return wait(_STALE, "the claim changed meanwhile")

        request = ProvisionRequest(
            pv_name=pv_name,
            claim=live,
            storage_class=storage_class,
            provisioner=storage_class.provisioner or parts.name,
            selected_node=live.selected_node,  # P8
            policy=policy,
        )
        return await self._ask(request, unfinished=unfinished is not None)

    async def _ask(self, request: ProvisionRequest, *, unfinished: bool) -> Result:
        """P9 to P13: ask the plugin, build and save the volume."""
        parts, claim = self._parts, request.claim
        # P9
        self._parts.tell(claim, "Provisioning", f'External provisioner is provisioning volume for claim "{claim.key}"')
        # P10
        began = parts.clock.monotonic()
        try:
            provisioned = await parts.backend.provision(request, timeout=parts.options.provision_timeout or None)
        except Outcome as error:
            parts.observe("provision", request, began, error=error)
            return await self._not_provisioned(request, error, unfinished=unfinished)
        except Exception as error:
            logger.exception("Provisioning volume %s for claim %s", request.pv_name, claim.key)
            outcome = InBackground(f"{type(error).__name__}: {error}")
            parts.observe("provision", request, began, error=outcome)
            return await self._not_provisioned(request, outcome, unfinished=unfinished)
        try:
            body = build_volume(request, provisioned, plugin=parts.backend.plugin, options=parts.options)  # P11
        except PluginError as error:
            outcome = InBackground(str(error))
            parts.observe("provision", request, began, error=outcome)
            return await self._not_provisioned(request, outcome, unfinished=unfinished)
        parts.observe("provision", request, began, path=source_path(msgspec.convert(body["spec"], VolumeSpec)))
        for note in provisioned.notes:
            self._parts.note(claim, note)
        # P12
        try:
            await self.saver.save(request, body)
        except SaveFailed as error:
            if error.cleaned:
                self._finished(claim)
            else:
                self.in_progress[claim.uid] = Unfinished(claim, request)
            return Result(Kind.RETRY, str(error))
        # P13; the saver has told _on_saved, or will.
        self.in_progress.pop(claim.uid, None)
        if parts.claims.by_uid(claim.uid) is not None:
            self._served.add(claim.uid)
        return DONE

    async def _not_provisioned(self, request: ProvisionRequest, error: Outcome, *, unfinished: bool) -> Result:
        """Every way in which a plugin does not provision."""
        claim, uid = request.claim, request.claim.uid
        if unfinished and not error.owner_asked:
            error = NoChange(f"{error} (the backend was not asked; what it has begun for this claim is kept)")
        if isinstance(error, Ignored):
            self._finished(claim)
            return Result(Kind.STOP, str(error))
        if isinstance(error, Infeasible):
            self._finished(claim)
            return self._infeasible(claim, request.storage_class, error)

        self._parts.warn(claim, "ProvisioningFailed", str(error))
        if isinstance(error, Reschedule) and ANN_SELECTED_NODE in claim.annotations:
            # Nothing runs behind: the mark goes together with the node, so that another node's host starts fresh.
            live = await give_node_back(self._parts, claim)
            if live is not None and INTENT_FINALIZER not in live.finalizers:
                self.intents.dropped(uid)
            self._finished(live or claim)
            return Result(Kind.STOP if live else Kind.RETRY, str(error))
        if isinstance(error, ProvisionError | Reschedule):
            self._finished(claim)
            return Result(Kind.RETRY, str(error))
        if isinstance(error, NoChange):
            if not unfinished:
                self._finished(claim)  # a first answer counts as final
            else:
                self.in_progress.setdefault(uid, Unfinished(claim, request))
            return Result(Kind.RETRY, str(error))
        # InBackground, a hook past its deadline, and whatever nobody expected.
        if isinstance(error, HookTimeout):
            logger.warning("Volume %s for claim %s: %s", request.pv_name, claim.key, error)
        self.in_progress[uid] = Unfinished(claim, request)
        return Result(Kind.RETRY, str(error))

    def _infeasible(self, claim: Claim, storage_class: StorageClass, error: Infeasible) -> Result:
        """It cannot work as it is: wait long, or until the class changes."""
        message = f"Volume provisioning failed with infeasible error. Retries will be delayed. {error}"
        self._parts.warn(claim, "ProvisioningFailed", message)
        self.slow.add(claim.uid, storage_class)
        return Result(Kind.RETRY, str(error), self.slow.retention)

    def _voted_down(self, claim: Claim, unfinished: Unfinished) -> Result:
        """A claim on its way out that was begun by another process, and of which a plugin says that it is not for us.

        That is right where each node has a process of its own: the node's finishes it. Nothing is said before it had
        time to; afterwards the claim hangs, and somebody has to know.
        """
        parts = self._parts
        now = parts.clock.monotonic()
        quiet = self._declined.setdefault(claim.uid, now) + parts.options.retry_interval_start - now
        if quiet > 0:
            return wait(quiet, "a plugin voted against finishing it here")
        why = f"should_provision of a plugin says that {parts.name} is not to work on it in this process"
        return self._not_asked(claim, Result(Kind.RETRY, why), unfinished)

    def _not_asked(self, claim: Claim, result: Result, unfinished: Unfinished | None) -> Result:
        """The plugin cannot even be asked; what a former process may have begun must not be forgotten over that."""
        if unfinished is None:
            return result
        message = (
            f"A volume was being made for this claim and cannot be finished or removed now: {result.error}. "
            f"If nothing is left on storage, remove finalizer {INTENT_FINALIZER}."
        )
        self._parts.warn(claim, "ProvisioningFailed", message)
        return Result(Kind.RETRY, result.error, result.after)

    # ------------------------------------------------------------------ afterwards

    def _finished(self, claim: Claim) -> None:
        """Nothing is in the making for the claim any more."""
        self.in_progress.pop(claim.uid, None)
        self._release(claim)

    def _release(self, claim: Claim) -> None:
        cached = self._parts.claims.by_uid(claim.uid)
        self.intents.release(cached or claim)

    def _on_saved(self, claim: Claim, volume: Volume) -> None:
        self._parts.tell(claim, "ProvisioningSucceeded", f"Successfully provisioned volume {volume.name}")
        logger.info("Provisioned volume %s for claim %s (uid %s)", volume.name, claim.key, claim.uid)
        self._release(claim)

    def _on_discarded(self, claim: Claim, message: str) -> None:
        self._parts.warn(claim, "ProvisioningFailed", message)
        self._served.discard(claim.uid)
        self._release(claim)
        self._enqueue(claim.uid)


def _awaits_node(claim: Claim, storage_class: StorageClass) -> bool:
    """Whether the scheduler has yet to choose a node; the alpha annotation does not count."""
    waits = storage_class.volume_binding_mode == "WaitForFirstConsumer"
    return waits and not claim.annotations.get(ANN_SELECTED_NODE)
