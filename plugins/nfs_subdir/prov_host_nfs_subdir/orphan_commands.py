"""The command ``orphans``: a report, and acting on it.

Everything is looked at before anything is changed, because the report itself may show that it is asked of the wrong
cluster: if most of the volumes that a share has in place are unknown to the cluster, that is more likely than that
they all were lost. Then nothing is archived, unless one says how many are missing and that this is right.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from prov_host import DeleteError, printable
from prov_host_nfs_subdir.exports import ExportAtWork
from prov_host_nfs_subdir.findings import LISTED, NEVER, Finding, Picture
from prov_host_nfs_subdir.mending import adopt, archive
from prov_host_nfs_subdir.options import export_option, friendly, json_option
from prov_host_nfs_subdir.orphans import scan, take_picture, without_export
from prov_host_nfs_subdir.printing import show
from prov_host_nfs_subdir.share import OpenShare, ShareProblem
from prov_host_nfs_subdir.tools import Tools

__all__ = ["orphans_command"]

_Row = dict[str, object]


def orphans_command(tools: Tools) -> click.Command:
    """Make the command.

    Args:
        tools: what it works with.
    """

    @click.command(short_help="Report what does not fit together on nfs_subdir's exports.")
    @click.argument("paths", nargs=-1, metavar="[PATH]...")
    @click.option("--adopt", "adopting", is_flag=True, help="Give live volumes the ownership record they lack.")
    @click.option("--archive", "archiving", is_flag=True, help="Archive directories without a volume.")
    @click.option(
        "--missing",
        type=click.IntRange(1),
        metavar="COUNT",
        help="With --archive: it is right that the cluster lacks so many of the volumes on the share.",
    )
    @export_option
    @click.option("--yes", is_flag=True, help="Do not ask.")
    @json_option
    @friendly
    def orphans(  # noqa: PLR0917
        paths: tuple[str, ...],
        adopting: bool,  # noqa: FBT001
        archiving: bool,  # noqa: FBT001
        missing: int | None,
        export: str | None,
        yes: bool,  # noqa: FBT001
        as_json: bool,  # noqa: FBT001
    ) -> None:
        """Directories without a volume, volumes without a directory, overlaps and leftovers.

        Changes nothing, unless told --adopt or --archive; then only what is listed, or only PATH (relative to the
        root) of it, and after asking. What may be another cluster's, was retained or restored, or is known to nobody
        is only archived when its PATH is given.
        """
        if adopting and archiving:
            raise click.UsageError("--adopt and --archive exclude each other")
        action = "adopt" if adopting else "archive" if archiving else ""
        if missing is not None and not archiving:
            raise click.UsageError("--missing is for --archive")
        click.echo(printable(f"cluster: {tools.cluster()}"), err=True)
        found = _look(tools, export)
        wanted = _chosen(found, paths, action)
        if archiving:
            for work, picture, findings in wanted:
                if work and picture and not all(one.archive == LISTED and paths for one in findings):
                    _refuse_wrong_cluster(tools, work, picture, missing)
        rows = _act(tools, wanted, action, yes=yes, named=bool(paths)) if action else _rows(wanted)
        columns = ("kind", "export", "path", "volume", "claim", "done" if action else "detail")
        nothing = f"Nothing to {action}." if action else "Everything fits together."
        show(rows, columns, as_json=as_json, nothing=nothing)
        if any(str(row.get("done", "")).startswith("failed") for row in rows):
            click.get_current_context().exit(1)

    return orphans


_Found = list[tuple[ExportAtWork | None, Picture | None, list[Finding]]]


def _look(tools: Tools, export: str | None) -> _Found:
    """Scan every export; the pictures' shares are closed by the end of the command."""
    volumes, elsewhere = tools.volumes(), tools.elsewhere()
    found: _Found = [(None, None, without_export(elsewhere))]
    for work in tools.exports(export):
        try:
            share = work.share.open(begin=False)
        except ShareProblem as error:
            if not error.unused:
                raise
            continue
        click.get_current_context().call_on_close(share.close)
        _tell(f"{work.name}: reading ownership records")
        picture, unreadable = take_picture(work, share, volumes, elsewhere)
        findings = scan(picture, progress=lambda text, name=work.name: _tell(f"{name}: {text}"))  # type: ignore[misc]
        found.append((work, picture, unreadable + findings))
    return found


