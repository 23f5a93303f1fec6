"""``prov-host`` without a command: load the plugins, then run the host until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from prov_host.cli import Invocation, version
from prov_host.ending import exit_within
from prov_host.errors import ConfigurationError
from prov_host.logs import set_up_logging
from prov_host.output import plugin_output_to_log
from prov_host.plugins import ALL, Plugin, configure, discover, load
from prov_host.threads import name_what_is_left

if TYPE_CHECKING:
    from prov_host.context import PluginContext
    from prov_host.settings import Settings

__all__ = ["prepare", "run"]

logger = logging.getLogger(__name__)

_GRACE = 5.0


def run(invocation: Invocation) -> int:
    """Run the host.

    Args:
        invocation: what the command line said.

    Returns:
        The exit code, 0 after a stop by signal.

    Raises:
        ConfigurationError: with every problem of all sources and plugins.

    On the main thread. Since 0.1.
    """
    problems: list[str] = []
    settings = invocation.settings(problems)
    set_up_logging(settings.host.log_level, settings.host.log_format)
    with plugin_output_to_log():
        plugins, contexts = prepare(settings, problems)
        if settings.host.embedded:
            from prov_host.embedded_host import run_embedded

            # Whoever wants JSON reads every line as such.
            announce: Callable[[str], object] = logger.info if settings.host.log_format == "json" else click.echo
            running = run_embedded(settings, plugins, contexts, version=version(), announce=announce)
        else:
            running = _run_host(settings, plugins, contexts)
        code = asyncio.run(running)
    name_what_is_left(plugins)
    return code


async def _run_host(settings: Settings, plugins: Sequence[Plugin], contexts: dict[str, PluginContext]) -> int:
    from prov_host.host import Host

    code = await Host(settings, plugins, contexts, version=version()).run()
    # The event loop waits for its helper threads now, and one of those may hang in a name lookup.
    exit_within(_GRACE, code)
    return code


def prepare(settings: Settings, problems: Sequence[str] = ()) -> tuple[tuple[Plugin, ...], dict[str, PluginContext]]:
    """Load and configure the selected plugins.

    Args:
        settings: all settings.
        problems: what was wrong with those.

    Returns:
        The plugins, and each one's context by plugin name.

    Raises:
        ConfigurationError: with every problem, the given ones first.

    On the main thread, before the event loop. Since 0.1.
    """
    from prometheus_client import GC_COLLECTOR, CollectorRegistry, PlatformCollector, ProcessCollector

    from prov_host.context import PluginContext

    found = list(problems)
    candidates = discover()
    if not settings.host.plugin:
        names = ", ".join(sorted({candidate.name for candidate in candidates})) or "none"
        found.append(f"no plugin is selected: say --plugin NAME (installed: {names})")
    if settings.host.embedded and (settings.host.kubeconfig or settings.host.context):
        found.append("embedded runs a cluster of its own; it cannot be used together with kubeconfig or context")
    limit = max(settings.host.plugin_timeout, 0.1)
    loaded = load(settings.host.plugin, candidates, limit=limit)
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    registry.register(GC_COLLECTOR)
    contexts = {
        plugin.name: PluginContext(plugin.name, node_name=settings.host.node_name, registry=registry)
        for plugin in loaded.working
    }
    configured = configure(
        loaded.working,
        lambda plugin, kind: settings.for_plugin(plugin.name, kind),
        lambda plugin: contexts[plugin.name],
        limit=limit,
    )
    for context in contexts.values():
        context.configured()
    failures = (*loaded.failures, *configured.failures)
    found += [failure.problem for failure in failures if failure.asked]
    for failure in failures:
        if not failure.asked:
            logger.warning("%s; it is left out", failure.problem)
    if not found and not any(plugin.is_backend for plugin in configured.working):
        found.append("no plugin in use provisions volumes; select one that does with --plugin NAME")
    if found:
        raise ConfigurationError(*found)
    if ALL in settings.host.plugin:
        logger.info("in use: %s", ", ".join(plugin.title for plugin in configured.working))
    return configured.working, contexts
