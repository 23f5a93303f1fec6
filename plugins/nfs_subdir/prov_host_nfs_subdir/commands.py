"""The commands the plugin adds: ``archives``, ``volumes`` and ``orphans``.

They print a table, or JSON with ``--json`` (one object per line of the table, all in one list). Whatever removes or
moves data only says what it would do, until it is told ``--yes``; where it can ask, it asks.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Sequence
from functools import wraps
from typing import ParamSpec, TypeVar

import click

from prov_host import DeleteError, Volume, format_bytes
from prov_host_nfs_subdir import orphans as scanning
from prov_host_nfs_subdir.capacity import capacity_of
from prov_host_nfs_subdir.exports import ExportAtWork
from prov_host_nfs_subdir.lifecycle import (
    Archive,
    ArchiveError,
    archives_of,
    find_archive,
    remove_archive,
    restore_to_claim,
    restore_to_path,
    select,
    summary,
)
from prov_host_nfs_subdir.locating import is_ours, parts_in, provisioned_by
from prov_host_nfs_subdir.records import Owner
from prov_host_nfs_subdir.share import OpenShare, ShareProblem
from prov_host_nfs_subdir.tools import Tools
from prov_host_nfs_subdir.usage import measure
from prov_host_nfs_subdir.values import parse_duration

__all__ = ["add_commands"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _duration(_context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """``30d`` and so on, in seconds."""
    try:
        return None if value is None else parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from error


_export = click.option("--export", metavar="NAME", help="Only this export.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
_yes = click.option("--yes", is_flag=True, help="Do it; without this, only say what would be done.")


def _friendly(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Say what went wrong in one line."""

    @wraps(function)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except (ArchiveError, ShareProblem, DeleteError) as error:
            raise click.ClickException(str(error)) from error
        except OSError as error:
            raise click.ClickException(f"{error.filename or 'the share'}: {error.strerror or error}") from error

    return wrapper


def _show(rows: Sequence[dict[str, object]], columns: Sequence[str], *, as_json: bool, nothing: str) -> None:
    """Print rows as a table, or as JSON with everything that is in them."""
    if as_json:
        click.echo(json.dumps(list(rows), indent=2, ensure_ascii=False))
        return
    if not rows:
        click.echo(nothing)
        return
    # What comes from a share or a claim may hold terminal escapes.
    texts = [[_plain(str(row.get(column, ""))) for column in columns] for row in rows]
    heads = [column.upper().replace("_", " ") for column in columns]
    widths = [max(len(line[i]) for line in [heads, *texts]) for i in range(len(columns))]
    for line in [heads, *texts]:
        click.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def _plain(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)


