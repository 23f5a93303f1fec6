"""Finds, loads and configures plugins; each failure is named and stays that plugin's own.

Plugins are entry points of the group ``prov_host``. They are loaded one at a time, in the order of their names, and
only those that were selected, so a broken package that nobody asked for is never even imported. Whatever goes wrong
(an import error, a syntax error, ``sys.exit`` at import, a wrong signature, an unknown hook, another API version, a
hanging import or ``configure``, a provisioner name that another plugin owns) becomes one :class:`Failure` that says
which plugin of which distribution and version, and why. Only plugins that were asked for by name stop the start.

The way is: :func:`discover` the candidates, :func:`load` the selected ones, :func:`configure` what was loaded. Then
:mod:`prov_host.routing` builds a backend from each plugin that owns provisioner names.
"""

from __future__ import annotations

import difflib
import functools
import importlib.metadata
import logging
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

import msgspec
import pluggy

from prov_host.errors import ConfigurationError, PluginError
from prov_host.hookspecs import HostContext
from prov_host.model import POLICIES
from prov_host.output import words_of
from prov_host.plugin_checks import checked_instance, hooks_of, name_problem, new_manager, signature_problem
from prov_host.pool import call_limited

__all__ = [
    "ALL",
    "GROUP",
    "LIMIT",
    "Candidate",
    "Failure",
    "Plugin",
    "Plugins",
    "configure",
    "discover",
    "load",
]

logger = logging.getLogger(__name__)

GROUP = "prov_host"
"""The entry-point group."""

ALL = "all"
"""The plugin name that selects every installed plugin, none of them by name."""

LIMIT = 10.0
"""Seconds that importing or configuring one plugin may take."""


class Candidate(msgspec.Struct, frozen=True):
    """An entry point that names a plugin, not loaded yet. Since 0.1.

    Attributes:
        name: the plugin's name, as in ``--plugin``.
        distribution: the package that brings it.
        version: that package's version.
        value: the entry point's target, ``module:attribute``.
        load: imports and returns the target.
    """

    name: str
    distribution: str
    version: str
    value: str
    load: Callable[[], Any]

    @property
    def title(self) -> str:
        """``plugin NAME (DISTRIBUTION VERSION)``, as all messages call it."""
        return f"plugin {self.name} ({self.distribution} {self.version})"


class Failure(msgspec.Struct, frozen=True):
    """Why a plugin is not in use. Since 0.1.

    Attributes:
        name: the plugin's name.
        distribution: the package, or packages, that bring it; "" if none does.
        version: that package's version, or "".
        problem: a whole sentence that names plugin, distribution, version and cause.
        asked: whether it was asked for by name, so that the host must not start without it.
    """

    name: str
    distribution: str
    version: str
    problem: str
    asked: bool


class Plugin:
    """A loaded plugin.

    Attributes:
        candidate: where it comes from.
        name: its name, as in ``--plugin``.
        title: as all messages call it.
        instance: the module or object with the hooks.
        asked: whether it was asked for by name.
        own: calls this plugin's hooks, and no one else's.
        hooks: the hooks it implements, sorted.
        wrappers: the hooks it wraps, sorted.
        provisioners: the names it owns, once configured; () if it is no backend.
        default_policy: of its classes, once configured.

    Since 0.1.
    """

    def __init__(self, candidate: Candidate, instance: object, *, asked: bool) -> None:
        self.candidate = candidate
        self.name = candidate.name
        self.title = candidate.title
        self.instance = instance
        self.asked = asked
        manager = new_manager()
        try:
            manager.register(instance, candidate.name)
        except pluggy.PluginValidationError as error:
            raise PluginError(signature_problem(error)) from error
        self.own = manager.hook
        hooks, wrappers = hooks_of(manager, instance)
        self.hooks = hooks
        self.wrappers = wrappers
        self.provisioners: tuple[str, ...] = ()
        self.default_policy = "archive" if "archive" in hooks else "delete"

    @property
    def is_backend(self) -> bool:
        """Whether it provisions."""
        return "provision" in self.hooks

    @property
    def package(self) -> str:
        """The top-level package of its code."""
        module = self.instance if isinstance(self.instance, ModuleType) else type(self.instance)
        name = module.__name__ if isinstance(module, ModuleType) else module.__module__
        return name.partition(".")[0]


class Plugins(msgspec.Struct, frozen=True):
    """What came of loading or configuring. Since 0.1.

    Attributes:
        working: in the order of their names.
        failures: why others are not in use.
    """

    working: tuple[Plugin, ...] = ()
    failures: tuple[Failure, ...] = ()

    def raise_if_asked(self) -> None:
        """Stop if a plugin that was asked for by name is not in use.

        Raises:
            ConfigurationError: with every such problem.
        """
        problems = [failure.problem for failure in self.failures if failure.asked]
        if problems:
            raise ConfigurationError(*problems)


