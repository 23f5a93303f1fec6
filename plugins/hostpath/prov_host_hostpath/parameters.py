"""What a storage class and a claim may ask of hostpath; everything else is refused, by name and value."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

import msgspec

from prov_host import Claim, Infeasible, ProvisionRequest
from prov_host.safedir import UnsafeName, check_new_name, normalize_absolute

__all__ = ["Wanted", "directory_name", "read_request"]

# Read by the host, for every backend.
_OF_THE_HOST = frozenset({"onDelete", "archiveOnDelete"})
_KNOWN = ("source", "directory", "mode", "uid", "gid", "shared")
_SOURCES = ("local", "hostPath")
_ONE_NODE = frozenset({"ReadWriteOnce", "ReadWriteOncePod"})
_MANY_NODES = frozenset({"ReadWriteMany", "ReadOnlyMany"})
_MAX_ID = 65535


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A request in hostpath's own terms. Since 0.1.

    Attributes:
        size: bytes.
        source: ``local`` or ``hostPath``.
        directory: the base directory to use, as the node sees it, or "" for any.
        mode: permission bits of the volume's directory.
        uid: its owner, -1 for the process's.
        gid: its group, -1 for the process's.
    """

    size: int
    source: str = "local"
    directory: str = ""
    mode: int = 0o777
    uid: int = -1
    gid: int = -1


def read_request(request: ProvisionRequest) -> Wanted:
    """Read the class's parameters and the claim.

    Args:
        request: from the host.

    Returns:
        What is wanted.

    Raises:
        Infeasible: naming the parameter or field, its value, and what is allowed.

    Callable from any thread. Since 0.1.
    """
    parameters = request.parameters
    for key in parameters:
        if key not in _KNOWN and key not in _OF_THE_HOST and "/" not in key:
            near = difflib.get_close_matches(key, (*_KNOWN, *_OF_THE_HOST), n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(_KNOWN)}"
            raise Infeasible(f"the class parameter {_short(key)} is unknown{hint}")
    shared = _one_of(parameters, "shared", ("false", "true")) == "true"
    _check_claim(request.claim, shared=shared)
    try:
        size = request.claim.requested_bytes
    except ValueError as error:
        raise Infeasible(f"the storage request of {request.claim.key}: {error}") from error
    directory = parameters.get("directory", "")
    if directory:
        try:
            directory = normalize_absolute(directory)
        except UnsafeName as error:
            raise Infeasible(f"the class parameter directory: {error}") from error
    return Wanted(
        size=size,
        source=_one_of(parameters, "source", _SOURCES),
        directory=directory,
        mode=_number(parameters, "mode", base=8, default=0o777, highest=0o777),
        uid=_number(parameters, "uid", base=10, default=-1, highest=_MAX_ID),
        gid=_number(parameters, "gid", base=10, default=-1, highest=_MAX_ID),
    )


def directory_name(request: ProvisionRequest) -> str:
    """The name of the volume's directory: ``<namespace>-<claim>-<volume>``, or the volume's name if that is too long.

    Args:
        request: from the host.

    Returns:
        A name that can be made safely, and that no other volume has: the volume's name is in it.

    Raises:
        Infeasible: not even the volume's name can be used.

    Callable from any thread. Since 0.1.
    """
    claim = request.claim
    for name in (f"{claim.namespace}-{claim.name}-{request.pv_name}", request.pv_name):
        try:
            check_new_name(name)
        except UnsafeName:
            continue
        if not name.startswith("."):
            return name
    raise Infeasible(f"the volume's name {_short(request.pv_name)} cannot be the name of a directory")


def _check_claim(claim: Claim, *, shared: bool) -> None:
    if claim.spec.selector:
        raise Infeasible(f"{claim.key} has a selector; volumes that are made for a claim cannot be selected by label")
    if claim.spec.data_source or claim.spec.data_source_ref:
        raise Infeasible(f"{claim.key} has a data source; hostpath makes empty volumes only")
    for mode in claim.access_modes:
        if mode in _MANY_NODES and not shared:
            raise Infeasible(
                f"{claim.key} asks for {mode}, but pods on other nodes cannot reach a volume on this one; ask for "
                'ReadWriteOnce, or set the class parameter shared: "true" if all its pods run on one node'
            )
        if mode not in _ONE_NODE | _MANY_NODES:
            raise Infeasible(f"{claim.key} asks for the access mode {_short(mode)}, which hostpath does not know")


def _one_of(parameters: Mapping[str, str], key: str, allowed: tuple[str, ...]) -> str:
    """The value of a parameter; the first that is allowed if it is not given."""
    value = parameters.get(key, allowed[0])
    if value not in allowed:
        raise Infeasible(f"the class parameter {key} is {_short(value)}; allowed are {' and '.join(allowed)}")
    return value


def _number(parameters: Mapping[str, str], key: str, *, base: int, default: int, highest: int) -> int:
    text = parameters.get(key)
    if text is None:
        return default
    digits = "01234567" if base == 8 else "0123456789"
    if not text or len(text) > 6 or set(text) - set(digits) or int(text, base) > highest:
        top = f"{highest:o}" if base == 8 else str(highest)
        kind = "octal digits" if base == 8 else "a number"
        raise Infeasible(f"the class parameter {key} is {_short(text)}; write {kind} from 0 to {top}")
    return int(text, base)


def _short(text: str) -> str:
    return ascii(text if len(text) <= 80 else text[:77] + "...")
