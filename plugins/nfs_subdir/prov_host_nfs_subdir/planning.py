"""What is to be made for a claim: all that follows from the claim, the class and the settings alone.

Nothing is touched here, so a claim that cannot be served is refused before it leaves a trace.
"""

from __future__ import annotations

from dataclasses import dataclass

from prov_host import Infeasible, ProvisionRequest
from prov_host_nfs_subdir.naming import default_name
from prov_host_nfs_subdir.parameters import Parameters, Permissions, permissions
from prov_host_nfs_subdir.pattern import check_names
from prov_host_nfs_subdir.settings import Export

__all__ = ["Plan", "plan"]

# spec.nfs is mounted as server:path; NFSv3's MOUNT protocol carries 1024 bytes (MNTPATHLEN).
_MAX_SOURCE_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be made, known before anything is touched.

    Attributes:
        request: the host's.
        parameters: the class's.
        parts: the directory below the root.
        permissions: of the new directory.
        size: bytes asked for.
        read_only: whether the source is read-only.
    """

    request: ProvisionRequest
    parameters: Parameters
    parts: tuple[str, ...]
    permissions: Permissions
    size: int
    read_only: bool

    @property
    def pv(self) -> str:
        """The volume's name."""
        return self.request.pv_name

    @property
    def path(self) -> str:
        """The directory, as text."""
        return "/".join(self.parts)


def plan(request: ProvisionRequest, export: Export, parameters: Parameters) -> Plan:
    """Decide everything that follows from the claim, the class and the settings alone.

    Args:
        request: the host's.
        export: where it goes.
        parameters: the class's, read.

    Returns:
        The plan.

    Raises:
        Infeasible: saying what about the claim or the class cannot work.
    """
    claim = request.claim
    read_only = _read_only(request, parameters)
    try:
        size = claim.requested_bytes
    except ValueError as error:
        raise Infeasible(f"claim {claim.key}: its storage request: {error}") from error
    parts: tuple[str, ...] = ()
    if parameters.pattern is not None:
        parts = parameters.pattern.render(claim, request.pv_name, allow_slash=parameters.allow_slash)
    if not parts:
        parts = (default_name(claim, request.pv_name),)
        check_names(parts, f"claim {claim.key}")
    source = export.source_path(parts)
    if len(source.encode()) > _MAX_SOURCE_BYTES:
        raise Infeasible(
            f"claim {claim.key}: the path {source[:60]!r}... is {len(source.encode())} bytes long, more than the "
            f"{_MAX_SOURCE_BYTES} that NFS can mount; shorten the class's pathPattern or the values in it"
        )
    return Plan(request, parameters, parts, permissions(parameters, export, claim), size, read_only)


def _read_only(request: ProvisionRequest, parameters: Parameters) -> bool:
    """What a claim may not ask for at all, and whether its source is read-only."""
    claim = request.claim
    if claim.spec.selector is not None:
        raise Infeasible(f"claim {claim.key} has a selector, which a directory made for it cannot match; remove it")
    source = claim.spec.data_source or claim.spec.data_source_ref
    if source is not None:
        raise Infeasible(
            f"claim {claim.key} wants its content from {source.kind or 'something'} {source.name or ''}: this backend "
            "can only make empty directories; remove dataSource and dataSourceRef, and copy the data in yourself"
        )
    if claim.spec.volume_mode not in {None, "", "Filesystem"}:
        raise Infeasible(f"claim {claim.key} wants volumeMode {claim.spec.volume_mode}; a directory is a Filesystem")
    if claim.access_modes and set(claim.access_modes) == {"ReadOnlyMany"}:
        if not parameters.read_only_many:
            raise Infeasible(
                f"claim {claim.key} asks for ReadOnlyMany only: a new directory is empty, and the volume would be "
                "writable; set the class's parameter readOnlyMany: mount for a read-only one, or ask for another mode"
            )
        return True
    return False
