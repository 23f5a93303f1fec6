"""One mounted share: proof that it is the right one, and the private area the plugin keeps on it.

An unmounted, empty or wrong share must never look like "already deleted", nor swallow new volumes. So before every
operation the share is opened anew and proved:

1. the mount point lies on a mounted NFS file system (unless ``plain_directory`` says that it need not);
2. the *sentinel*, ``.prov-host/sentinel``, holds the root's id. Volumes record the id they were made on, and a share
   with another id is another share;
3. on first sight of an id, the cluster's volumes must not all have been made on another one, and if they record no
   id, because another program made them, at least one of them must be here.

A share without a sentinel is taken into use only if nothing in the cluster says that it was in use before: no volume
records an id, and of the volumes that another program made at least one has its directory here. None of this is ever
decided before the host knows the cluster's volumes: asking for them then raises.

The private area holds ``owners/`` (ownership records), ``parents/`` (directories made to hold others), ``new/``
(directories not in place yet), ``trash/`` (directories not in place any more) and ``released/`` (notes about volumes
of other programs whose directories were taken away).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import msgspec

from prov_host.safedir import Dir, NotADirectory, Sys
from prov_host_nfs_subdir.records import Released, decode, encode, owner_file, stem
from prov_host_nfs_subdir.settings import Export

__all__ = ["PRIVATE", "Evidence", "OpenShare", "Share", "ShareProblem"]

logger = logging.getLogger(__name__)

PRIVATE = ".prov-host"
SENTINEL = "sentinel"
_ROOT_ID = re.compile(r"[0-9A-Za-z-]{8,64}")
_NETWORK_TYPES = frozenset({"nfs", "nfs4"})


class ShareProblem(Exception):
    """The share is not there, or is not the right one; the message says what to do. Nothing was touched.

    Attributes:
        unused: it has no sentinel, and nothing speaks against taking it into use.
    """

    unused = False


class _Sentinel(msgspec.Struct, frozen=True, omit_defaults=True):
    """What makes a root recognizable."""

    id: str
    created: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a volume of the cluster says about an export.

    Attributes:
        pv: the volume's name.
        root: the root id it was made on, "" if another program made it.
        parts: its directory, relative to the root.
    """

    pv: str
    root: str
    parts: tuple[str, ...]