def discover() -> tuple[Candidate, ...]:
    """Every installed plugin, sorted by name and distribution; imports none of them.

    Returns:
        The candidates. Two of one name from two distributions are both listed; :func:`load` refuses them.

    Callable from any thread. Since 0.1.
    """
    found = {}
    for entry_point in importlib.metadata.entry_points(group=GROUP):
        distribution, version = "(unknown distribution)", "(unknown version)"
        if entry_point.dist is not None:
            # The metadata of a half-removed package may hold neither.
            metadata = entry_point.dist.metadata
            distribution, version = metadata["Name"] or distribution, metadata["Version"] or version
        candidate = Candidate(entry_point.name, distribution, version, entry_point.value, entry_point.load)
        found[candidate.name, candidate.distribution, candidate.value] = candidate
    return tuple(found[key] for key in sorted(found))


def load(selected: Iterable[str], candidates: Sequence[Candidate] | None = None, *, limit: float = LIMIT) -> Plugins:
    """Import and instantiate plugins, one at a time, in the order of their names.

    Args:
        selected: plugin names; :data:`ALL` stands for every installed plugin.
        candidates: what is installed; :func:`discover` by default.
        limit: seconds that importing one may take.

    Returns:
        The loaded plugins, and a failure for each that could not be.

    On the main thread, before the event loop. Since 0.1.
    """
    candidates = discover() if candidates is None else candidates
    by_name: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        by_name.setdefault(candidate.name, []).append(candidate)
    asked = set(selected)
    names = (asked - {ALL}) | (set(by_name) if ALL in asked else set())
    working: list[Plugin] = []
    failures: list[Failure] = []
    for name in sorted(names):
        by_asking = name in asked
        rivals = by_name.get(name, [])
        if not rivals:
            failures.append(Failure(name, "", "", _not_installed(name, by_name), by_asking))
        elif len(rivals) > 1:
            who = " and ".join(f"{rival.distribution} {rival.version} ({rival.value})" for rival in rivals)
            problem = f"plugin {name} is brought by more than one distribution: {who}; uninstall all but one"
            failures.append(
                Failure(
                    name,
                    ", ".join(rival.distribution for rival in rivals),
                    ", ".join(rival.version for rival in rivals),
                    problem,
                    by_asking,
                )
            )
        else:
            (candidate,) = rivals
            try:
                instance = call_limited(
                    name,
                    "import",
                    functools.partial(checked_instance, candidate.load, candidate.title, candidate.value),
                    limit=limit,
                )
                working.append(Plugin(candidate, instance, asked=by_asking))
            except Exception as error:  # noqa: BLE001  whatever a third-party package raises is its own failure
                failures.append(_failure(candidate, "cannot be loaded", error, asked=by_asking))
    return Plugins(tuple(working), tuple(failures))


def configure(
    plugins: Sequence[Plugin],
    read_settings: Callable[[Plugin, type[Any] | None], Any],
    context: Callable[[Plugin], HostContext],
    *,
    limit: float = LIMIT,
) -> Plugins:
    """Give each plugin its settings and learn the provisioner names it owns.

    Args:
        plugins: loaded ones.
        read_settings: called with a plugin and the type from its ``settings_type`` hook; returns the settings, or
            raises ConfigurationError with every problem.
        context: called with a plugin; returns what its ``configure`` hook is given.
        limit: seconds that each step of one plugin may take.

    Returns:
        The plugins that can be used, and a failure for each problem of the others.

    On the main thread, before the event loop. Since 0.1.
    """
    working: list[Plugin] = []
    failures: list[Failure] = []
    settings: list[tuple[Plugin, Any]] = []

    def fail(plugin: Plugin, what: str, error: Exception) -> None:
        if isinstance(error, ConfigurationError):
            # A plugin may name itself too, as its own words are shown elsewhere without the title.
            own = [problem.removeprefix("plugin ").removeprefix(f"{plugin.name}: ") for problem in error.problems]
            problems = [f"{plugin.title}: {problem}" for problem in own]
        else:
            problems = [_failure(plugin.candidate, what, error, asked=plugin.asked).problem]
        where = (plugin.candidate.distribution, plugin.candidate.version)
        failures.extend(Failure(plugin.name, *where, problem, plugin.asked) for problem in problems)

    # All settings are read before the first plugin is configured, so that all problems are known at once.
    for plugin in plugins:
        try:
            settings.append((plugin, read_settings(plugin, settings_type(plugin, limit=limit))))
        except Exception as error:  # noqa: BLE001  a plugin's own failure
            fail(plugin, "cannot tell its settings", error)
    for plugin, values in settings:
        try:
            host = context(plugin)
            give = functools.partial(plugin.own.configure, settings=values, host=host)
            call_limited(plugin.name, "configure", give, limit=limit)
            if plugin.is_backend:
                names = call_limited(plugin.name, "provisioners", plugin.own.provisioners, limit=limit)
                plugin.provisioners = call_limited(
                    plugin.name, "provisioners", functools.partial(_names, names), limit=limit
                )
                plugin.default_policy = call_limited(
                    plugin.name, "default_policy", functools.partial(_policy, plugin), limit=limit
                )
            working.append(plugin)
        except Exception as error:  # noqa: BLE001  a plugin's own failure
            fail(plugin, "cannot be configured", error)
    clashes = _clashes(working)
    return Plugins(
        tuple(plugin for plugin in working if plugin not in clashes),
        (*failures, *(failure for failure in clashes.values() if failure is not None)),
    )


