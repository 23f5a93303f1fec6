"""The commands the plugin adds: ``archives``, ``volumes`` and ``orphans``.

They print a table, or JSON with ``--json`` (one object per line of the table, all in one list). Whatever removes or
moves data only says what it would do, until it is told ``--yes``; where it can ask, it asks.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import click

from prov_host import Volume, format_bytes, printable
from prov_host_nfs_subdir.aging import Clocks, age_of, clocks_of
from prov_host_nfs_subdir.exports import ExportAtWork
from prov_host_nfs_subdir.ledger import capacity_of
from prov_host_nfs_subdir.lifecycle import (
    Archive,
    ArchiveError,
    archives_of,
    find_archive,
    parts_of_target,
    remove_archive,
    restore_to_claim,
    restore_to_path,
    select,
    summary,
)
from prov_host_nfs_subdir.locating import is_ours, parts_in, provisioned_by
from prov_host_nfs_subdir.options import duration, export_option, friendly, json_option, yes_option
from prov_host_nfs_subdir.orphan_commands import orphans_command
from prov_host_nfs_subdir.printing import age, human, show, show_json
from prov_host_nfs_subdir.records import Owner
from prov_host_nfs_subdir.share import OpenShare
from prov_host_nfs_subdir.tools import Tools
from prov_host_nfs_subdir.usage import measure

__all__ = ["add_commands"]


def add_commands(group: click.Group, tools: Tools) -> None:
    """Add the commands to the command line.

    Args:
        group: the host's.
        tools: what they work with.
    """
    group.add_command(_archives(tools))
    group.add_command(_volumes(tools))
    group.add_command(orphans_command(tools))


def _every(tools: Tools, export: str | None) -> list[tuple[Archive, ExportAtWork]]:
    """All archives, and where they are; never the directory of a volume that the configuration does not recognize."""
    elsewhere = tools.elsewhere()
    return [
        (archive, work)
        for work, share in tools.shares(export)
        for archive in archives_of(work, share, tools.volumes())
        if archive.recorded or not elsewhere.perhaps_at((archive.name,))
    ]


def _archives(tools: Tools) -> click.Group:
    @click.group()
    def archives() -> None:
        """Archived volumes of nfs_subdir: list, show, restore, prune."""

    @archives.command("list")
    @export_option
    @json_option
    @friendly
    def list_(export: str | None, as_json: bool) -> None:  # noqa: FBT001 - click's way
        """List all archives, oldest first."""
        rows = [
            {
                **summary(archive),
                "export": work.name,
                "age": age(archive.archived, tools.now()),
                "keep": _keep(archive),
                "volume": archive.record.pv,
            }
            for archive, work in _every(tools, export)
        ]
        show(rows, ("export", "claim", "volume", "age", "keep", "name"), as_json=as_json, nothing="No archives.")

    @archives.command("show", short_help="Show one archive, with its size.")
    @click.argument("name")
    @export_option
    @json_option
    @friendly
    def show_(name: str, export: str | None, as_json: bool) -> None:  # noqa: FBT001
        """Show one archive, with its size.

        NAME is its name, the beginning of it, a volume's name, or NAMESPACE/NAME of a claim.
        """
        archive, work, share = _find(tools, name, export)
        with share.root.child(archive.name) as top:
            usage = measure(top)
        path = work.export.source_path((archive.name,))
        facts = {**summary(archive), "export": work.name, "path": path, "used": usage.used, "files": usage.files}
        if as_json:
            show_json(facts)
            return
        facts.update(
            used=human(usage.used),
            capacity=human(archive.record.capacity) if archive.record.capacity else "unknown",
            retention=_keep(archive),
            recorded="yes" if archive.recorded else "no: another program made it, or its record is lost",
        )
        if archive.record.path:
            facts["was at"] = work.export.source_path(tuple(archive.record.path.split("/")))
        show([{"fact": key, "value": value} for key, value in facts.items()], ("fact", "value"))

    @archives.command()
    @click.argument("name")
    @click.option("--claim", metavar="NAMESPACE/NAME", help="Into the empty directory of this bound claim.")
    @click.option("--to", metavar="PATH", help="To this path in the export, where nothing is yet.")
    @export_option
    @friendly
    def restore(name: str, claim: str | None, to: str | None, export: str | None) -> None:
        """Bring an archive back; the archive itself is gone then.

        With --to, a claim whose class says adoptExisting: "true" and whose pathPattern leads there gets it as volume.
        Files keep their owners and modes.
        """
        if (claim is None) == (to is None):
            raise click.UsageError("say where to: either --claim NAMESPACE/NAME or --to PATH")
        archive, work, share = _find(tools, name, export)
        if to is not None:
            where = restore_to_path(work, share, archive, parts_of_target(work.export, to), tools.volumes())
        else:
            volume = _volume_of(work, tools.volumes(), claim or "")
            where = restore_to_claim(work, share, archive, volume)
        click.echo(printable(f"Restored {archive.name} to {where}."))

    @archives.command(short_help="Remove archives for good.")
    @click.argument("names", nargs=-1, metavar="[NAME]...")
    @click.option(
        "--older-than", metavar="DURATION", callback=duration, help="Only those archived longer ago, like 30d."
    )
    @click.option("--keep-last", type=click.IntRange(0), help="Keep this many of each claim, the newest.")
    @export_option
    @yes_option
    @json_option
    @friendly
    def prune(  # noqa: PLR0917
        names: tuple[str, ...],
        older_than: int | None,
        keep_last: int | None,
        export: str | None,
        yes: bool,  # noqa: FBT001
        as_json: bool,  # noqa: FBT001
    ) -> None:
        """Remove archives for good. Only says which, unless told --yes.

        NAME is the whole name of an archive. Those without a record, which another program made, are only removed
        when they are named.
        """
        if older_than is None and keep_last is None and not names:
            raise click.UsageError("say which: names, --older-than, --keep-last or several of these")
        everything = _every(tools, export)
        _known(names, everything)
        rows: list[dict[str, object]] = []
        for work, share in tools.shares(export):
            here = [archive for archive, where in everything if where.name == work.name]
            clocks = clocks_of(share, tools.now())
            chosen = select(here, tools.now(), older_than=older_than, keep_last=keep_last, names=names, clocks=clocks)
            with tools.emptied(share) as trashed:
                for archive in chosen:
                    if yes:
                        trashed(remove_archive(work, share, archive))
                    rows.append({**summary(archive), "export": work.name, **_counted(archive, clocks), "removed": yes})
        columns = ("export", "claim", "age", "counted_by", "name")
        show(rows, columns, as_json=as_json, nothing="Nothing to remove.")
        if rows and not as_json:
            click.echo(
                "An age is the smaller one of two: since the time in the archive's record, by this machine's clock, "
                "and since the last change of the archive, by the share's."
            )
            click.echo(f"Removed {len(rows)}." if yes else f"Would remove {len(rows)}; do it with --yes.")

    return archives


def _counted(archive: Archive, clocks: Clocks) -> dict[str, object]:
    """How old an archive is, and which time that is counted from."""
    counted = age_of(archive, clocks)
    if counted is None:
        return {"age": "?", "age_seconds": None, "counted_by": "nothing"}
    seconds = int(counted.seconds)
    return {
        "age": age(clocks.here - dt.timedelta(seconds=seconds), clocks.here),
        "age_seconds": seconds,
        "counted_by": counted.by,
    }


def _keep(archive: Archive) -> str:
    """How long an archive is kept, in its largest unit that is not 0."""
    left, words = archive.record.retention, []
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count > 0:
            words.append(f"{count}{unit}")
    return "".join(words) or "for ever"


def _known(names: Sequence[str], everything: Sequence[tuple[Archive, ExportAtWork]]) -> None:
    """Names must be exact and unique: what is removed does not come back."""
    for name in names:
        count = sum(archive.name == name for archive, _work in everything)
        if count != 1:
            what = "there is no archive" if count == 0 else "several exports have an archive"
            raise click.UsageError(f"{what} {printable(name)!r}; `prov-host archives list` shows all")


def _find(tools: Tools, name: str, export: str | None) -> tuple[Archive, ExportAtWork, OpenShare]:
    """The archive, and the share it is on, open."""
    everywhere = _every(tools, export)
    archive = find_archive([archive for archive, _work in everywhere], name)
    work = next(work for found, work in everywhere if found is archive)
    share = work.share.open(begin=False)
    click.get_current_context().call_on_close(share.close)
    return archive, work, share


def _volume_of(work: ExportAtWork, volumes: Sequence[Volume], claim: str) -> Volume:
    if claim.count("/") != 1 or not all(claim.split("/")):
        raise click.UsageError(f"--claim {claim}: write it as NAMESPACE/NAME, like default/data")
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
    @click.argument("what", required=False, type=click.Choice(["list"]), metavar="[list]")
    @click.option("--sizes/--no-sizes", default=True, help="Measure what each takes on the share.")
    @export_option
    @json_option
    @friendly
    def volumes(what: str | None, sizes: bool, export: str | None, as_json: bool) -> None:  # noqa: FBT001
        """List volumes of nfs_subdir, with size, claim, age and path."""
        rows: list[dict[str, object]] = []
        for work, share in tools.shares(export):
            for volume in tools.volumes():
                parts = parts_in(work.export, volume)
                if parts and (is_ours(volume) or provisioned_by(volume) in work.export.provisioners):
                    rows.append(_volume_row(tools, work, share, volume, parts, sizes=sizes))
        rows += [
            {**_of_cluster(tools, one.volume), "export": "-", "path": one.source, "used": "-", "remark": one.remark}
            for one in tools.elsewhere().ours()
        ]
        rows.sort(key=lambda row: (str(row["export"]), str(row["claim"])))
        columns = ["export", "claim", "phase", "requested", "used", "age", "path", "name"]
        columns += ["remark"] * any("remark" in row for row in rows)
        show(rows, columns, as_json=as_json, nothing="No volumes.")

    return volumes


def _of_cluster(tools: Tools, volume: Volume) -> dict[str, object]:
    """What the cluster knows of a volume."""
    return {
        "name": volume.name,
        "claim": volume.claim_key,
        "phase": volume.phase,
        "requested": format_bytes(capacity_of(volume)),
        "policy": volume.policy,
        "age": age(_created(volume), tools.now()),
    }


def _volume_row(
    tools: Tools, work: ExportAtWork, share: OpenShare, volume: Volume, parts: tuple[str, ...], *, sizes: bool
) -> dict[str, object]:
    row = {**_of_cluster(tools, volume), "export": work.name, "path": work.export.source_path(parts), "used": "-"}
    owner = work.owners.read(share.owners, volume.name)
    row["adopted"] = isinstance(owner, Owner) and owner.adopted
    if sizes:
        try:
            with share.root.walk(parts, readable=True) as top:
                usage = measure(top)
            row.update(used=human(usage.used), used_bytes=usage.used, files=usage.files)
        except OSError as error:
            row["used"] = error.strerror or "?"
    return row


def _created(volume: Volume) -> dt.datetime | None:
    try:
        return dt.datetime.fromisoformat(volume.metadata.creation_timestamp or "").astimezone(dt.UTC)
    except ValueError:
        return None
