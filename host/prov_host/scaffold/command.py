"""The command ``prov-host new-plugin``."""

from __future__ import annotations

from pathlib import Path

import click

from prov_host.errors import ConfigurationError

__all__ = ["new_plugin"]


@click.command("new-plugin", short_help="Write the package of a new plugin.")
@click.argument("name")
@click.argument("directory", type=click.Path(path_type=Path), required=False)
def new_plugin(name: str, directory: Path | None) -> None:
    """Write a complete plugin package whose tests pass as generated.

    NAME is the plugin's name, as in --plugin, for example zfs-pool. DIRECTORY is where to write it, by default
    prov-host-NAME; it must be new or empty.
    """
    from prov_host.scaffold import names_for, write_plugin  # noqa: PLC0415 - keeps --help fast

    try:
        names = names_for(name)
        target = directory or Path(names["distribution"])
        written = write_plugin(name, target)
    except ConfigurationError as error:
        click.echo(f"prov-host new-plugin: {error}", err=True)
        raise click.exceptions.Exit(2) from error
    for path in written:
        click.echo(f"wrote {path}")
    click.echo(
        f"\nNext:\n  cd {target}\n  python -m pip install -e '.[test]'\n  python -m pytest\n"
        f"  prov-host plugins\n\nThen make it yours: src/{names['package']}/__init__.py"
    )
