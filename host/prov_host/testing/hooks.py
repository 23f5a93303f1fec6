"""Plugins' hooks, called as the host calls them."""

from __future__ import annotations

import pluggy

from prov_host.hookspecs import PROJECT, HookSpecs

__all__ = ["hooks_of"]


def hooks_of(*plugins: object) -> pluggy.HookRelay:
    """The hooks of some plugins, with the wrappers among them around the others.

    Args:
        plugins: plugin objects, configured if they need it.

    Returns:
        Calls them: ``hooks_of(backend, wrapper).provision(request=...)``. Arguments are given by name.

    Raises:
        pluggy.PluginValidationError: a hook has a wrong argument, or is none; says which.

    Callable from any thread. Since 0.1.
    """
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(HookSpecs)
    for plugin in plugins:
        manager.register(plugin)
    manager.check_pending()
    return manager.hook
