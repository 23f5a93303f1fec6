"""Reads every setting of the host and its plugins: command line, then environment, then file, then default.

An option of the host (:mod:`prov_host.host_options`) is ``--worker-threads``, ``PROV_HOST_WORKER_THREADS`` and
``worker-threads`` in the TOML file. A plugin's settings are the fields of the Struct that its ``settings_type`` hook
returns: ``mount`` of the plugin ``nfs_subdir`` is ``PROV_HOST_NFS_SUBDIR_MOUNT`` or ``mount`` in the file's table
``[nfs_subdir]``. An empty variable counts as not set.

The variables of the Go provisioners (``ENABLE_LEADER_ELECTION``, ``POD_NAMESPACE``; ``KUBECONFIG`` is read where the
session is opened) come after ours and the file, so that an image can be swapped and nothing else.

A name that nobody knows is an error with a suggestion, since a misspelt safety switch must not be silently off; all
problems are collected and shown together.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import inspect as mi

from prov_host.controller.options import ControllerOptions
from prov_host.conversion import convert, parse_go_bool
from prov_host.errors import ConfigurationError
from prov_host.host_options import OTHER_DEFAULTS, PREFIX, HostSettings, Option, options

__all__ = ["Settings", "plugin_variable", "read_settings"]

# What Kubernetes itself puts into a container's environment for a Service whose name begins with "prov-host".
_SERVICE_LINK = re.compile(
    r"PROV_HOST_(?:.*_)?(?:SERVICE_HOST|SERVICE_PORT(?:_.*)?|PORT(?:_[0-9]+_(?:TCP|UDP|SCTP).*)?)"
)
_NOT_FOUND = object()


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All that was said, read. Since 0.1.

    Attributes:
        host: the host's settings.
        controller: the controller's.
        path: the file that was read, or "".
        tables: the file's tables of plugins.
        environment: all variables.
        installed: the names of all installed plugins, which share the variables' prefix.
    """

    host: HostSettings
    controller: ControllerOptions
    path: str = ""
    tables: Mapping[str, Any] = msgspec.field(default_factory=dict)
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    installed: tuple[str, ...] = ()

    def for_plugin(self, plugin: str, kind: type[Any] | None) -> Any:
        """Read a plugin's settings.

        Args:
            plugin: its name.
            kind: the msgspec Struct type its ``settings_type`` hook returned, or None.

        Returns:
            An instance of ``kind``, or None.

        Raises:
            ConfigurationError: with every problem.

        Callable from any thread.
        """
        table = self.tables.get(plugin, {})
        where = f"{self.path}: [{plugin}]"
        if not isinstance(table, Mapping):
            raise ConfigurationError(f"{where} must be a table of the plugin's settings")
        fields = msgspec.structs.fields(kind) if kind is not None else ()
        kinds = {field.name: field for field in mi.type_info(kind).fields} if kind is not None else {}  # type: ignore[attr-defined]
        names = {field.encode_name: field for field in fields}
        variables = self._variables_of(plugin)
        by_variable = {plugin_variable(plugin, name): name for name in names}
        setting = f"a setting of plugin {plugin}"
        problems = [f"{where} {_stranger(key, setting, names, listing=True)}" for key in table if key not in names]
        problems += [
            f"variable {_stranger(key, setting, by_variable, listing=True)}"
            for key in variables
            if key not in by_variable
        ]
        values = {}
        for name, field in names.items():
            variable = plugin_variable(plugin, name)
            info = kinds[field.name]
            try:
                if variable in variables:
                    values[field.name] = convert(variables[variable], info.type, field.type, text=True)
                elif name in table:
                    values[field.name] = convert(table[name], info.type, field.type, text=False)
                elif field.required:
                    problems.append(f"{name} is required: set {variable}, or {name} in the file's table [{plugin}]")
            except ValueError as error:
                source = variable if variable in variables else f"{where} {name}"
                problems.append(f"{source}: {error}")
        if problems:
            raise ConfigurationError(*problems)
        if kind is None:
            return None
        try:
            return kind(**values)
        except ConfigurationError:
            raise
        except (ValueError, TypeError) as error:  # a Struct's __post_init__ that checks fields against each other
            raise ConfigurationError(str(error)) from error

    def _variables_of(self, plugin: str) -> dict[str, str]:
        return {
            name: text
            for name, text in self.environment.items()
            if text and _owner_of(name, self.installed) == plugin and not _is_option(name)
        }


def plugin_variable(plugin: str, setting: str) -> str:
    """The environment variable of a plugin's setting. Callable from any thread. Since 0.1."""
    return PREFIX + re.sub(r"[^A-Z0-9]", "_", f"{plugin}_{setting}".upper())