def _tell(text: str) -> None:
    click.echo(printable(f"... {text}"), err=True)


def _chosen(found: _Found, paths: Sequence[str], action: str) -> _Found:
    """What is to be shown or acted on.

    Raises:
        UsageError: a path is none that was found, or cannot be acted on.
    """
    wanted = [path.rstrip("/") for path in paths]
    everything = [finding for _work, _picture, findings in found for finding in findings]
    for path in wanted:
        at = [one for one in everything if one.path == path]
        if not at:
            raise click.UsageError(f"no such finding: {printable(path)!r}; `prov-host orphans` lists them")
        if action and all(one.allows(action) == NEVER for one in at):
            said = "; ".join(f"{one.kind}: {one.detail}" for one in at)
            raise click.UsageError(printable(f"{path} is nothing to {action}: {said}"))
    return [
        (
            work,
            picture,
            [
                one
                for one in findings
                if (not wanted or one.path in wanted) and (not action or one.allows(action) != NEVER)
            ],
        )
        for work, picture, findings in found
    ]


def _refuse_wrong_cluster(tools: Tools, work: ExportAtWork, picture: Picture, expected: int | None) -> None:
    """If most of the volumes on the share are unknown to the cluster, it is the wrong one, or it lost them.

    Raises:
        UsageError: nothing says that this is right.
    """
    missing, count = picture.missing()
    if expected is not None and expected != len(missing):
        raise click.UsageError(
            f"export {work.name!r}: --missing says {expected}, but {len(missing)} of the {count} volumes recorded on "
            "the share are not in the cluster. Nothing was archived"
        )
    if expected is None and len(missing) * 2 > count:
        raise click.UsageError(
            f"export {work.name!r}: {len(missing)} of the {count} volumes recorded on the share are not in the "
            f"cluster {tools.cluster()}, for example {missing[0]}. Is it the right one? If it is, and they are gone, "
            f"say so with --missing {len(missing)}. Nothing was archived"
        )


def _row(work: ExportAtWork | None, finding: Finding) -> _Row:
    return {
        "kind": finding.kind,
        "export": work.name if work else "-",
        "path": finding.path,
        "volume": finding.pv,
        "claim": finding.claim,
        "detail": finding.detail,
        "archive": finding.archive,
        "adopt": finding.adopt,
    }


def _rows(found: _Found) -> list[_Row]:
    return [_row(work, finding) for work, _picture, findings in found for finding in findings]


def _act(tools: Tools, found: _Found, action: str, *, yes: bool, named: bool) -> list[_Row]:
    """Act on each finding, after asking."""
    rows = []
    for work, picture, findings in found:
        for finding in findings:
            row = _row(work, finding)
            if work is None or picture is None:
                continue
            if not named and finding.allows(action) != LISTED:
                row["done"] = f"left alone ({finding.detail}); give its path to {action} it"
            elif not yes and not _ask(f"{action} {finding.path} ({finding.kind}: {finding.detail})?"):
                row["done"] = "left alone"
            else:
                row["done"] = _do(tools, work, picture.share, action, finding)
            rows.append(row)
    return rows


def _ask(question: str) -> bool:
    try:
        return click.confirm(printable(question), err=True)
    except click.Abort:
        raise click.UsageError("nobody answers; give --yes to do it without asking") from None


def _do(tools: Tools, work: ExportAtWork, share: OpenShare, action: str, finding: Finding) -> str:
    try:
        if action == "adopt":
            return adopt(work, share, finding, tools.volumes())
        return archive(work, share, finding)
    except (DeleteError, OSError) as error:
        return f"failed: {error}"