def settings_type(plugin: Plugin, *, limit: float = LIMIT) -> type[Any] | None:
    """Ask a plugin for the type of its settings.

    Returns:
        A msgspec Struct type, or None.

    Raises:
        PluginError: the hook answered with something else.
        Exception: what the hook raised.

    Callable from any thread. Since 0.1.
    """
    if "settings_type" not in plugin.hooks:
        return None
    found = call_limited(plugin.name, "settings_type", plugin.own.settings_type, limit=limit)
    if found is not None and not (isinstance(found, type) and issubclass(found, msgspec.Struct)):
        raise PluginError(f"settings_type returned {found!r}; it must return a msgspec.Struct type or None")
    return found


def _names(found: object) -> tuple[str, ...]:
    if isinstance(found, str) or not isinstance(found, Iterable):
        raise PluginError(f"provisioners returned {found!r}; it must return a list of names, at least one")
    names = tuple(found)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise PluginError(f"provisioners returned {names!r}; it must return a list of names, at least one")
    if len(set(names)) < len(names):
        raise PluginError(f"provisioners returned a name twice: {', '.join(names)}")
    for name in names:
        if problem := name_problem(name):
            raise PluginError(problem)
    return names


def _policy(plugin: Plugin) -> str:
    found = plugin.own.default_policy() if "default_policy" in plugin.hooks else None
    if found is None:
        return "archive" if "archive" in plugin.hooks else "delete"
    if found not in POLICIES:
        raise PluginError(f"default_policy returned {found!r}; it must be one of {', '.join(POLICIES)}")
    if found == "archive" and "archive" not in plugin.hooks:
        raise PluginError("default_policy returned 'archive', but the plugin has no archive hook")
    return str(found)


def _clashes(plugins: Sequence[Plugin]) -> dict[Plugin, Failure | None]:
    """Plugins that own a name which another one owns too; no name is ever served by a guess."""
    owners: dict[str, list[Plugin]] = {}
    for plugin in plugins:
        for name in plugin.provisioners:
            owners.setdefault(name, []).append(plugin)
    clashes: dict[Plugin, Failure | None] = {}
    for name, rivals in sorted(owners.items()):
        if len(rivals) < 2:
            continue
        problem = (
            f"provisioner name {name} is owned by {' and by '.join(rival.title for rival in rivals)}; "
            "select one of them, or give one another name in its settings"
        )
        asked = [rival for rival in rivals if rival.asked]
        # One that was asked for by name keeps what it owns; between equals nothing is guessed.
        losers = [rival for rival in rivals if not rival.asked] if len(asked) == 1 else rivals
        for index, rival in enumerate(losers):
            failure = Failure(
                rival.name, rival.candidate.distribution, rival.candidate.version, problem, len(asked) > 1
            )
            clashes.setdefault(rival, failure if index == 0 else None)  # said once, by the first of them
    return clashes


def _not_installed(name: str, installed: Iterable[str]) -> str:
    installed = sorted(installed)
    near = difflib.get_close_matches(name, installed, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else "pip install the package that brings it"
    return f"plugin {name} is not installed; {hint} (installed: {', '.join(installed) or 'none'})"


def _failure(candidate: Candidate, what: str, error: Exception, *, asked: bool) -> Failure:
    if isinstance(error, PluginError):
        cause = str(error)
    elif isinstance(error, SyntaxError):
        cause = f"SyntaxError: {error.msg} ({error.filename}, line {error.lineno})"
    else:
        cause = words_of(error)
    logger.debug("%s %s", candidate.title, what, exc_info=error)
    problem = f"{candidate.title} {what}: {' '.join(cause.split())}"
    return Failure(candidate.name, candidate.distribution, candidate.version, problem, asked)