def read_settings(
    given: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
    *,
    path: str = "",
    installed: Iterable[str] = (),
    problems: list[str] | None = None,
) -> Settings:
    """Read the host's settings from all sources.

    Args:
        given: what the command line said, by field name: text, a bool for flags, a sequence for repeatable ones.
        environment: variables; the process's by default.
        path: the TOML file; "" means ``PROV_HOST_CONFIG``, or none.
        installed: the names of all installed plugins.
        problems: where problems are put; what is wrong then has its default, so that the plugins' problems can be
            found too. None: they are raised.

    Returns:
        The settings; plugins' own are read by :meth:`Settings.for_plugin`.

    Raises:
        ConfigurationError: with every problem. That a file cannot be read is told alone, at once: what else would be
            found then is mostly what the file says.

    Callable from any thread. Since 0.1.
    """
    environment = dict(os.environ) if environment is None else environment
    installed = tuple(installed)
    path = path or environment.get(PREFIX + "CONFIG", "")
    collected = problems is not None
    problems = [] if problems is None else problems
    file = _read_file(path)
    by_name = {option.name: option for option in options()}
    known = {**by_name, **{option.field: option for option in options()}}
    tables = {key: value for key, value in file.items() if key in installed and key not in known}
    problems += [
        f"{path}: {_stranger(key, 'an option or an installed plugin', (*by_name, *installed))}"
        for key in file
        if key not in known and key not in tables
    ]
    problems += _unknown_variables(environment, installed)
    sources = _Sources(given, environment, file, path)
    values: dict[type[msgspec.Struct], dict[str, Any]] = {HostSettings: {}, ControllerOptions: {}}
    for option in options():
        try:
            value = sources.value(option)
        except ValueError as error:
            problems.append(str(error))
            continue
        if value is not _NOT_FOUND:
            values[option.owner][option.field] = value
    host, controller = HostSettings(**values[HostSettings]), ControllerOptions(**values[ControllerOptions])
    problems += host.problems() + controller.problems()
    if problems and not collected:
        raise ConfigurationError(*problems)
    if not host.plugin and all(environment.get(name) for name in ("NFS_SERVER", "NFS_PATH", "PROVISIONER_NAME")):
        # The Go provisioner is configured by these alone, and so is whoever swaps its image for ours.
        host = msgspec.structs.replace(host, plugin=("nfs_subdir",))
    return Settings(
        host=host, controller=controller, path=path, tables=tables, environment=environment, installed=installed
    )


class _Sources(msgspec.Struct, frozen=True):
    """Where a setting may come from, in this order; then its default."""

    given: Mapping[str, Any]
    environment: Mapping[str, str]
    file: Mapping[str, Any]
    path: str

    def value(self, option: Option) -> Any:
        """An option's value from the first source that has it, or _NOT_FOUND; ValueError names the source."""
        raw = self.given.get(option.field)
        if raw is not None and not (option.repeatable and not raw):
            return self._convert(f"--{option.name}", option, raw, text=isinstance(raw, str))
        if raw := self.environment.get(option.variable):
            return self._convert(option.variable, option, raw, text=True)
        raw = self.file.get(option.name, self.file.get(option.field))
        if raw is not None:
            return self._convert(f"{self.path}: {option.name}", option, raw, text=False)
        for variable, parse in _COMPATIBLE.get(option.field, ()):
            if raw := self.environment.get(variable):
                try:
                    return parse(raw)
                except ValueError as error:
                    raise ValueError(f"{variable}: {error}") from error
        return option.default if option.field in OTHER_DEFAULTS else _NOT_FOUND

    @staticmethod
    def _convert(source: str, option: Option, raw: Any, *, text: bool) -> Any:
        if isinstance(raw, tuple):  # an option given more than once; each may also be a list, as in a variable
            raw, text = ",".join(raw), True
        try:
            return convert(raw, option.kind, option.python_type, text=text)
        except ValueError as error:
            shown = f" {raw!r}:" if text and repr(raw) not in str(error) else ""
            raise ValueError(f"{source}:{shown} {error}") from error


# Variables that users of the Go provisioners set already; ours, and the file, come first.
_COMPATIBLE: Mapping[str, tuple[tuple[str, Callable[[str], Any]], ...]] = {
    "leader_election": (("ENABLE_LEADER_ELECTION", parse_go_bool),),
    "leader_election_namespace": (("POD_NAMESPACE", str),),
    "node_name": (("NODE_NAME", str),),
}


def _read_file(path: str) -> dict[str, Any]:
    if not path:
        return {}
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        words = f"the configuration file {path} cannot be read: {error.strerror or error}"
        raise ConfigurationError(words) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the configuration file {path} is not TOML: {error}") from error


def _is_option(variable: str) -> bool:
    return variable == PREFIX + "CONFIG" or any(option.variable == variable for option in options())


def _owner_of(variable: str, installed: Iterable[str]) -> str:
    """The installed plugin whose variable it is: the longest name that fits."""
    fitting = [name for name in installed if variable.startswith(plugin_variable(name, ""))]
    return max(fitting, key=len, default="")


def _unknown_variables(environment: Mapping[str, str], installed: Sequence[str]) -> list[str]:
    known = (*(option.variable for option in options()), *(plugin_variable(name, "") for name in installed))
    return [
        f"variable {_stranger(name, 'an option or a setting of an installed plugin', known)}"
        for name in environment
        if name.startswith(PREFIX)
        and not _is_option(name)
        and not _SERVICE_LINK.fullmatch(name)
        and not _owner_of(name, installed)
    ]


def _stranger(name: str, what: str, known: Iterable[str], *, listing: bool = False) -> str:
    """That a name is unknown, and what may have been meant."""
    known = tuple(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    others = f"; there are {', '.join(known)}" if listing and known else ""
    return f"{name} is not the name of {what}{f'; did you mean {near[0]}?' if near else others}"
