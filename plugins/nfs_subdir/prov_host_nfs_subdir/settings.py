"""What an administrator tells the plugin: the exports it serves, and how it treats them.

One export needs no list: ``server``, ``path``, ``provisioner`` and ``mount``, or the environment of the Go tool
(``NFS_SERVER``, ``NFS_PATH``, ``PROVISIONER_NAME``, ``NFS_DEFAULT_MODE``, ``NFS_DEFAULT_UID``, ``NFS_DEFAULT_GID``).
Several are listed in the file::

    [nfs_subdir]
    provisioner = ["example.com/nfs"]     # for exports that have no names of their own

    [[nfs_subdir.exports]]
    name = "fast"                          # the class parameter `export` picks one by this name
    server = "10.0.0.1"
    path = "/exports/fast"
    mount = "/mnt/fast"
    historical_paths = ["/old/fast"]       # where volumes made before the export moved say they are
    budget = "2Ti"

:func:`read_exports` turns them into checked :class:`Export` objects, or says everything that is wrong at once.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec

from prov_host import ConfigurationError, parse_bytes
from prov_host.safedir import UnsafeName, normalize_absolute, overlaps, relative_parts
from prov_host_nfs_subdir.values import parse_duration, parse_id, parse_mode

__all__ = ["Export", "ExportSettings", "NfsSubdirSettings", "read_exports", "same_server"]

DEFAULT_MOUNT = "/persistentvolumes"
DEFAULT_MODE = 0o777
_NO_MOUNTS = frozenset({"proc", "sys"})
_EXPORT_NAME = re.compile(r"[a-z0-9]([-a-z0-9_.]{0,61}[a-z0-9])?")
_T = TypeVar("_T")


class ExportSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One export, as listed in the settings. Since 0.1.

    Attributes:
        name: short, lower case; used in the class parameter ``export``, in metrics and messages.
        server: the NFS server, as volumes will name it.
        path: the exported path, as volumes will begin with.
        mount: where this process finds the export.
        provisioners: provisioner names that it serves; the plugin's ``provisioner`` by default.
        historical_paths: earlier values of `path`, which volumes made then still carry.
        server_aliases: other names of the server, which volumes may carry.
        default_mode: octal mode of new directories, 0777 by default.
        default_uid: owner of new directories; by default the process's.
        default_gid: group of new directories; by default the process's.
        budget: refuse new volumes once the sizes of all volumes here would exceed it, for example ``"2Ti"``.
        plain_directory: work also when `mount` is not a mounted NFS export: for tries, for the server itself, for a
            share that is mounted by other means.
    """

    name: str
    server: str = ""
    path: str = ""
    mount: str = ""
    provisioners: tuple[str, ...] = ()
    historical_paths: tuple[str, ...] = ()
    server_aliases: tuple[str, ...] = ()
    default_mode: str = ""
    default_uid: str | int = ""
    default_gid: str | int = ""
    budget: str = ""
    plain_directory: bool | None = None


class NfsSubdirSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The plugin's settings. Since 0.1.

    Attributes:
        mount: where this process finds the export, if there is only one.
        server: its server; by default ``NFS_SERVER``.
        path: its exported path; by default ``NFS_PATH``.
        provisioner: the provisioner names; by default ``PROVISIONER_NAME``.
        historical_paths: as in :class:`ExportSettings`.
        server_aliases: as in :class:`ExportSettings`.
        default_mode: by default ``NFS_DEFAULT_MODE``, else 0777.
        default_uid: by default ``NFS_DEFAULT_UID``.
        default_gid: by default ``NFS_DEFAULT_GID``.
        budget: as in :class:`ExportSettings`.
        plain_directory: as in :class:`ExportSettings`; also for listed exports that do not say.
        exports: several exports.
        capacity_check: ``"request"`` refuses a claim that asks for more than is free on the share, ``"full"`` only
            when nothing is free, ``"off"`` never.
        removal_threads: how many threads remove deleted directories, per export.
        operations: how many operations may run at once, per export; more wait.
        check_timeout: seconds after which the share counts as hung.
        usage_interval: how often the size of volumes is measured, ``"0"`` for never.
        usage_rate: files looked at per second while measuring.
        retention_interval: how often expired archives are looked for.
        retention_confirm: how long one process must have seen that an archive is due before it removes it: a wrong
            wall clock that is set right within that time removes nothing.
    """

    mount: str = DEFAULT_MOUNT
    server: str = ""
    path: str = ""
    provisioner: tuple[str, ...] = ()
    historical_paths: tuple[str, ...] = ()
    server_aliases: tuple[str, ...] = ()
    default_mode: str = ""
    default_uid: str | int = ""
    default_gid: str | int = ""
    budget: str = ""
    plain_directory: bool = False
    exports: tuple[ExportSettings, ...] = ()
    capacity_check: str = "request"
    removal_threads: int = 4
    operations: int = 16
    check_timeout: float = 4.0
    usage_interval: str = "1h"
    usage_rate: int = 2000
    retention_interval: str = "1h"
    retention_confirm: str = "1h"


@dataclass(frozen=True, slots=True)
class Export:
    """One export, checked. Paths are normalized. Since 0.1.

    Attributes:
        name: its name.
        server: as volumes name it.
        servers: all its names, comparable.
        path: the exported path.
        roots: `path` and its earlier values, longest first.
        mount: where this process finds it.
        provisioners: the names it serves.
        mode: of new directories.
        uid: of new directories, -1 for the process's.
        gid: of new directories, -1 for the process's.
        budget: bytes, or None.
        plain_directory: whether `mount` need not be a mounted NFS export.
    """

    name: str
    server: str
    servers: frozenset[str]
    path: str
    roots: tuple[str, ...]
    mount: str
    provisioners: tuple[str, ...]
    mode: int = DEFAULT_MODE
    uid: int = -1
    gid: int = -1
    budget: int | None = None
    plain_directory: bool = False

    def source_path(self, names: Iterable[str]) -> str:
        """What a volume's ``spec.nfs.path`` says for a directory below this export."""
        return "/".join([self.path.rstrip("/"), *names])


