"""The plugin: answers the host's hooks for the node it runs on.

A volume belongs to one node, whose name is in its record. With ``scope = "per-node"`` one process runs on each node
and answers only for its own: ``should_provision`` and ``should_delete`` keep their work apart, so the processes share
a provisioner name without sharing a Lease. What a volume says of itself (its source, its record) only tells which
node and directory to look in; what is removed is decided by the owner record there.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import random
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from prov_host import (
    Asset,
    Claim,
    ConfigurationError,
    DeleteError,
    HostContext,
    InBackground,
    Infeasible,
    Provisioned,
    ProvisionError,
    ProvisionRequest,
    Removed,
    Reschedule,
    StorageClass,
    Volume,
    format_bytes,
    hookimpl,
)
from prov_host.safedir import Sys, UnsafeName, normalize_absolute, relative_parts

from .metrics import Metrics
from .nodes import HOSTNAME_LABEL, GoneNodes, only_hostname
from .parameters import Wanted, directory_name, read_request
from .records import Owner, StorageError, UnusedError
from .settings import HostpathSettings, Place, Placement, resolve
from .storage import OpenStorage, Storage, empty, words

__all__ = ["PROV_HOST_API", "HostpathPlugin"]

PROV_HOST_API = 1

logger = logging.getLogger(__name__)

_PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
_EMPTY_TRASH_EVERY = 2.0
_MEASURE_EVERY = 60.0
# Every node's process may forget a gone node's volume; each waits a little longer by chance, so that one does it.
_STAGGER = 600.0


class HostpathPlugin:
    """Node-local volumes. Since 0.1.

    Args:
        environ: where to look whether this is a pod; the process's environment by default.
        chance: spreads the processes of several nodes.
        sys: the file system calls; this machine's by default.
    """

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        chance: random.Random | None = None,
        sys: Sys | None = None,
    ) -> None:
        self._sys = sys
        self._environ = os.environ if environ is None else environ
        self._chance = chance or random.Random()  # noqa: S311 - spreads work, hides nothing
        self._stop = threading.Event()

    @hookimpl
    def settings_type(self) -> type[HostpathSettings]:
        """See :meth:`prov_host.hookspecs.HookSpecs.settings_type`."""
        return HostpathSettings

    @hookimpl
    def configure(self, settings: HostpathSettings, host: HostContext) -> None:
        """See :meth:`prov_host.hookspecs.HookSpecs.configure`."""
        self._settings = settings
        self._host = host
        self._placement: Placement = resolve(settings, self._node_name(host))
        self._storages = tuple(Storage(place, self._sys) for place in self._placement.places)
        limit = self._placement.forget_after
        self._gone = GoneNodes(host, None if limit is None else limit + self._chance.uniform(0, _STAGGER))
        self._trash_problems: dict[str, list[str]] = {}
        self._metrics: Metrics | None = None
        host.every("empty the trash", _EMPTY_TRASH_EVERY, self.empty_trash)
        host.every("measure the directories", _MEASURE_EVERY, self.measure)

    @hookimpl
    def provisioners(self) -> Sequence[str]:
        """See :meth:`prov_host.hookspecs.HookSpecs.provisioners`."""
        return [self._settings.provisioner]

    @hookimpl
    def default_policy(self) -> str:
        """See :meth:`prov_host.hookspecs.HookSpecs.default_policy`."""
        return self._settings.default_policy

    @hookimpl
    def check(self) -> Sequence[str]:
        """See :meth:`prov_host.hookspecs.HookSpecs.check`."""
        problems: list[str] = []
        for storage in self._storages:
            problems += storage.problems(recorded=functools.partial(self._recorded, storage.place))
        return problems

    @hookimpl
    def close(self) -> None:
        """See :meth:`prov_host.hookspecs.HookSpecs.close`."""
        self._stop.set()

    # --- whose business it is ---------------------------------------------------------------------------------

    @hookimpl
    def should_provision(self, claim: Claim, storage_class: StorageClass, selected_node: str) -> bool:
        """This node's claims; of others' those only that were given up on."""
        if storage_class.provisioner != self._settings.provisioner or selected_node == self._placement.node:
            return True
        if self._settings.scope == "single-node":
            return True  # nobody else would tell the scheduler that the other node cannot hold it
        if not selected_node:
            node = only_hostname(storage_class)
            if not node:
                logger.warning(
                    "%s waits: with one process per node, the class %s needs volumeBindingMode WaitForFirstConsumer, "
                    "or allowedTopologies with one %s",
                    claim.key,
                    storage_class.name,
                    HOSTNAME_LABEL,
                )
            return node == self._placement.hostname
        return self._gone.given_up(claim.uid)

    @hookimpl
    def should_delete(self, volume: Volume) -> bool:
        """This node's volumes; of others' those only that were given up on."""
        if volume.annotations.get(_PROVISIONED_BY) != self._settings.provisioner:
            return True
        node = volume.record.get("node", "")
        if node == self._placement.node or (not node and self._settings.scope == "single-node"):
            return True
        return bool(node) and volume.phase == "Released" and self._gone.given_up(volume.uid)

    # --- provision --------------------------------------------------------------------------------------------

    @hookimpl
    def provision(self, request: ProvisionRequest) -> Provisioned:
        """Make the volume's directory on this node."""
        node = self._placement.node
        try:
            wanted = read_request(request)
            name = directory_name(request)
            if request.selected_node and request.selected_node != node:
                raise Reschedule(f"this host serves {node}, and {request.selected_node} has none that answers")
        except (Infeasible, Reschedule) as error:
            self._undo(request.pv_name, error)
            raise
        owner = Owner(
            pv_name=request.pv_name,
            name=name,
            claim=request.claim.key,
            claim_uid=request.claim.uid,
            provisioner=request.provisioner,
            size=wanted.size,
            made=self._host.clock.now().isoformat(timespec="seconds"),
        )
        try:
            storage = self._holding(request.pv_name) or self._with_room(request, wanted)
            with self._open(storage, first=True) as opened:
                # Another claim may have come in between looking and locking.
                if opened.owner(request.pv_name) is None and opened.room().available < wanted.size:
                    raise self._no_room(request, [f"{storage.place.path} has just become too full"])
                owner = opened.make(owner, mode=wanted.mode, uid=wanted.uid, gid=wanted.gid)
                identity = opened.identity
        except (StorageError, OSError) as error:
            text = f"cannot make the volume {request.pv_name} for {request.claim.key}: {words(error)}"
            if getattr(error, "__notes__", None):  # something is left, and only asking again can clean it
                raise InBackground(text) from error
            raise ProvisionError(text) from error
        return self._answer(storage.place, owner, wanted, identity)

    def _undo(self, pv_name: str, why: Infeasible | Reschedule) -> None:
        """Before saying that nothing can be made here: take back what an earlier call made.

        Raises:
            InBackground: that did not work yet, so the host has to ask again.
        """
        if any(volume.name == pv_name for volume in self._host.volumes()):
            return  # saved by now: whoever deletes it asks for that
        for storage in self._storages:
            try:
                with self._open(storage) as opened:
                    owner = opened.owner(pv_name)
                    if owner is not None:
                        opened.throw_away(owner)
            except UnusedError as error:
                if self._recorded(storage.place):
                    raise InBackground(f"{why}. What was made for it before is not cleared up yet: {error}") from error
            except (StorageError, OSError) as error:
                raise InBackground(
                    f"{why}. What was made for it before is not cleared up yet: {words(error)}"
                ) from error

    def _answer(self, place: Place, owner: Owner, wanted: Wanted, identity: str) -> Provisioned:
        path = f"{place.node_path}/{owner.name}"
        source = {"path": path, "type": "Directory"} if wanted.source == "hostPath" else {"path": path}
        expression = {"key": HOSTNAME_LABEL, "operator": "In", "values": [self._placement.hostname]}
        return Provisioned(
            source={wanted.source: source},
            node_affinity={"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
            record={
                "node": self._placement.node,
                "directory": place.node_path,
                "name": owner.name,
                "storage": identity,
            },
        )

    def _holding(self, pv_name: str) -> Storage | None:
        """The storage that has a record of the volume already: asked again, the answer stays the same."""
        for storage in self._storages:
            # One that cannot be looked into stops the rest: a second asset elsewhere would be one too many.
            with self._open(storage, first=True) as opened:
                if opened.owner(pv_name) is not None:
                    return storage
        return None

    def _with_room(self, request: ProvisionRequest, wanted: Wanted) -> Storage:
        """The storage with the most room, if the volume fits anywhere."""
        refusals = []
        best: tuple[int, Storage] | None = None
        for storage in self._storages:
            if wanted.directory not in ("", storage.place.node_path):
                continue
            with self._open(storage, first=True) as opened:
                available = opened.room().available
            if available < wanted.size:
                refusals.append(f"{storage.place.path} has room for {format_bytes(available)}")
            elif best is None or available > best[0]:
                best = (available, storage)
        if best is None:
            where = f"directory {wanted.directory}" if wanted.directory else "base directory"
            raise self._no_room(request, refusals or [f"{self._placement.node} has no {where}"])
        return best[1]

    def _no_room(self, request: ProvisionRequest, reasons: list[str]) -> ProvisionError | Reschedule:
        text = f"{request.claim.key} asks for {request.claim.requested or 'nothing'}, but {'; '.join(reasons)}"
        return Reschedule(text) if request.selected_node else ProvisionError(text)

    # --- delete and archive -----------------------------------------------------------------------------------

    @hookimpl
    def delete(self, volume: Volume) -> Removed:
        """Move the volume's directory into the trash, which is emptied in the background."""
        if (forgotten := self._forgotten(volume)) is not None:
            return forgotten
        with self._own(volume) as (opened, owner, path):
            if owner is None:
                return Removed(message=f"{path} was already gone", already_absent=True, path=path)
            absent = not opened.has(owner)
            opened.throw_away(owner)
            message = f"{path} was already gone" if absent else f"{path} is removed"
            return Removed(message=message, already_absent=absent, path=path)

    @hookimpl
    def archive(self, volume: Volume) -> Removed:
        """Move the volume's directory into the archive beside it."""
        if (forgotten := self._forgotten(volume)) is not None:
            return forgotten
        with self._own(volume) as (opened, owner, path):
            if owner is None:
                return Removed(message=f"{path} was already gone", already_absent=True, path=path)
            if not opened.has(owner):
                opened.throw_away(owner)
                return Removed(message=f"{path} was already gone", already_absent=True, path=path)
            archived = opened.put_aside(owner, self._host.clock.now().strftime("%Y%m%dT%H%M%SZ"))
            return Removed(message=f"{path} is archived as {archived}", path=archived)

    def _forgotten(self, volume: Volume) -> Removed | None:
        """The answer for a volume of a node that has been gone for too long, None for any other."""
        node = volume.record.get("node", "")
        if not node or node == self._placement.node:
            return None
        if not self._gone.given_up(volume.uid):
            raise DeleteError(f"{volume.name} is on the node {node}, and this host serves {self._placement.node}")
        path = f"{volume.record.get('directory', '')}/{volume.record.get('name', '')}"
        return Removed(
            message=f"the node {node} has not answered for {self._settings.forget_after}; the volume is forgotten, and "
            f"its data stays in {path} should the node return",
            path=path,
        )

    @contextlib.contextmanager
    def _own(self, volume: Volume) -> Iterator[tuple[OpenStorage, Owner | None, str]]:
        """Prove what a volume says of itself; raises DeleteError and touches nothing if anything does not fit."""
        record = volume.record
        directory, name = record.get("directory", ""), record.get("name", "")
        storage = next((one for one in self._storages if one.place.node_path == directory), None)
        if storage is None:
            raise DeleteError(
                f"{volume.name} was made in {directory or 'an unknown directory'}, which is not among the base "
                f"directories of {self._placement.node}; add it to `directories` again"
            )
        source = volume.spec.local or volume.spec.host_path or {}
        if _normal(source.get("path")) != f"{directory}/{name}":
            raise DeleteError(
                f"{volume.name} points to {source.get('path')!r}, but was made in {directory}/{name}; nothing was "
                "touched"
            )
        try:
            with self._open(storage) as opened:
                if record.get("storage") != opened.identity:
                    raise DeleteError(
                        f"{storage.place.path} is another storage ({opened.identity}) than the one {volume.name} was "
                        f"made on ({record.get('storage')}); is the right disk mounted?"
                    )
                owner = opened.owner(volume.name)
                path = opened.path_of(name)
                if owner is None and name in opened.strangers():
                    raise DeleteError(f"{path} exists, but no record says that it belongs to {volume.name}")
                if owner is not None and owner.name != name:
                    raise DeleteError(f"{volume.name} belongs to {opened.path_of(owner.name)}, not to {path}")
                if other := self._also_used_by(volume, f"{directory}/{name}"):
                    raise DeleteError(f"{path} is used by the volume {other} as well; delete that one first")
                yield opened, owner, path
        except (StorageError, OSError) as error:
            raise DeleteError(f"cannot remove {volume.name}: {words(error)}") from error

    def _also_used_by(self, volume: Volume, path: str) -> str:
        """Another volume of this node whose path is the same, inside or above."""
        for other in self._host.volumes():
            source = other.spec.local or other.spec.host_path
            theirs = _normal(source.get("path")) if source and other.name != volume.name else ""
            if not theirs or (relative_parts(theirs, path) is None and relative_parts(path, theirs) is None):
                continue
            if other.record.get("node", "") in ("", self._placement.node):
                return other.name
        return ""

    # --- looking after it -------------------------------------------------------------------------------------

    @hookimpl
    def inventory(self) -> list[Asset]:
        """All that is in the base directories of this node."""
        found: list[Asset] = []
        for storage in self._used():
            with self._open(storage) as opened:
                found += [_asset(opened.path_of(owner.name), owner, "volume") for owner in opened.owners()]
                found += [Asset(id=opened.path_of(name), kind="unknown") for name in opened.strangers()]
                found += [_asset(path, owner, "archive") for path, owner in opened.archived()]
                found += [Asset(id=path, kind="trash") for path in opened.thrown_away()]
        return [msgspec.structs.replace(one, detail={"node": self._placement.node}) for one in found]

    def empty_trash(self) -> None:
        """Remove what was thrown away. Called by the host again and again, in a thread of its own."""
        for storage in self._storages:
            try:
                with self._open(storage) as opened:
                    trash = opened.trash()
            except (StorageError, OSError) as error:
                logger.debug("the trash of %s waits: %s", storage.place.path, words(error))
                continue
            with trash:
                problems = empty(trash, self._stop.is_set)
            # The same problem again and again (a tenant's files that this user may not remove) is told once.
            if problems != self._trash_problems.get(storage.place.path, []) and not self._stop.is_set():
                self._trash_problems[storage.place.path] = problems
                for problem in problems:
                    logger.warning("the trash of %s: %s", storage.place.path, problem)

    def measure(self) -> None:
        """Tell the metrics how much room there is. Called by the host again and again, in a thread of its own."""
        if self._metrics is None:
            self._metrics = Metrics(self._host)
        for storage in self._storages:
            try:
                with self._open(storage) as opened:
                    self._metrics.measured(storage.place.path, opened.room(), opened.count())
            except (StorageError, OSError) as error:
                logger.debug("%s is not measured: %s", storage.place.path, words(error))

    def _open(self, storage: Storage, *, first: bool = False) -> contextlib.AbstractContextManager[OpenStorage]:
        return storage.opened(recorded=functools.partial(self._recorded, storage.place), first=first)

    def _used(self) -> Iterator[Storage]:
        """The storages that have something on them; raises for one that should have and has not."""
        for storage in self._storages:
            try:
                with self._open(storage):
                    pass
            except UnusedError:
                if self._recorded(storage.place):
                    raise
                continue
            yield storage

    def _recorded(self, place: Place) -> frozenset[str]:
        """The identities that volumes of this node recorded for a directory."""
        found = set()
        for volume in self._host.volumes():
            record = volume.record
            if record.get("node") == self._placement.node and record.get("directory") == place.node_path:
                found.add(record.get("storage", ""))
        return frozenset(found - {""})

    def _node_name(self, host: HostContext) -> str:
        if host.node_name:
            return host.node_name
        if "KUBERNETES_SERVICE_HOST" in self._environ or self._settings.scope == "per-node":
            raise ConfigurationError(
                "hostpath: the name of this node is not known; set --node-name, or PROV_HOST_NODE_NAME from the field "
                "spec.nodeName"
            )
        name = socket.gethostname().lower()
        logger.info("no node name was given; the name of this machine, %s, is taken for it", name)
        return name


def _normal(path: object) -> str:
    try:
        return normalize_absolute(path) if isinstance(path, str) else ""
    except UnsafeName:
        return ""


def _asset(path: str, owner: Owner | None, kind: str) -> Asset:
    if owner is None:
        return Asset(id=path, kind=kind)
    return Asset(
        id=path,
        kind=kind,
        pv_name=owner.pv_name,
        provisioner=owner.provisioner,
        claim=owner.claim,
        claim_uid=owner.claim_uid,
        size=None,
    )
