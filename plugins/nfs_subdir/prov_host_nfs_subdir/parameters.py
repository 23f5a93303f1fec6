"""The parameters of a StorageClass, typed: every mistake is found when the first claim uses the class.

The generic ones (``onDelete``, ``archiveOnDelete``) are the host's. Ours:

====================  ==================================================================================
``pathPattern``       where the directory is (:mod:`prov_host_nfs_subdir.pattern`)
``allowSlashInValues``  whether labels and annotations in it may hold slashes
``adoptExisting``     whether an existing directory may become a volume, and volumes may share one
``readOnlyMany``      ``mount``: claims with only ReadOnlyMany get a read-only source; else they are refused
``mode uid gid``      of the new directory
``allowOverride``     which of these a claim may choose itself, with annotations ``prov-host/mode`` and so on
``uidRange gidRange``  from which numbers, like ``1000-1999``
``modeMask``          which permission bits at most, 0777 by default
``archiveRetention``  how long archives are kept, like ``30d``; for ever by default
``export``            which of several exports
====================  ==================================================================================

PVC authors are not administrators: what the class does not allow, a claim does not get.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from prov_host import Claim, Infeasible
from prov_host_nfs_subdir.pattern import Pattern, parse
from prov_host_nfs_subdir.settings import Export
from prov_host_nfs_subdir.values import parse_duration, parse_flag, parse_id, parse_mode, parse_range

__all__ = ["Parameters", "Permissions", "permissions", "read_parameters"]

_KNOWN = (
    "adoptExisting",
    "allowOverride",
    "allowSlashInValues",
    "archiveOnDelete",
    "archiveRetention",
    "export",
    "gid",
    "gidRange",
    "mode",
    "modeMask",
    "onDelete",
    "pathPattern",
    "readOnlyMany",
    "uid",
    "uidRange",
)
_OVERRIDABLE = ("mode", "uid", "gid")
_ANNOTATION = "prov-host/"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Permissions:
    """Mode, owner and group of a new directory; -1 leaves the owner or group as the process has it."""

    mode: int
    uid: int = -1
    gid: int = -1


@dataclass(frozen=True, slots=True)
class Parameters:
    """A class's parameters. Immutable; for any thread. Since 0.1.

    Attributes:
        export: the export's name, or "".
        pattern: where the directory is, or None for the default name.
        allow_slash: whether values of labels and annotations may hold slashes.
        adopt: whether existing directories may be used, and shared.
        read_only_many: whether claims with only ReadOnlyMany are served.
        retention: seconds archives are kept, or None.
        mode: permission bits, or None for the export's.
        uid: owner, or None for the export's.
        gid: group, or None for the export's.
        allow_override: what a claim may choose.
        uid_range: from which numbers, both included.
        gid_range: from which numbers, both included.
        mode_mask: which bits at most.
        unknown: names of parameters that nobody knows.
    """

    export: str = ""
    pattern: Pattern | None = None
    allow_slash: bool = False
    adopt: bool = False
    read_only_many: bool = False
    retention: int | None = None
    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    allow_override: frozenset[str] = frozenset()
    uid_range: tuple[int, int] = (0, -1)
    gid_range: tuple[int, int] = (0, -1)
    mode_mask: int = 0o777
    unknown: tuple[str, ...] = ()


def read_parameters(parameters: Mapping[str, str]) -> Parameters:
    """Read and check a class's parameters.

    Args:
        parameters: as the class has them.

    Returns:
        Typed parameters.

    Raises:
        Infeasible: naming each wrong parameter, its value and what is allowed.

    Callable from any thread. Since 0.1.
    """
    problems: list[str] = []

    def value(name: str, parser: Callable[[str], _T], absent: _T) -> _T:
        if name not in parameters:
            return absent
        try:
            return parser(parameters[name])
        except ValueError as error:
            problems.append(f"parameter {name}: {error}")
        except Infeasible as error:
            problems.append(str(error))
        return absent

    unknown = []
    for name in parameters:
        if name in _KNOWN or "/" in name:
            continue
        near = [known for known in _KNOWN if known.casefold() == name.casefold()] or difflib.get_close_matches(
            name, _KNOWN, 1, 0.8
        )
        if near:
            problems.append(f"parameter {name} is unknown; did you mean {near[0]}?")
        else:
            unknown.append(name)
    nothing: frozenset[str] = frozenset()
    allow = value("allowOverride", _parse_overrides, nothing)
    problems += [
        f"parameter allowOverride names {name}: say from which numbers with {name}Range, like 1000-1999"
        for name in sorted(allow & {"uid", "gid"})
        if f"{name}Range" not in parameters
    ]
    result = Parameters(
        export=parameters.get("export", ""),
        pattern=value("pathPattern", parse, None),
        allow_slash=value("allowSlashInValues", parse_flag, False),
        adopt=value("adoptExisting", parse_flag, False),
        read_only_many=value("readOnlyMany", _parse_read_only_many, False),
        retention=value("archiveRetention", _parse_retention, None),
        mode=value("mode", parse_mode, None),
        uid=value("uid", parse_id, None),
        gid=value("gid", parse_id, None),
        allow_override=allow,
        uid_range=value("uidRange", parse_range, (0, -1)),
        gid_range=value("gidRange", parse_range, (0, -1)),
        mode_mask=value("modeMask", parse_mode, 0o777),
        unknown=tuple(unknown),
    )
    if problems:
        raise Infeasible("; ".join(problems))
    return result


def _parse_overrides(text: str) -> frozenset[str]:
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    if not names <= set(_OVERRIDABLE):
        raise ValueError(f"{text!r} is not allowed; it is a list of {', '.join(_OVERRIDABLE)}, like 'uid,gid'")
    return names


def _parse_read_only_many(text: str) -> bool:
    if text not in {"mount", "refuse"}:
        raise ValueError(
            f"{text!r} is not allowed; write 'mount' to serve claims with only ReadOnlyMany read-only, or 'refuse'"
        )
    return text == "mount"


def _parse_retention(text: str) -> int | None:
    seconds = parse_duration(text)
    if seconds <= 0:
        raise ValueError(f"{text!r} would keep no archive at all; for that use onDelete: delete")
    return seconds


def permissions(parameters: Parameters, export: Export, claim: Claim) -> Permissions:
    """Who owns the new directory, and what may be done in it.

    Args:
        parameters: the class's.
        export: gives what the class does not say.
        claim: may choose what the class allows, in the ranges it allows.

    Returns:
        Mode, owner and group.

    Raises:
        Infeasible: the claim asks for what is not allowed, or for nonsense.
    """
    mode = export.mode if parameters.mode is None else parameters.mode
    uid = export.uid if parameters.uid is None else parameters.uid
    gid = export.gid if parameters.gid is None else parameters.gid
    asked: dict[str, int] = {}
    for name in _OVERRIDABLE:
        text = claim.annotations.get(_ANNOTATION + name)
        if text is None:
            continue
        where = f"claim {claim.key}: annotation {_ANNOTATION}{name}"
        if name not in parameters.allow_override:
            raise Infeasible(f"{where}: this class does not let claims choose their {name}; remove the annotation")
        try:
            asked[name] = parse_mode(text) if name == "mode" else parse_id(text)
        except ValueError as error:
            raise Infeasible(f"{where}: {error}") from error
        _check_range(parameters, where, name, asked[name])
    return Permissions(asked.get("mode", mode), asked.get("uid", uid), asked.get("gid", gid))


def _check_range(parameters: Parameters, where: str, name: str, number: int) -> None:
    if name == "mode":
        if number & ~parameters.mode_mask:
            raise Infeasible(
                f"{where}: {number:04o} has bits that the class does not allow; at most {parameters.mode_mask:04o}"
            )
        return
    low, high = parameters.uid_range if name == "uid" else parameters.gid_range
    if not low <= number <= high:
        raise Infeasible(f"{where}: {number} is not in the range {low}-{high} that the class allows")
