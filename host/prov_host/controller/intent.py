"""The mark on a claim that says: a volume for it may be in the making.

A plugin may have made an asset that nothing in the API tells of: the host died before the volume was saved, or the
claim was deleted while the plugin was still at work. So before a plugin is asked, the claim gets a finalizer of ours,
and loses it only when nothing is in the making any more: the volume is saved, or the plugin said that nothing is left.
Meanwhile the claim cannot vanish, and whoever comes next, this process or another, finds it again.

Setting the mark is one patch, and its answer is the claim as it is *now*: a vanished claim is a 404, one that was
re-created under the name has another uid and is a 409, and a terminating one refuses new finalizers. So it is the live
re-read before provisioning as well, at no further cost.

Taking the mark away is not urgent and must not be in the way: it is done by workers of its own, until it has worked.
"""

from __future__ import annotations

import logging

import msgspec

from prov_host.controller.finalizers import addition, removal
from prov_host.controller.options import ControllerOptions
from prov_host.controller.parts import Parts
from prov_host.controller.workqueue import Limiter, WorkQueue
from prov_host.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from prov_host.kube.api import CLAIMS
from prov_host.model import INTENT_FINALIZER, Claim

__all__ = ["Held", "Intents"]

logger = logging.getLogger(__name__)

_BUSY = 0.2  # seconds until a mark is looked at again that an operation may still need


class Held(msgspec.Struct, frozen=True):
    """What became of marking a claim.

    Attributes:
        state: ``held``, ``gone`` (vanished, or replaced under its name) or ``terminating`` (and not marked before).
        claim: as the API has it now, when held.
    """

    state: str
    claim: Claim | None = None


class Intents:
    """The marks of one controller's claims.

    Args:
        parts: the controller's surroundings.

    Belongs to the event loop. Since 0.1.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._pending: dict[str, Claim] = {}  # marks to be taken away
        self._held: set[str] = set()  # uids we marked, or may have, and did not take the mark away from
        self._done: set[str] = set()  # uids whose mark we took away; the cache may still show it
        limiter = Limiter(parts.clock, base=1.0, maximum=60.0, rate=0.0)
        self.queue = WorkQueue(parts.clock, limiter, parts.metrics.queue_observer("releases"))
        parts.metrics.watch_queue("releases", self.queue)

    @property
    def pending(self) -> int:
        """Marks that are still to be taken away."""
        return len(self._pending)

    def knows(self, uid: str) -> bool:
        """Whether this process set, or took away, the mark of a claim, and remembers why."""
        return uid in self._held or uid in self._done or uid in self._pending

    def disown(self, uid: str) -> None:
        """Forget why a claim is marked: what the mark alone says counts again."""
        self._pending.pop(uid, None)
        self._held.discard(uid)
        self._done.discard(uid)

    def dropped(self, uid: str) -> None:
        """The mark of a claim went with another patch."""
        self._pending.pop(uid, None)
        self._held.discard(uid)
        self._done.add(uid)

    def forget(self, uid: str) -> None:
        """The claim vanished, and its mark with it."""
        self.disown(uid)

    async def hold(self, claim: Claim) -> Held:
        """Mark a claim and read it as it is now.

        Args:
            claim: as known so far.

        Raises:
            ApiError: it is not known what became of it; try again.
        """
        options = self._parts.options
        self.disown(claim.uid)
        if options.persist_intent:
            self._held.add(claim.uid)  # also if the answer gets lost
        held = await self._hold(claim, options)
        if held.claim is None:
            self.disown(claim.uid)
        return held

    async def _hold(self, claim: Claim, options: ControllerOptions) -> Held:
        marked = INTENT_FINALIZER in claim.finalizers
        api = self._parts.api
        try:
            if options.persist_intent and (options.live_reads or not marked):
                live = await api.patch(CLAIMS, claim.name, addition(claim, INTENT_FINALIZER), namespace=claim.namespace)
            elif options.live_reads:
                live = await api.get(CLAIMS, claim.name, namespace=claim.namespace)
            else:
                return Held("held", claim)
        except NotFound:
            return Held("gone")
        except (Conflict, Invalid, Forbidden) as error:
            return await self._why_refused(claim, error)
        if live.uid != claim.uid:
            return Held("gone")
        if live.terminating and INTENT_FINALIZER not in live.finalizers:
            return Held("terminating")
        return Held("held", live)

    async def _why_refused(self, claim: Claim, error: ApiError) -> Held:
        """Each of these answers has harmless causes; the claim itself tells them from real trouble."""
        try:
            live = await self._parts.api.get(CLAIMS, claim.name, namespace=claim.namespace)
        except NotFound:
            return Held("gone")
        if live.uid != claim.uid:
            return Held("gone")
        if live.terminating:
            return Held("terminating")
        raise error

    def release(self, claim: Claim) -> None:
        """Have the mark of a claim taken away soon; harmless if it has none.

        Args:
            claim: the claim; nothing may be in the making for it.
        """
        uid = claim.uid
        # After our own removal the cache may show the mark for a while; but were it really there, a claim on its way
        # out would hang.
        shown = INTENT_FINALIZER in claim.finalizers and (uid not in self._done or claim.terminating)
        if uid not in self._pending and (uid in self._held or shown):
            self._pending[uid] = claim
            self.queue.add(uid)

    async def process(self, uid: str) -> None:
        """Take away one mark; the work of the release workers."""
        claim = self._pending.get(uid)
        if claim is None:
            self.queue.forget(uid)
            return
        name = self._parts.volume_name(claim)
        if self._parts.locks.held(name):
            # An attempt that began since either keeps the mark for itself or is about to end without needing it.
            self.queue.add_after(uid, _BUSY)
            return
        async with self._parts.locks.hold(name):
            try:
                await self._take_away(claim)
            except ApiError as error:
                logger.warning(
                    "Claim %s (uid %s) keeps finalizer %s for now: %s", claim.key, uid, INTENT_FINALIZER, error
                )
                if isinstance(error, Forbidden):
                    self._parts.events.emit(
                        claim,
                        type="Warning",
                        reason="ProvisioningCleanupFailed",
                        message=f"Not allowed to remove finalizer {INTENT_FINALIZER} ({error}); grant the host "
                        "patch on persistentvolumeclaims",
                    )
                self.queue.retry(uid)
                return
        self.queue.forget(uid)
        self.dropped(uid)
        if self._parts.claims.by_uid(uid) is None:
            self.forget(uid)

    async def _take_away(self, claim: Claim) -> None:
        api = self._parts.api
        try:
            await api.patch(CLAIMS, claim.name, removal(claim, INTENT_FINALIZER), namespace=claim.namespace)
        except NotFound:
            return
        except (Conflict, Invalid):
            # Another claim has the name now, and its mark is not ours to remove; or a real conflict.
            try:
                live = await api.get(CLAIMS, claim.name, namespace=claim.namespace)
            except NotFound:
                return
            if live.uid == claim.uid and INTENT_FINALIZER in live.finalizers:
                raise
