"""``prov-host plugins``, and the commands that plugins bring."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Sequence
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
    from prov_host.settings import Settings

__all__ = ["PluginCommands", "commands_of_plugins", "plugins"]


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
            raise ConfigurationError(*(f"plugin {self._plugin.name}: {text}" for text in error.problems)) from error

    def cluster(self) -> str:
        """See :meth:`prov_host.CommandContext.cluster`."""
        return asyncio.run(_cluster_of(self._invocation.settings()))

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
        return asyncio.run(_list_once(self._invocation.settings(), resource))


async def _cluster_of(settings: Settings) -> str:
    from prov_host.kube.session import load as load_session

    transport = await load_session(settings.host.kubeconfig, settings.host.context)
    try:
        return f"{transport.host}, from {transport.source}"
    finally:
        await transport.close()


async def _list_once(settings: Settings, resource: Resource[Any]) -> tuple[Any, ...]:
    from prov_host.clock import SystemClock
    from prov_host.kube.client import Client
    from prov_host.kube.session import load as load_session

    transport = await load_session(settings.host.kubeconfig, settings.host.context)
    try:
        return (await Client(transport, SystemClock()).list_all(resource)).items
    finally:
        await transport.close()


def commands_of_plugins(invocation: Invocation) -> PluginCommands:
    """Ask plugins for their commands: the selected ones, or all installed ones if none is selected.

    Args:
        invocation: what the command line said.

    Returns:
        The commands. A plugin that cannot be asked is a problem of its own.

    On the main thread. Since 0.1.
    """
    candidates = discover()
    selected: Sequence[str] = invocation.settings().host.plugin or (ALL,)
    with plugin_output_to_log():
        loaded = load(selected, candidates, limit=invocation.settings().host.plugin_timeout)
        found = _ask_for_commands(invocation, loaded.working)
    problems = tuple(failure.problem for failure in loaded.failures)
    return PluginCommands(found.commands, found.owners, (*problems, *found.problems))


def _ask_for_commands(invocation: Invocation, plugins: Sequence[Plugin]) -> PluginCommands:
    commands: dict[str, click.Command] = {}
    owners: dict[str, str] = {}
    problems = []
    for plugin in plugins:
        if "commands" not in plugin.hooks:
            continue
        group = click.Group()
        ask = functools.partial(plugin.own.commands, group=group, context=_Context(invocation, plugin))
        try:
            call_limited(plugin.name, "commands", ask, limit=invocation.settings().host.plugin_timeout)
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
@click.option("--all", "everything", is_flag=True, help="Load every installed plugin, not only the selected ones.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def plugins(invocation: Invocation, *, everything: bool, as_json: bool) -> None:
    """List installed plugins: where each comes from, what it serves, and what is wrong with it.

    Only the plugins selected with --plugin are loaded; --all loads and configures every one, so that all problems
    show. The storage and the cluster are not touched.
    """
    settings = invocation.settings()
    candidates = discover()
    rows = {
        (one.name, one.distribution): _Row(
            name=one.name, distribution=one.distribution, version=one.version, entry_point=one.value
        )
        for one in candidates
    }
    selected = (ALL, *settings.host.plugin) if everything else settings.host.plugin
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
            found = _ask_for_commands(invocation, loaded.working)
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
    listing = [rows[key] for key in sorted(rows)]
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(listing), indent=2).decode())
    else:
        _print(listing, everything=everything)
    if asked_failed:
        raise click.exceptions.Exit(1)


def _print(rows: Sequence[_Row], *, everything: bool) -> None:
    if not rows:
        click.echo("No plugin is installed.")
        return
    table: list[tuple[str, ...]] = [
        ("PLUGIN", "DISTRIBUTION", "VERSION", "STATUS", "PROVISIONER NAMES", "HOOKS", "COMMANDS")
    ]
    for row in rows:
        hooks = [*row.hooks, *(f"{name} (wrapper)" for name in row.wrappers)]
        lists = (", ".join(row.provisioners), ", ".join(hooks), ", ".join(row.commands))
        table.append((row.name, row.distribution, row.version, row.status, *(text or "-" for text in lists)))
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    for line in table:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    for row in rows:
        for problem in row.problems:
            click.echo(f"\n{problem}")
        if row.threads:
            click.echo(f"\nplugin {row.name} ({row.distribution} {row.version}) has {row.threads} threads running")
    if not everything and any(row.status == "not loaded" for row in rows):
        click.echo("\nOnly selected plugins (--plugin NAME) are loaded; --all loads every one and shows how it is.")


def _offline(plugin: Plugin, node_name: str) -> Any:
    from prov_host.context import PluginContext

    return PluginContext(plugin.name, node_name=node_name)