class OpenShare:
    """A share that was proved, open for one operation; a context manager. One thread. Since 0.1.

    Attributes:
        root: the share's root.
        private: the private area.
        id: the root's id.
    """

    def __init__(self, root: Dir, private: Dir, root_id: str) -> None:
        self.root = root
        self.private = private
        self.id = root_id
        self._areas: dict[str, Dir] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close everything."""
        for area in self._areas.values():
            area.close()
        self.private.close()
        self.root.close()

    def _area(self, name: str) -> Dir:
        if name not in self._areas:
            self._areas[name] = self.private.ensure(name, 0o700)
        return self._areas[name]

    def prepare(self) -> None:
        """Make the areas that removing a volume needs while there is room for them: a full share has none."""
        for name in ("owners", "parents", "new", "released", "trash"):
            self._area(name)

    @property
    def owners(self) -> Dir:
        """Ownership records."""
        return self._area("owners")

    @property
    def parents(self) -> Dir:
        """Records of directories made to hold others."""
        return self._area("parents")

    @property
    def new(self) -> Dir:
        """Directories that are not in place yet."""
        return self._area("new")

    @property
    def trash(self) -> Dir:
        """Directories that are not in place any more."""
        return self._area("trash")

    @property
    def restored(self) -> Dir:
        """Notes about archives that were brought back to a path of their own."""
        return self._area("restored")


class Share:
    """One export's mount; opens and proves it. Any thread. Since 0.1.

    Args:
        export: the export.
        sys: the file system calls.
        new_id: makes an id for a share taken into use.
        now: the wall clock, as text.
        evidence: what the cluster's volumes say about the export.
    """

    def __init__(
        self,
        export: Export,
        sys: Sys,
        *,
        new_id: Callable[[], str],
        now: Callable[[], str],
        evidence: Callable[[], Sequence[Evidence]],
    ) -> None:
        self.export = export
        self._sys = sys
        self._new_id = new_id
        self._now = now
        self._evidence = evidence
        self._proved = ""
        self._evident = ""

    def open(self, *, begin: bool = True) -> OpenShare:
        """Open and prove the share.

        Args:
            begin: whether a share without a sentinel may be taken into use.

        Returns:
            The open share; close it.

        Raises:
            ShareProblem: it is not there, or is not the right one.
            OSError: it does not answer as it should.
        """
        root = self._open_root()
        private: Dir | None = None
        try:
            self._check_mounted(root)
            try:
                private = root.child(PRIVATE)
            except FileNotFoundError:
                private = None
            sentinel = self._read_sentinel(private) if private else None
            if sentinel is None:
                self._may_begin(root, private, begin=begin)
                private = private or root.ensure(PRIVATE, 0o700)
                sentinel = self._read_sentinel(private) or self._write_sentinel(private)
            assert private is not None
            self._check_known(root, private, sentinel)
            return OpenShare(root, private, sentinel)
        except BaseException:
            if private:
                private.close()
            root.close()
            raise

    def problems(self, look: Callable[[OpenShare], None] = lambda _: None) -> list[str]:
        """What is wrong with the share, a sentence each; does not take it into use.

        Args:
            look: given the open share if nothing is wrong.
        """
        try:
            with self.open(begin=False) as share:
                look(share)
        except ShareProblem as error:
            return [] if error.unused else [str(error)]
        except OSError as error:
            return [f"export {self.export.name!r}: {error.filename or self.export.mount}: {error.strerror or error}"]
        return []

    def _open_root(self) -> Dir:
        try:
            return Dir.open_root(self.export.mount, self._sys)
        except (FileNotFoundError, NotADirectory) as error:
            raise ShareProblem(
                f"export {self.export.name!r}: there is no directory {self.export.mount}; mount "
                f"{self.export.server}:{self.export.path} there, or set the export's `mount`"
            ) from error

    def _check_mounted(self, root: Dir) -> None:
        """Whoever works on the server itself uses the exported path as mount, and it need not be mounted."""
        export = self.export
        if export.plain_directory or export.mount == export.path:
            return
        mounted = self._sys.mount_of(root.fd)
        if mounted is None or mounted.type not in _NETWORK_TYPES:
            found = (
                f"{mounted.type} file system mounted at {mounted.point}" if mounted else "file system that is unknown"
            )
            raise ShareProblem(
                f"export {export.name!r}: {export.mount} is not a mounted NFS share but on the {found}; mount "
                f"{export.server}:{export.path} there, or set plain_directory = true "
                "(PROV_HOST_NFS_SUBDIR_PLAIN_DIRECTORY=true) if this directory is meant"
            )

    def _read_sentinel(self, private: Dir) -> str | None:
        data = private.read_file(SENTINEL)
        if data is None:
            return None
        sentinel = decode(data, _Sentinel, private.at(SENTINEL))
        if not _ROOT_ID.fullmatch(sentinel.id):
            raise ShareProblem(f"export {self.export.name!r}: {private.at(SENTINEL)} has no usable id")
        return sentinel.id

    def _may_begin(self, root: Dir, private: Dir | None, *, begin: bool) -> None:
        """Whether a share without a sentinel is a new one; raises if anything speaks against it."""
        evidence = self._evidence()
        name, mount = self.export.name, self.export.mount
        recorded = [one for one in evidence if one.root]
        by_hand = f'If it is the right one, write {{"id": "%s"}} into {mount}/{PRIVATE}/{SENTINEL}'
        if recorded:
            raise ShareProblem(
                f"export {name!r}: {mount} has no {PRIVATE}/{SENTINEL}, but volume {recorded[0].pv} was made on a "
                f"share with the id {recorded[0].root}: this share is not mounted, empty, or another one. "
                + by_hand
                % recorded[0].root
            )
        # Look again: another thread may have taken the share into use since.
        if private is not None and private.lstat("owners") is not None and self._read_sentinel(private) is None:
            raise ShareProblem(
                f"export {name!r}: {mount}/{PRIVATE} has records but no {SENTINEL}: somebody removed it. "
                + by_hand % self._new_id()
            )
        if evidence and not any(_is_there(root, one.parts) for one in evidence):
            raise self._nothing_there(root, evidence)
        if not begin:
            raise _NotBegun(f"export {name!r}: {mount} is not in use yet")

    def _write_sentinel(self, private: Dir) -> str:
        sentinel = _Sentinel(self._new_id(), self._now())
        try:
            private.write_file(SENTINEL, encode(sentinel), temporary=f"{SENTINEL}.{sentinel.id}", replace=False)
        except FileExistsError:
            # Another process was quicker; the share has its id.
            found = self._read_sentinel(private)
            if found is None:
                raise
            return found
        logger.info("export %s: took %s into use as root %s", self.export.name, self.export.mount, sentinel.id)
        return sentinel.id

    def _nothing_there(self, root: Dir, evidence: Sequence[Evidence]) -> ShareProblem:
        one = evidence[0]
        return ShareProblem(
            f"export {self.export.name!r}: the cluster has {len(evidence)} volumes here, for example {one.pv}, but "
            f"none of their directories is at {root.path}: this share is not mounted, empty, or another one. If it is "
            f"the right one, make the directory of one of them again, for example {root.at('/'.join(one.parts))}"
        )

    def is_evident(self, share: OpenShare, *, but: str) -> bool:
        """Whether other volumes of the cluster show that a share is the right one.

        Args:
            share: the open share.
            but: a volume that says nothing about itself.

        Returns:
            Whether another volume was made on it, or has its directory or its ownership record on it; this is
            remembered, because the last of them goes some day.
        """
        evidence = [one for one in self._evidence() if one.pv != but]
        return self._is_evident(share.root, share.private, share.id, evidence)

    def _is_evident(self, root: Dir, private: Dir, root_id: str, evidence: Sequence[Evidence]) -> bool:
        if self._evident == root_id:
            return True
        if any(one.root == root_id for one in evidence) or any(
            _is_there(root, one.parts) or _has_record(private, one.pv) for one in evidence if not one.root
        ):
            self._evident = root_id
            return True
        return False

    def _check_known(self, root: Dir, private: Dir, root_id: str) -> None:
        """On first sight of an id: volumes that were all made elsewhere say that this is the wrong share."""
        if root_id == self._proved:
            return
        evidence = self._evidence()
        recorded = [one for one in evidence if one.root]
        if recorded and all(one.root != root_id for one in recorded):
            raise ShareProblem(
                f"export {self.export.name!r}: the share at {root.path} has the id {root_id}, but volume "
                f"{recorded[0].pv} was made on {recorded[0].root}: another share is mounted here"
            )
        if not evidence:
            return  # nothing speaks against it, but nothing speaks for it either: ask again
        if not self._is_evident(root, private, root_id, evidence):
            raise self._nothing_there(root, evidence)
        self._proved = root_id


class _NotBegun(ShareProblem):
    """The share has no sentinel, and nothing speaks against taking it into use."""

    unused = True


def _is_there(root: Dir, parts: tuple[str, ...]) -> bool:
    try:
        with root.walk(parts[:-1]) as parent:
            return parent.is_dir(parts[-1])
    except (OSError, ValueError):
        return False


def _has_record(private: Dir, pv: str) -> bool:
    """Whether the private area knows a volume: as an owner, as one that was released, or by what is in the trash."""
    try:
        with private.walk(("owners",)) as owners:
            if owners.lstat(owner_file(pv)) is not None or Released.noted(private, pv):
                return True
        with private.walk(("trash",), readable=True) as trash:
            return any(name.startswith(f"{stem(pv)}.") for name in trash.names())
    except OSError:
        return False
