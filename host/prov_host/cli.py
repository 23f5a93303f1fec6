"""The command line: ``prov-host [OPTIONS]`` runs the host, ``prov-host COMMAND`` does something else.

The options are those of :mod:`prov_host.host_options`; they are handed on as text, so that all problems of the command
line, the environment and the file come out in one message. Commands are imported when they are used, the Kubernetes
SDK, aiohttp and the metrics only by what needs them: ``--help`` answers at once. Plugins bring commands of their own;
their packages are imported only when a command is asked for that is not built in.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.metadata
import io
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click

from prov_host.conversion import parse_go_bool
from prov_host.errors import ConfigurationError, ProvHostError
from prov_host.host_options import PREFIX, Option, options

if TYPE_CHECKING:
    from prov_host.settings import Settings

__all__ = ["BUILT_IN", "Invocation", "cli", "main", "version"]

# Name, where it is, and the help that is shown without importing it.
BUILT_IN: Mapping[str, tuple[str, str]] = {
    "demo": ("prov_host.cli_demo", "demo"),
    "new-plugin": ("prov_host.scaffold.command", "new_plugin"),
    "plugins": ("prov_host.cli_plugins", "plugins"),
}
# What users of other provisioners call some options.
_ALIASES: Mapping[str, tuple[str, ...]] = {
    "http_address": ("--metrics-address", "--http-endpoint"),
    "worker_threads": ("--threadiness",),
    "pv_create_retry_count": ("--create-provisioned-pv-retry-count",),
    "pv_create_interval": ("--create-provisioned-pv-interval",),
}
_HELP_LIMIT = 2.0
"""Seconds that --help waits for one plugin."""


def version() -> str:
    """The installed version of prov-host. Callable from any thread. Since 0.1."""
    try:
        return importlib.metadata.version("prov-host")
    except importlib.metadata.PackageNotFoundError:  # run from a source tree
        return "unknown"


class Invocation:
    """What the command line said before the command's name; the context object of every command.

    Args:
        given: options as text, by field name.
        path: the configuration file, or "".

    Attributes:
        told_cluster: whether the user has been told that another cluster is asked than the settings sound like.

    Since 0.1.
    """

    def __init__(self, given: Mapping[str, Any], path: str = "") -> None:
        self.told_cluster = False
        self.given = given
        self.path = path
        self._settings: Settings | None = None

    def settings(self, problems: list[str] | None = None) -> Settings:
        """All settings, read once.

        Args:
            problems: where problems are put, so that those of plugins can be told together with them.

        Raises:
            ConfigurationError: with every problem, unless ``problems`` is given.
        """
        if self._settings is None:
            from prov_host.plugins import discover
            from prov_host.settings import read_settings

            installed = sorted({candidate.name for candidate in discover()})
            self._settings = read_settings(self.given, path=self.path, installed=installed, problems=problems)
        return self._settings


class _Commands(click.Group):
    """Built-in commands, imported when used, and those of plugins."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options, also as Go's users write them: ``--leader-election=false``, and never with one dash."""
        mended, given = self._own_part(ctx, args)
        # Commands are looked up before the callback runs, and --help is answered before the other options are read:
        # both need to know which plugins are selected.
        ctx.obj = Invocation(given, str(given.pop("config", "")))
        return super().parse_args(ctx, mended)

    def _own_part(self, ctx: click.Context, args: list[str]) -> tuple[list[str], dict[str, Any]]:
        """What stands before the command's name: the arguments as click wants them, and the options in them."""
        names = {name: one for one in self.get_params(ctx) for name in (*one.opts, *one.secondary_opts)}
        mended: list[str] = []
        given: dict[str, Any] = {}
        said: dict[str, str] = {}
        rest = iter(args)
        for arg in rest:
            if arg == "--" or not arg.startswith("-"):
                return [*mended, arg, *rest], given  # what follows belongs to the command
            mended.append(arg)
            name, equals, text = arg.partition("=")
            option = names.get(name)
            if not isinstance(option, click.Option) or option.name is None:
                self._hint_dashes(ctx, name, names)
                continue
            if option.is_eager:
                continue
            value: Any = text
            if option.is_flag:
                try:
                    value = name in option.opts if not equals else parse_go_bool(text)
                except ValueError as error:
                    raise click.BadOptionUsage(name, f"{name}: {error}", ctx) from error
                if equals and name in option.secondary_opts:
                    raise click.BadOptionUsage(name, f"{name} takes no value; write {option.opts[0]}={text}", ctx)
                mended[-1] = option.opts[0] if value else option.secondary_opts[0]
            elif not equals:
                value = next(rest, None)
                if value is None:
                    continue  # click says so
                mended.append(value)
            if option.multiple:
                given[option.name] = (*given.get(option.name, ()), value)
                continue
            if given.get(option.name, value) != value:
                raise click.UsageError(
                    f"{said[option.name]} and {arg} are the same option with different values; give it once", ctx
                )
            given[option.name], said[option.name] = value, arg
        return mended, given

    @staticmethod
    def _hint_dashes(ctx: click.Context, name: str, names: Mapping[str, object]) -> None:
        """Go's flags may have one dash; here these would be single letters, and -http-address the option -h."""
        if name.startswith("--") or len(name) <= 2:
            return
        near = difflib.get_close_matches(f"-{name}", names, n=1, cutoff=0.6)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise click.NoSuchOption(name, f"No such option: {name} (options begin with two dashes){hint}", ctx=ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The built-in ones; plugins' are listed by :meth:`format_commands`."""
        return sorted({*super().list_commands(ctx), *BUILT_IN})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a built-in command, or ask the plugins for one."""
        if cmd_name in BUILT_IN:
            module, attribute = BUILT_IN[cmd_name]
            command: object = getattr(importlib.import_module(module), attribute)
            assert isinstance(command, click.Command)
            return command
        if not isinstance(ctx.obj, Invocation):
            return None
        from prov_host.cli_plugins import commands_of_plugins

        found = commands_of_plugins(ctx.obj)
        if cmd_name in found.commands:
            return found.commands[cmd_name]
        for problem in found.problems:
            click.echo(f"prov-host: {problem}", err=True)
        near = difflib.get_close_matches(cmd_name, [*self.list_commands(ctx), *found.commands], n=1)
        if near:
            raise click.UsageError(f"No such command {cmd_name!r}; did you mean {near[0]}?", ctx)
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List commands: the built-in ones, and those of selected plugins; no other plugin is imported."""
        super().format_commands(ctx, formatter)
        found = None
        # Whatever is wrong with the settings is no reason to give no help.
        with contextlib.suppress(ConfigurationError):
            if isinstance(ctx.obj, Invocation) and ctx.obj.settings([]).host.plugin:
                from prov_host.cli_plugins import commands_of_plugins

                found = commands_of_plugins(ctx.obj, limit=_HELP_LIMIT)
        with formatter.section("Commands of plugins"):
            if found and found.commands:
                formatter.write_dl(
                    [(name, command.get_short_help_str(limit=90)) for name, command in sorted(found.commands.items())]
                )
            for problem in found.problems if found else ():
                formatter.write_text(problem)
            formatter.write_text("prov-host plugins --all lists what each installed plugin adds.")


def _parameters() -> list[click.Parameter]:
    parameters: list[click.Parameter] = [
        click.Option(
            ["--config", "config"],
            metavar="FILE",
            help=f"A TOML file with options and plugins' settings.  [{PREFIX}CONFIG]",
        )
    ]
    for option in options():
        names = [f"--{option.name}", *_ALIASES.get(option.field, ())]
        if option.flag:
            names = [f"--{option.name}/--no-{option.name}"]
        default = f"  [default: {option.default_text}]" if option.default_text else ""
        parameters.append(
            click.Option(
                [*names, option.field],
                default=None,
                multiple=option.repeatable,
                metavar=None if option.flag else _metavar(option),
                help=f"{option.description}{default}",
            )
        )
    parameters.append(
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_version,
            help="Show the version.",
        )
    )
    return parameters