def _age(moment: dt.datetime | None, now: dt.datetime) -> str:
    """``3d``, ``5h``: how long ago."""
    if moment is None:
        return "?"
    seconds = max((now - moment).total_seconds(), 0)
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{int(seconds // length)}{unit}"
    return f"{int(seconds)}s"


def add_commands(group: click.Group, tools: Tools) -> None:
    """Add the commands to the command line.

    Args:
        group: the host's.
        tools: what they work with.
    """
    group.add_command(_archives(tools))
    group.add_command(_volumes(tools))
    group.add_command(_orphans(tools))


def _archives(tools: Tools) -> click.Group:
    @click.group()
    def archives() -> None:
        """Archived volumes of nfs_subdir: list, show, restore, prune."""

    def every(export: str | None) -> list[tuple[ExportAtWork, Archive]]:
        return [
            (work, archive)
            for work, share in tools.shares(export)
            for archive in archives_of(work, share, tools.volumes())
        ]

    @archives.command("list")
    @_export
    @_json
    @_friendly
    def list_(export: str | None, as_json: bool) -> None:  # noqa: FBT001 - click's way
        """List all archives, oldest first."""
        rows = [
            {
                **summary(archive),
                "export": work.name,
                "age": _age(archive.archived, tools.now()),
                "keep": f"{archive.record.retention // 86400}d" if archive.record.retention else "for ever",
                "volume": archive.record.pv,
            }
            for work, archive in every(export)
        ]
        _show(rows, ("export", "claim", "volume", "age", "keep", "name"), as_json=as_json, nothing="No archives.")

    @archives.command()
    @click.argument("name")
    @_export
    @_json
    @_friendly
    def show(name: str, export: str | None, as_json: bool) -> None:  # noqa: FBT001
        """Show one archive, with its size; NAME may be a beginning, a volume, or namespace/claim."""
        archive, work, share = _find(tools, name, export)
        with share.root.child(archive.name) as top:
            usage = measure(top)
        path = work.export.source_path((archive.name,))
        facts = {**summary(archive), "export": work.name, "path": path, "used": usage.used, "files": usage.files}
        rows = [{"fact": key, "value": value} for key, value in facts.items()]
        if as_json:
            click.echo(json.dumps(facts, indent=2, ensure_ascii=False))
        else:
            _show(rows, ("fact", "value"), as_json=False, nothing="")

    @archives.command()
    @click.argument("name")
    @click.option("--claim", metavar="NAMESPACE/NAME", help="Into the empty directory of this bound claim.")
    @click.option("--to", metavar="PATH", help="To this path below the export's root, where nothing is.")
    @_export
    @_friendly
    def restore(name: str, claim: str | None, to: str | None, export: str | None) -> None:
        """Bring an archive back; the archive itself is gone then.

        With --to, a claim whose class says adoptExisting: "true" and whose pathPattern leads there gets it as volume.
        """
        if (claim is None) == (to is None):
            raise click.UsageError("say where to: either --claim NAMESPACE/NAME or --to PATH")
        archive, work, share = _find(tools, name, export)
        if to is not None:
            parts = tuple(part for part in to.split("/") if part)
            if not parts:
                raise click.UsageError("--to: the root itself cannot be restored to; give a path below it")
            where = restore_to_path(work, share, archive, parts, tools.volumes())
        else:
            volume = _volume_of(work, tools.volumes(), claim or "")
            where = restore_to_claim(work, share, archive, volume)
        click.echo(f"Restored {archive.name} to {where}.")

    @archives.command()
    @click.option(
        "--older-than", metavar="DURATION", callback=_duration, help="Only those archived longer ago, like 30d."
    )
    @click.option("--keep-last", type=click.IntRange(0), help="Keep this many of each claim, the newest.")
    @click.option("--unrecorded", is_flag=True, help="Also those without a record, which another program made.")
    @_export
    @_yes
    @_json
    @_friendly
    def prune(  # noqa: PLR0917
        older_than: int | None,
        keep_last: int | None,
        unrecorded: bool,  # noqa: FBT001
        export: str | None,
        yes: bool,  # noqa: FBT001
        as_json: bool,  # noqa: FBT001
    ) -> None:
        """Remove archives for good. Only says which, unless told --yes."""
        if older_than is None and keep_last is None:
            raise click.UsageError("say which: --older-than, --keep-last or both")
        rows: list[dict[str, object]] = []
        for work, share in tools.shares(export):
            archives = archives_of(work, share, tools.volumes())
            chosen = select(archives, tools.now(), older_than=older_than, keep_last=keep_last, unrecorded=unrecorded)
            with tools.emptied(share) as trashed:
                for archive in chosen:
                    if yes:
                        trashed(remove_archive(work, share, archive))
                    age = _age(archive.archived, tools.now())
                    rows.append({**summary(archive), "export": work.name, "age": age, "removed": yes})
        _show(rows, ("export", "claim", "age", "name"), as_json=as_json, nothing="Nothing to remove.")
        if rows and not as_json:
            click.echo(f"Removed {len(rows)}." if yes else f"Would remove {len(rows)}; do it with --yes.")

    return archives


def _find(tools: Tools, name: str, export: str | None) -> tuple[Archive, ExportAtWork, OpenShare]:
    """The archive, and the share it is on, open."""
    everywhere = [
        (archive, work) for work, share in tools.shares(export) for archive in archives_of(work, share, tools.volumes())
    ]
    archive = find_archive([archive for archive, _work in everywhere], name)
    work = next(work for found, work in everywhere if found is archive)
    share = work.share.open(begin=False)
    click.get_current_context().call_on_close(share.close)
    return archive, work, share


def _volume_of(work: ExportAtWork, volumes: Sequence[Volume], claim: str) -> Volume:
    found = [
        volume
        for volume in volumes
        if volume.claim_key == claim and volume.phase == "Bound" and parts_in(work.export, volume)
    ]
    if len(found) != 1:
        raise ArchiveError(f"claim {claim} has no bound volume on export {work.name!r}")
    return found[0]


def _volumes(tools: Tools) -> click.Command:
    @click.command()
    @click.option("--sizes/--no-sizes", default=True, help="Measure what each takes on the share.")
    @_export
    @_json
    @_friendly
    def volumes(sizes: bool, export: str | None, as_json: bool) -> None:  # noqa: FBT001
        """Volumes of nfs_subdir, with size, claim, age and path."""
        rows: list[dict[str, object]] = []
        for work, share in tools.shares(export):
            for volume in tools.volumes():
                parts = parts_in(work.export, volume)
                if parts and (is_ours(volume) or provisioned_by(volume) in work.export.provisioners):
                    rows.append(_volume_row(tools, work, share, volume, parts, sizes=sizes))
        rows.sort(key=lambda row: (str(row["export"]), str(row["claim"])))
        columns = ("export", "claim", "phase", "requested", "used", "age", "path", "name")
        _show(rows, columns, as_json=as_json, nothing="No volumes.")

    return volumes


def _volume_row(
    tools: Tools, work: ExportAtWork, share: OpenShare, volume: Volume, parts: tuple[str, ...], *, sizes: bool
) -> dict[str, object]:
    row: dict[str, object] = {
        "name": volume.name,
        "export": work.name,
        "claim": volume.claim_key,
        "phase": volume.phase,
        "path": work.export.source_path(parts),
        "requested": format_bytes(capacity_of(volume)),
        "policy": volume.policy,
        "age": _age(_created(volume), tools.now()),
    }
    owner = work.owners.read(share.owners, volume.name)
    row["adopted"] = isinstance(owner, Owner) and owner.adopted
    row["used"] = "-"
    if sizes:
        try:
            with share.root.walk(parts, readable=True) as top:
                usage = measure(top)
            row.update(used=_rounded(usage.used), used_bytes=usage.used, files=usage.files)
        except OSError as error:
            row["used"] = error.strerror or "?"
    return row


def _created(volume: Volume) -> dt.datetime | None:
    try:
        return dt.datetime.fromisoformat(volume.metadata.creation_timestamp or "").astimezone(dt.UTC)
    except ValueError:
        return None


def _rounded(size: int) -> str:
    value = float(size)
    for unit in ("", "Ki", "Mi", "Gi", "Ti"):
        if value < 1024:
            return f"{value:.3g}{unit}"
        value /= 1024
    return f"{value:.4g}Pi"


def _orphans(tools: Tools) -> click.Command:
    @click.command()
    @click.argument("paths", nargs=-1)
    @click.option("--adopt", "action", flag_value="adopt", help="Give live volumes the ownership record they lack.")
    @click.option("--archive", "action", flag_value="archive", help="Archive directories without a volume.")
    @_export
    @click.option("--yes", is_flag=True, help="Do not ask.")
    @_json
    @_friendly
    def orphans(
        paths: tuple[str, ...],
        action: str | None,
        export: str | None,
        yes: bool,  # noqa: FBT001
        as_json: bool,  # noqa: FBT001
    ) -> None:
        """Directories without a volume, volumes without a directory, overlaps and leftovers.

        Changes nothing, unless told --adopt or --archive; then only what is listed, or only PATHS (relative to the
        root) of it, and after asking.
        """
        volumes = tools.volumes()
        rows: list[dict[str, object]] = []
        for work, share in tools.shares(export):
            findings = scanning.scan(work, share, volumes, progress=lambda text: click.echo(f"... {text}", err=True))
            findings = [one for one in findings if not paths or one.path in paths]
            if action is not None:
                kinds = scanning.ADOPTABLE if action == "adopt" else scanning.ARCHIVABLE
                findings = [one for one in findings if one.kind in kinds]
            for finding in findings:
                row: dict[str, object] = {
                    "kind": finding.kind,
                    "export": work.name,
                    "path": finding.path,
                    "volume": finding.pv,
                    "claim": finding.claim,
                    "detail": finding.detail,
                }
                if action is not None:
                    row["done"] = _act(work, share, action, finding, volumes, yes=yes)
                rows.append(row)
        columns = ("kind", "export", "path", "volume", "claim", "done" if action else "detail")
        _show(rows, columns, as_json=as_json, nothing="Everything fits together.")

    return orphans


def _act(
    work: ExportAtWork,
    share: OpenShare,
    action: str,
    finding: scanning.Finding,
    volumes: Sequence[Volume],
    *,
    yes: bool,
) -> str:
    if not yes and not click.confirm(f"{action} {finding.path} ({finding.kind}: {finding.detail})?", err=True):
        return "left alone"
    try:
        if action == "adopt":
            return scanning.adopt(work, share, finding, volumes)
        return scanning.archive(work, share, finding)
    except (DeleteError, OSError) as error:
        return f"failed: {error}"
