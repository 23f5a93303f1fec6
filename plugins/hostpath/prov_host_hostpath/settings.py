"""The settings of hostpath, and what follows from them for the node of this process.

Directories are those of the node this process runs on. All nodes may share one configuration (a DaemonSet has one
ConfigMap): ``nodes`` has what is different on some of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from prov_host import ConfigurationError, parse_bytes
from prov_host.safedir import UnsafeName, normalize_absolute, overlaps, relative_parts

__all__ = ["Directory", "HostpathSettings", "NodeSettings", "Place", "Placement", "parse_duration", "resolve"]

_DURATION = re.compile(r"(?:([0-9]{1,6})d)?(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,6})s)?", re.ASCII)
# A DNS subdomain, which is what the API accepts as the first part of a provisioner name and as a node's name.
_NODE = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_PROVISIONER = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[a-z0-9A-Z]([-a-zA-Z0-9_.]*[a-zA-Z0-9])?", re.ASCII)
_LABEL = re.compile(r"[a-zA-Z0-9]([-a-zA-Z0-9_.]{0,61}[a-zA-Z0-9])?", re.ASCII)


class Directory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A base directory, when its path alone does not say enough. Since 0.1.

    Attributes:
        path: where this process sees it.
        node_path: where the node's kubelet sees it; the same if empty.
        reserve: a quantity of space that volumes may not be promised from.
        budget: a quantity: the most that all volumes in it may ask for together; the file system's size if empty.
    """

    path: str
    node_path: str = ""
    reserve: str = ""
    budget: str = ""


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is different on one node. Since 0.1.

    Attributes:
        directories: instead of the common ones; an empty list means that this node holds no volumes.
        hostname: the value of the node's label ``kubernetes.io/hostname``, where it is not the node's name.
    """

    directories: tuple[str | Directory, ...] | None = None
    hostname: str = ""


class HostpathSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the plugin hostpath. Since 0.1.

    Attributes:
        provisioner: the provisioner name.
        scope: ``single-node``: this process is the only one of its name and answers for every claim.
            ``per-node``: one process on each node (a DaemonSet), each answering only for its own node.
        directories: base directories: absolute paths, or tables with ``path``, ``node_path``, ``reserve``, ``budget``.
        nodes: what is different on some nodes, by node name.
        hostname: the value of this node's label ``kubernetes.io/hostname``; the node's name if empty.
        reserve: a quantity kept free in every directory.
        require_mount: refuse a base directory that is not a mount point, so that a disk that is not mounted is never
            mistaken for an empty one.
        default_policy: what classes that choose nothing do with the data of a deleted claim.
        gone_nodes: ``wait``: a volume of another node is that node's business, for ever. ``forget-after``: if that
            node has not deleted its released volume for ``forget_after``, the volume object is removed without its
            data, and a claim that waited that long for a node is given back to the scheduler.
        forget_after: for example ``7d`` or ``12h``.
    """

    provisioner: str = "prov-host/hostpath"
    scope: Literal["single-node", "per-node"] = "single-node"
    directories: tuple[str | Directory, ...] = ("/var/lib/prov-host/volumes",)
    nodes: Mapping[str, NodeSettings] = msgspec.field(default_factory=dict)
    hostname: str = ""
    reserve: str = ""
    require_mount: bool = False
    default_policy: Literal["delete", "archive", "retain"] = "delete"
    gone_nodes: Literal["wait", "forget-after"] = "wait"
    forget_after: str = "7d"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A base directory of this node, checked. Since 0.1.

    Attributes:
        path: where this process sees it, normalized.
        node_path: where the kubelet sees it, normalized.
        reserve: bytes.
        budget: bytes, None for the file system's size.
        require_mount: see :class:`HostpathSettings`.
    """

    path: str
    node_path: str
    reserve: int = 0
    budget: int | None = None
    require_mount: bool = False


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """All that the settings say about the node of this process. Since 0.1.

    Attributes:
        node: the node's name.
        hostname: the value of its hostname label.
        places: its base directories; the first is preferred among equals.
        forget_after: seconds, or None for never.
    """

    node: str
    hostname: str
    places: tuple[Place, ...]
    forget_after: float | None


def parse_duration(text: str) -> float:
    """Read a duration such as ``7d``, ``12h`` or ``1d12h``.

    Args:
        text: numbers with the units d, h, m, s, in this order.

    Returns:
        Seconds.

    Raises:
        ValueError: anything else, or nothing.

    Callable from any thread. Since 0.1.
    """
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        raise ValueError(f"{text[:40]!r} is not a duration; write it like 7d, 12h or 1d12h")
    days, hours, minutes, seconds = (int(number or 0) for number in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def resolve(settings: HostpathSettings, node: str) -> Placement:
    """Check the settings and pick what counts on this node.

    Args:
        settings: as configured.
        node: this node's name.

    Returns:
        What follows from them.

    Raises:
        ConfigurationError: with every problem found.

    Callable from any thread. Since 0.1.
    """
    problems: list[str] = []
    if not _PROVISIONER.fullmatch(settings.provisioner):
        problems.append(
            f"hostpath: provisioner {settings.provisioner!r} is no provisioner name such as example.com/local"
        )
    if not _NODE.fullmatch(node):
        problems.append(f"hostpath: {node!r} is no node name; set PROV_HOST_NODE_NAME from the field spec.nodeName")
    own = settings.nodes.get(node, NodeSettings())
    hostname = own.hostname or settings.hostname or node
    if not _LABEL.fullmatch(hostname):
        problems.append(
            f"hostpath: {hostname!r} cannot be the value of the label kubernetes.io/hostname; set `hostname` to what "
            f"`kubectl get node {node} --show-labels` shows"
        )
    common = _quantity("reserve", settings.reserve, problems) or 0
    places: list[Place] = []
    for entry in settings.directories if own.directories is None else own.directories:
        given = entry if isinstance(entry, Directory) else Directory(path=entry)
        where = f"directory {given.path}"
        reserve = _quantity(f"reserve of {where}", given.reserve, problems)
        budget = _quantity(f"budget of {where}", given.budget, problems)
        try:
            path = normalize_absolute(given.path)
            node_path = normalize_absolute(given.node_path or given.path)
        except UnsafeName as error:
            problems.append(f"hostpath: directories: {error}")
            continue
        if "/" in (path, node_path):
            problems.append("hostpath: directories: the root of the file system cannot hold volumes; name a directory")
            continue
        problems += [
            f"hostpath: directories: {path} and {other.path} overlap; each needs a place of its own"
            for other in places
            if _overlap(path, other.path) or _overlap(node_path, other.node_path)
        ]
        places.append(
            Place(
                path=path,
                node_path=node_path,
                reserve=common if reserve is None else reserve,
                budget=budget,
                require_mount=settings.require_mount,
            )
        )
    forget_after = None
    try:
        seconds = parse_duration(settings.forget_after)
        forget_after = seconds if settings.gone_nodes == "forget-after" else None
    except ValueError as error:
        problems.append(f"hostpath: forget_after: {error}")
    if problems:
        raise ConfigurationError(*problems)
    return Placement(node=node, hostname=hostname, places=tuple(places), forget_after=forget_after)


def _quantity(what: str, text: str, problems: list[str]) -> int | None:
    if not text:
        return None
    try:
        return parse_bytes(text)
    except ValueError as error:
        problems.append(f"hostpath: {what}: {error}")
        return None


def _overlap(first: str, second: str) -> bool:
    parts = [relative_parts(path, "/") or () for path in (first, second)]
    return overlaps(parts[0], parts[1])