def _metavar(option: Option) -> str:
    from prov_host.conversion import is_duration

    if is_duration(option.kind):
        return "DURATION"
    if option.field == "plugin":
        return "NAME"
    return "NUMBER" if isinstance(option.default, (int, float)) else "TEXT"


def _show_version(ctx: click.Context, parameter: click.Parameter, value: object) -> None:
    if value and not ctx.resilient_parsing:
        click.echo(f"prov-host {version()}")
        ctx.exit()


def _run(ctx: click.Context, **given: Any) -> None:
    if ctx.invoked_subcommand is None:
        from prov_host.cli_run import run

        assert isinstance(ctx.obj, Invocation)
        ctx.exit(run(ctx.obj))


cli = _Commands(
    "prov-host",
    invoke_without_command=True,
    params=_parameters(),
    callback=click.pass_context(_run),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120, "auto_envvar_prefix": None},
    help=f"""Provision Kubernetes volumes through plugins.

Without a command, run the host: prov-host --plugin NAME. Every option is also a variable, {PREFIX} and its name, like
{PREFIX}WORKER_THREADS, and a key of the TOML file; the command line comes first, then variables, then the file.
Durations are written like 500ms, 15s, 5m or 1h30m.
""",
)


def main(args: Sequence[str] | None = None) -> None:
    """The program: exits with 0, 1 (failed) or 2 (wrongly configured), and shows no traceback for users' errors.

    Args:
        args: the command line without the program's name; the process's by default.

    On the main thread. Since 0.1.
    """
    for stream in (sys.stdout, sys.stderr):
        # Names of files need not be text; printing one must not end the program.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    code: object
    try:
        cli.main(args=None if args is None else list(args), prog_name="prov-host")
    except SystemExit as end:
        code = end.code
    except ConfigurationError as error:
        for problem in error.problems:
            click.echo(f"prov-host: {problem}", err=True)
        code = 2
    except ProvHostError as error:
        click.echo(f"prov-host: {error}", err=True)
        code = 1
    except BrokenPipeError:  # the reader of our output is gone, like `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    _leave(code)


def _leave(code: object) -> NoReturn:
    """End the process, even if a plugin has left threads running that would keep it alive for ever."""
    mine = threading.main_thread()
    if any(not thread.daemon and thread is not mine for thread in threading.enumerate()):
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code if isinstance(code, int) else 1)
    sys.exit(code if isinstance(code, int) else 1)