def same_server(name: str) -> str:
    """A server's name in a form to compare: names are case-insensitive and may end with a dot or be in brackets."""
    return name.strip().strip("[]").rstrip(".").casefold()


def read_exports(settings: NfsSubdirSettings, environ: Mapping[str, str]) -> tuple[Export, ...]:
    """Check the settings and fill them in from the Go tool's environment.

    Args:
        settings: the settings.
        environ: the environment.

    Returns:
        At least one export.

    Raises:
        ConfigurationError: with every problem.
    """
    problems: list[str] = []
    listed = list(settings.exports)
    go = ("NFS_SERVER", "NFS_PATH", "PROVISIONER_NAME")
    if not listed or settings.server or settings.path or all(environ.get(name) for name in go):
        listed.append(_single(settings, environ, problems))
    exports = tuple(
        export
        for one in listed
        if (
            export := _Reader(
                one, settings, problems, single=one is listed[-1] and len(listed) > len(settings.exports)
            ).read()
        )
    )
    _check_apart(exports, problems)
    _check_general(settings, problems)
    if problems:
        raise ConfigurationError(*problems)
    return exports


def _single(settings: NfsSubdirSettings, environ: Mapping[str, str], problems: list[str]) -> ExportSettings:
    """The export that the plain settings and the Go tool's environment describe."""
    server = settings.server or environ.get("NFS_SERVER", "")
    path = settings.path or environ.get("NFS_PATH", "")
    names = settings.provisioner or tuple(filter(None, [environ.get("PROVISIONER_NAME", "")]))
    for value, variable, option in (
        (server, "NFS_SERVER", "server"),
        (path, "NFS_PATH", "path"),
        (names, "PROVISIONER_NAME", "provisioner"),
    ):
        if not value:
            problems.append(
                f"nfs_subdir: {variable} is not set; set it, or PROV_HOST_NFS_SUBDIR_{option.upper()}, or `{option}` "
                "in the file's table [nfs_subdir]"
            )
    return ExportSettings(
        name="default",
        server=server,
        path=path,
        mount=settings.mount,
        provisioners=names,
        historical_paths=settings.historical_paths,
        server_aliases=settings.server_aliases,
        default_mode=settings.default_mode or environ.get("NFS_DEFAULT_MODE", ""),
        default_uid=environ.get("NFS_DEFAULT_UID", "") if settings.default_uid == "" else settings.default_uid,
        default_gid=environ.get("NFS_DEFAULT_GID", "") if settings.default_gid == "" else settings.default_gid,
        budget=settings.budget,
        plain_directory=settings.plain_directory,
    )


def _check_apart(exports: Sequence[Export], problems: list[str]) -> None:
    """No two exports, and no two roots of one, may be the same place or lie inside each other.

    A volume's source says only a server and a path. If two roots overlapped, it could mean two directories, and one
    export's volumes could reach into, adopt and remove another's.
    """
    for export in exports:
        problems += [
            f"nfs_subdir: export {export.name!r}: {one} and {other}, its path and `historical_paths`, lie inside each "
            f"other, so {max(one, other, key=len)}/x would be two directories; take one of them out"
            for one, other in itertools.combinations(export.roots, 2)
            if _overlap(one, other)
        ]
    for first, second in itertools.combinations(exports, 2):
        names = f"exports {first.name!r} and {second.name!r}"
        if first.name == second.name:
            problems.append(f"nfs_subdir: two exports have the name {first.name!r}; each needs its own")
        if first.mount == second.mount:
            problems.append(f"nfs_subdir: two exports have the mount {first.mount!r}; each needs its own")
        elif _overlap(first.mount, second.mount):
            problems.append(
                f"nfs_subdir: {names}: the mounts {first.mount} and {second.mount} lie inside each other; mount them "
                "side by side"
            )
        if not first.servers & second.servers:
            continue
        problems += [
            f"nfs_subdir: {names}: {one} and {other} on {first.server} are the same place or lie inside each other, "
            "so one would reach the other's volumes; keep one export, and part it with the class's pathPattern"
            for one in first.roots
            for other in second.roots
            if _overlap(one, other)
        ]


