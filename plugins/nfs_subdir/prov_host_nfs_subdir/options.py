"""Options that several commands share, and how their failures are said."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import click

from prov_host import DeleteError, printable
from prov_host_nfs_subdir.lifecycle import ArchiveError
from prov_host_nfs_subdir.share import ShareProblem
from prov_host_nfs_subdir.values import parse_duration

__all__ = ["duration", "export_option", "friendly", "json_option", "yes_option"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

export_option = click.option("--export", metavar="NAME", help="Only this export.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
yes_option = click.option("--yes", is_flag=True, help="Do it; without this, only say what would be done.")


def duration(_context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """``30d`` and so on, in seconds."""
    try:
        return None if value is None else parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from error


def friendly(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Say what went wrong in words, and leave with exit code 1."""

    @wraps(function)
    def wrapper(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except (ArchiveError, ShareProblem, DeleteError) as error:
            raise click.ClickException("\n".join(printable(line) for line in str(error).split("\n"))) from error
        except OSError as error:
            raise click.ClickException(
                printable(f"{error.filename or 'the share'}: {error.strerror or error}")
            ) from error

    return wrapper
