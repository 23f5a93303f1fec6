"""``prov-host demo``."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["demo"]


@click.command("demo", short_help="See it work on an embedded cluster.")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False), required=False)
@click.option("--keep", is_flag=True, help="Leave it running until Ctrl-C, and show how kubectl reaches it.")
def demo(directory: Path | None, *, keep: bool) -> None:
    """See volumes provisioned, used and archived, in seconds and without a cluster.

    Starts an in-memory cluster on loopback and the host with the plugin nfs_subdir, whose share is a directory below
    DIRECTORY (a new temporary one by default). Nothing outside that directory is touched.
    """
    from prov_host.cli import version
    from prov_host.demo import Demo
    from prov_host.logs import set_up_logging
    from prov_host.output import plugin_output_to_log

    set_up_logging("warning")
    with plugin_output_to_log():
        code = Demo(directory, keep=keep, say=click.echo, version=version()).run()
    raise click.exceptions.Exit(code)
