"""What commands print: tables for people, JSON for programs, and nothing that a terminal would obey.

Names come from a share, a claim or a record, and may hold anything: terminal escapes, line breaks, bytes that are no
text in any encoding. Tables show them as :func:`prov_host.printable` does; JSON escapes them, so that they can be told
apart.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence

import click

from prov_host import printable

__all__ = ["age", "human", "show", "show_json"]

_UNITS = ("", "Ki", "Mi", "Gi", "Ti")


def show(
    rows: Sequence[Mapping[str, object]], columns: Sequence[str], *, as_json: bool = False, nothing: str = ""
) -> None:
    """Print rows as a table, or as JSON with everything that is in them.

    Args:
        rows: what to print.
        columns: the table's, in order.
        as_json: JSON instead.
        nothing: what to say instead of an empty table.
    """
    if as_json:
        show_json(list(rows))
        return
    if not rows:
        click.echo(nothing)
        return
    texts = [[printable(str(row.get(column, ""))) for column in columns] for row in rows]
    heads = [column.upper().replace("_", " ") for column in columns]
    widths = [max(len(line[i]) for line in [heads, *texts]) for i in range(len(columns))]
    for line in [heads, *texts]:
        click.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def show_json(value: object) -> None:
    """Print JSON; bytes that are no text become escapes of lone surrogates, as Python's own decoder reads them."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    click.echo(text.encode("utf-8", "backslashreplace").decode())


def age(moment: dt.datetime | None, now: dt.datetime) -> str:
    """``3d``, ``5h``: how long ago."""
    if moment is None:
        return "?"
    seconds = max((now - moment).total_seconds(), 0)
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{int(seconds // length)}{unit}"
    return f"{int(seconds)}s"


def human(size: int) -> str:
    """Bytes in three digits: ``1.5Gi``."""
    value = float(size)
    for unit in _UNITS:
        if value < 1024:
            return f"{value:.3g}{unit}"
        value /= 1024
    return f"{value:.4g}Pi"