def _overlap(first: str, second: str) -> bool:
    return overlaps(relative_parts(first, "/") or (), relative_parts(second, "/") or ())


def _check_general(settings: NfsSubdirSettings, problems: list[str]) -> None:
    for field in ("usage_interval", "retention_interval", "retention_confirm"):
        try:
            parse_duration(getattr(settings, field))
        except ValueError as error:
            problems.append(f"nfs_subdir: `{field}`: {error}")
    for field, low, high in (("removal_threads", 1, 64), ("operations", 1, 256), ("usage_rate", 1, 10**6)):
        if not low <= (value := getattr(settings, field)) <= high:
            problems.append(f"nfs_subdir: `{field}` is {value}; allowed are {low} to {high}")
    if not 0.1 <= settings.check_timeout <= 60:
        problems.append(f"nfs_subdir: `check_timeout` is {settings.check_timeout}; allowed are 0.1 to 60 seconds")
    if settings.capacity_check not in {"request", "full", "off"}:
        problems.append(
            f"nfs_subdir: `capacity_check` is {settings.capacity_check!r}; allowed are 'request', 'full' and 'off'"
        )


class _Reader:
    """Reads one export and collects what is wrong with it."""

    def __init__(self, one: ExportSettings, settings: NfsSubdirSettings, problems: list[str], *, single: bool) -> None:
        self._one = one
        self._settings = settings
        self._problems = problems
        self._single = single

    def read(self) -> Export | None:
        one = self._one
        before = len(self._problems)
        if not _EXPORT_NAME.fullmatch(one.name):
            self._wrong("name", f"{one.name!r} is not a name; use lower case letters, digits and '-'")
        if not self._single:
            for field in ("server", "path", "mount"):
                if not getattr(one, field):
                    self._wrong(field, "is missing")
        for field, server in (("server", one.server), *(("server_aliases", alias) for alias in one.server_aliases)):
            if any(c.isspace() or c == "/" or not c.isprintable() for c in server) or (
                field == "server_aliases" and not same_server(server)
            ):
                self._wrong(field, f"{server!r} is not a host name or address")
        names = one.provisioners or self._settings.provisioner
        if not names and not self._single:
            self._wrong("provisioners", "is missing, and the plugin has no `provisioner` for all exports either")
        path = self._path("path", one.path)
        export = Export(
            name=one.name,
            server=one.server,
            servers=frozenset(same_server(name) for name in (one.server, *one.server_aliases)),
            path=path,
            roots=(path,),
            mount=self._mount(one.mount),
            provisioners=tuple(names),
            mode=self._value("default_mode", parse_mode, DEFAULT_MODE),
            uid=self._value("default_uid", parse_id, -1),
            gid=self._value("default_gid", parse_id, -1),
            budget=self._value("budget", parse_bytes, None),
            plain_directory=self._settings.plain_directory if one.plain_directory is None else one.plain_directory,
        )
        old = {self._path("historical_paths", text) for text in one.historical_paths}
        if len(self._problems) > before or (self._single and not (one.server and one.path and names)):
            return None
        return replace(export, roots=tuple(sorted({path, *old}, key=len, reverse=True)))

    def _path(self, field: str, text: str) -> str:
        if text and not text.isprintable():
            self._wrong(field, f"{text!a} has control characters, or others that cannot be printed, in it")
        elif text:
            try:
                return normalize_absolute(text)
            except UnsafeName as error:
                self._wrong(field, str(error))
        return "/"

    def _mount(self, text: str) -> str:
        mount = self._path("mount", text)
        parts = relative_parts(mount, "/") or ()
        if (
            text
            and text.isprintable()
            and text.startswith("/")
            and (not parts or parts[0] in _NO_MOUNTS or parts == ("dev",))
        ):
            self._wrong("mount", f"{mount} is the system's own; mount the export in a directory made for it")
        return mount

    def _value(self, field: str, parser: Callable[[str], _T], absent: _T) -> _T:
        text = str(getattr(self._one, field))
        if not text:
            return absent
        try:
            return parser(text)
        except ValueError as error:
            self._wrong(field, str(error))
            return absent

    def _wrong(self, field: str, what: str) -> None:
        place = f"`{field}`"
        if self._single:
            go = {"path": "NFS_PATH", "server": "NFS_SERVER"}.get(field, f"NFS_{field.upper()}")
            if field in {"path", "server", "default_mode", "default_uid", "default_gid"}:
                place += f" (or {go})"
        else:
            place = f"export {self._one.name!r}: {place}"
        self._problems.append(f"nfs_subdir: {place} {what}")
