"""``prov-host plugins``, and the commands that plugins bring."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import textwrap
import threading
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from prov_host.cli import BUILT_IN, Invocation
from prov_host.errors import ConfigurationError
from prov_host.kube.api import CLAIMS, CLASSES, VOLUMES, Resource
from prov_host.model import Claim, StorageClass, Volume
from prov_host.output import plugin_output_to_log, words_of
from prov_host.plugins import ALL, Plugin, configure, discover, load, settings_type
from prov_host.pool import call_limited
from prov_host.threads import count_by_plugin

if TYPE_CHECKING:
    from prov_host.host_options import HostSettings
    from prov_host.kube.session import SdkTransport

__all__ = ["PluginCommands", "commands_of_plugins", "plugins"]

_WIDTH = 120
"""Columns that a table may have."""
_CELL = 22
"""Columns of a cell that names something; longer names go on in the next line."""


class PluginCommands(msgspec.Struct, frozen=True):
    """Commands that plugins bring. Since 0.1.

    Attributes:
        commands: by name.
        owners: the plugin that brings each.
        problems: plugins that could not be asked, and why.
    """

    commands: dict[str, click.Command]
    owners: dict[str, str]
    problems: tuple[str, ...]


class _Context:
    """Implements :class:`prov_host.CommandContext`; nothing is read before a command asks for it."""

    def __init__(self, invocation: Invocation, plugin: Plugin) -> None:
        self._invocation = invocation
        self._plugin = plugin

    def settings(self) -> Any:
        """See :meth:`prov_host.CommandContext.settings`."""
        try:
            return self._invocation.settings().for_plugin(self._plugin.name, settings_type(self._plugin))
        except ConfigurationError as error:
            own = [text.removeprefix(f"{self._plugin.name}: ") for text in error.problems]
            raise ConfigurationError(*(f"plugin {self._plugin.name}: {text}" for text in own)) from error

    def cluster(self) -> str:
        """See :meth:`prov_host.CommandContext.cluster`."""
        return asyncio.run(_cluster_of(self._invocation))

    def volumes(self) -> tuple[Volume, ...]:
        """See :meth:`prov_host.CommandContext.volumes`."""
        return self._list(VOLUMES)

    def claims(self) -> tuple[Claim, ...]:
        """See :meth:`prov_host.CommandContext.claims`."""
        return self._list(CLAIMS)

    def storage_classes(self) -> tuple[StorageClass, ...]:
        """See :meth:`prov_host.CommandContext.storage_classes`."""
        return self._list(CLASSES)

    def _list(self, resource: Resource[Any]) -> tuple[Any, ...]:
        return asyncio.run(_list_once(self._invocation, resource))


def _kubeconfig(host: HostSettings) -> str:
    """The kubeconfig for commands; that of the embedded cluster, if the settings say where it is; else ""."""
    if host.kubeconfig or not host.embedded or not host.embedded_kubeconfig:
        return host.kubeconfig
    if os.path.exists(host.embedded_kubeconfig):
        return host.embedded_kubeconfig
    raise ConfigurationError(
        f"the embedded cluster is not running: embedded-kubeconfig {host.embedded_kubeconfig} does not exist; start "
        "prov-host with this configuration, or name another cluster with --kubeconfig"
    )


@contextlib.asynccontextmanager
async def _session(invocation: Invocation) -> AsyncIterator[SdkTransport]:
    """The way to the cluster that commands ask; never to an embedded one of their own, which would be empty."""
    from prov_host.kube.session import load as load_session

    host = invocation.settings().host
    kubeconfig = _kubeconfig(host)
    ignored = host.embedded and not kubeconfig
    hint = (
        "commands start no embedded cluster; to ask that of a running prov-host, say --kubeconfig with the file that "
        "it named when it started, or set embedded-kubeconfig"
    )
    try:
        session = await load_session(kubeconfig, host.context)
    except ConfigurationError as error:
        raise ConfigurationError(*error.problems, *([hint] if ignored else [])) from error
    try:
        if ignored and not invocation.told_cluster:
            invocation.told_cluster = True
            click.echo(f"prov-host: embedded is ignored, asking {session.host} ({session.source}): {hint}", err=True)
        yield session
    finally:
        await session.close()


async def _cluster_of(invocation: Invocation) -> str:
    async with _session(invocation) as session:
        return f"{session.host}, from {session.source}"


async def _list_once(invocation: Invocation, resource: Resource[Any]) -> tuple[Any, ...]:
    from prov_host.clock import SystemClock
    from prov_host.kube.client import Client

    async with _session(invocation) as session:
        return (await Client(session, SystemClock()).list_all(resource)).items


def commands_of_plugins(invocation: Invocation, *, limit: float | None = None) -> PluginCommands:
    """Ask plugins for their commands: the selected ones, or all installed ones if none is selected.

    Args:
        invocation: what the command line said.
        limit: seconds that importing or asking one may take; as the settings say by default.

    Returns:
        The commands. A plugin that cannot be asked is a problem of its own.

    On the main thread. Since 0.1.
    """
    candidates = discover()
    selected: Sequence[str] = invocation.settings().host.plugin or (ALL,)
    limit = limit or invocation.settings().host.plugin_timeout
    with plugin_output_to_log():
        loaded = load(selected, candidates, limit=limit)
        found = _ask_for_commands(invocation, loaded.working, limit=limit)
    problems = tuple(failure.problem for failure in loaded.failures)
    return PluginCommands(found.commands, found.owners, (*problems, *found.problems))


def _ask_for_commands(invocation: Invocation, plugins: Sequence[Plugin], *, limit: float) -> PluginCommands:
    commands: dict[str, click.Command] = {}
    owners: dict[str, str] = {}
    problems = []
    for plugin in plugins:
        if "commands" not in plugin.hooks:
            continue
        group = click.Group()
        ask = functools.partial(plugin.own.commands, group=group, context=_Context(invocation, plugin))
        try:
            call_limited(plugin.name, "commands", ask, limit=limit)
        except Exception as error:  # noqa: BLE001  a plugin's own failure
            problems.append(f"{plugin.title} cannot tell its commands: {words_of(error)}")
            continue
        for name, command in group.commands.items():
            if name in BUILT_IN:
                problems.append(f"command {name} of plugin {plugin.name} is one of prov-host's own and is left out")
                continue
            if name in owners:
                problems.append(f"command {name} of plugin {owners[name]} is also one of plugin {plugin.name}")
                continue
            commands[name], owners[name] = command, plugin.name
    return PluginCommands(commands, owners, tuple(problems))


class _Row(msgspec.Struct, kw_only=True, rename={"entry_point": "entryPoint"}):
    name: str
    distribution: str
    version: str
    entry_point: str
    status: str = "not loaded"
    provisioners: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    wrappers: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    threads: int = 0
    problems: tuple[str, ...] = ()


@click.command("plugins", short_help="List installed plugins and how they are.")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Load every installed plugin, not only the selected ones.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with everything that is known.")
@click.pass_obj
def plugins(invocation: Invocation, *, names: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """List installed plugins: where each comes from, what it serves, and what is wrong with it.

    Only the plugins selected with --plugin are loaded; --all loads and configures every one, so that all problems
    show. NAME loads that one and shows all about it, its hooks too. The storage and the cluster are not touched.

    Exits with 1 if a plugin that was asked for by name (--plugin or NAME) cannot be used, with 2 if the host's own
    settings are wrong, else with 0, also if --all has found broken ones.
    """
    settings = invocation.settings()
    everything = everything or ALL in names
    names = tuple(name for name in names if name != ALL)
    candidates = discover()
    rows = {
        (one.name, one.distribution): _Row(
            name=one.name, distribution=one.distribution, version=one.version, entry_point=one.value
        )
        for one in candidates
    }
    selected = (*([ALL] if everything else []), *settings.host.plugin, *names)
    asked_failed = False
    with plugin_output_to_log():
        limit = settings.host.plugin_timeout
        loaded = load(selected, candidates, limit=limit)
        failures = list(loaded.failures)
        for plugin in loaded.working:
            row = rows[plugin.name, plugin.candidate.distribution]
            row.status, row.hooks, row.wrappers = "ok", plugin.hooks, plugin.wrappers
        configured = configure(
            loaded.working,
            lambda plugin, kind: settings.for_plugin(plugin.name, kind),
            lambda plugin: _offline(plugin, settings.host.node_name),
            limit=limit,
        )
        failures += configured.failures
        threads = count_by_plugin(threading.enumerate(), loaded.working)
        for plugin in loaded.working:
            row = rows[plugin.name, plugin.candidate.distribution]
            row.provisioners, row.threads = plugin.provisioners, threads.get(plugin.title, 0)
        if selected:
            found = _ask_for_commands(invocation, loaded.working, limit=limit)
            for name, owner in found.owners.items():
                for row in rows.values():
                    if row.name == owner and row.status == "ok":
                        row.commands = (*row.commands, name)
    for failure in failures:
        asked_failed = asked_failed or failure.asked
        matching = [row for row in rows.values() if row.name == failure.name]
        if not matching:
            rows[failure.name, ""] = row = _Row(name=failure.name, distribution="", version="", entry_point="")
            matching = [row]
        for row in matching:
            row.status = "failed"
            row.problems = (*row.problems, failure.problem)
    listing = [rows[key] for key in sorted(rows) if not names or rows[key].name in names]
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(listing), indent=2).decode())
    elif names:
        click.echo("\n\n".join(_described(row) for row in listing))
    else:
        _print(listing, everything=everything)
    if asked_failed:
        raise click.exceptions.Exit(1)


def _described(row: _Row) -> str:
    """All that is known of one plugin, a line each."""
    lines = [
        ("plugin", row.name),
        ("distribution", f"{row.distribution} {row.version}".strip()),
        ("entry point", row.entry_point),
        ("status", row.status),
        ("provisioner names", ", ".join(row.provisioners)),
        ("hooks", ", ".join(row.hooks)),
        ("wraps", ", ".join(row.wrappers)),
        ("commands", ", ".join(row.commands)),
        ("threads running", str(row.threads or "")),
        *(("problem", problem) for problem in row.problems),
    ]
    return "\n".join(f"{title + ':':<18} {value}" for title, value in lines if value)


def _print(rows: Sequence[_Row], *, everything: bool) -> None:
    if not rows:
        click.echo("No plugin is installed.")
        return
    table: list[tuple[str, ...]] = [("PLUGIN", "DISTRIBUTION", "VERSION", "STATUS", "PROVISIONER NAMES", "COMMANDS")]
    for row in rows:
        lists = (", ".join(row.provisioners), ", ".join(row.commands))
        table.append((row.name, row.distribution, row.version, row.status, *(text or "-" for text in lists)))
    widths = [min(max(len(line[column]) for line in table), _CELL) for column in range(4)]
    left = _WIDTH - sum(widths) - 2 * 5
    widths.append(min(max(len(line[4]) for line in table), left * 3 // 4))
    widths.append(left - widths[4])
    for line in table:
        cells = [textwrap.wrap(cell, width, break_on_hyphens=False) for cell, width in zip(line, widths, strict=True)]
        for parts in itertools.zip_longest(*cells, fillvalue=""):
            click.echo("  ".join(part.ljust(width) for part, width in zip(parts, widths, strict=True)).rstrip())
    for row in rows:
        if row.problems or row.threads:
            click.echo()
        for problem in row.problems:
            click.echo(problem)
        if row.threads:
            click.echo(f"plugin {row.name} ({row.distribution} {row.version}) has {row.threads} threads running")
    if not everything and any(row.status == "not loaded" for row in rows):
        click.echo("\nOnly selected plugins (--plugin NAME) are loaded; --all loads every one and shows how it is.")
    click.echo("\nprov-host plugins NAME shows all about one, --json all about every one.")


def _offline(plugin: Plugin, node_name: str) -> Any:
    from prov_host.context import PluginContext

    return PluginContext(plugin.name, node_name=node_name)
