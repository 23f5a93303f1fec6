from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import Result

from prov_host import CommandContext, hookimpl
from prov_host import cli as cli_module
from prov_host.cli import cli, main
from prov_host.errors import ConfigurationError
from prov_host.host_options import options
from prov_host.plugins import Candidate, discover
from prov_host.testing import EmbeddedCluster

Invoke = Callable[..., Result]


def test_help_names_every_option_and_command(invoke: Invoke) -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    for option in options():
        assert f"--{option.name}" in result.output
    for command in ("demo", "plugins", "new-plugin"):
        assert command in result.output


def test_help_imports_neither_the_sdk_nor_aiohttp_nor_the_metrics() -> None:
    script = (
        "import sys\n"
        "from prov_host.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as end:\n    code = end.code\n"
        "heavy = sorted({name.partition('.')[0] for name in sys.modules}"
        " & {'kubernetes', 'aiohttp', 'prometheus_client', 'yaml', 'pytest', 'hypothesis'})\n"
        "print('HEAVY', heavy, code)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "HEAVY [] 0" in done.stdout


def test_help_answers_well_below_a_second() -> None:
    def once() -> float:
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "prov_host", "--help"], capture_output=True, check=True)
        return time.perf_counter() - started

    assert min(once() for _ in range(3)) < 1.0


def test_the_module_is_the_program_too() -> None:
    done = subprocess.run([sys.executable, "-m", "prov_host", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("prov-host ")


@pytest.mark.parametrize(
    ("args", "value"),
    [
        (["--leader-election=false"], False),
        (["--leader-election=1"], True),
        (["--no-leader-election"], False),
        (["--leader-election"], True),
        ([], None),
    ],
)
def test_flags_may_be_written_as_go_users_write_them(args: list[str], value: bool | None) -> None:
    with cli.make_context("prov-host", [*args, "plugins"]) as context:
        assert context.params["leader_election"] is value


def test_a_wrong_flag_value_is_a_usage_error(invoke: Invoke) -> None:
    result = invoke("--leader-election=maybe", "plugins")
    assert result.exit_code == 2
    assert "neither true" in result.output


def test_names_that_users_of_other_provisioners_know_are_understood() -> None:
    with cli.make_context("prov-host", ["--threadiness", "7", "--metrics-address", ":1", "plugins"]) as context:
        assert context.params["worker_threads"] == "7"
        assert context.params["http_address"] == ":1"


def test_an_option_of_a_command_is_not_mistaken_for_a_flag_of_the_host() -> None:
    with cli.make_context("prov-host", ["plugins", "--embedded=x"]) as context:
        assert context.params["embedded"] is None


def test_bad_configuration_is_one_message_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--plugin", "nfs_subdri", "--worker-threads", "0", "--resync-period", "soon"])
    assert caught.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("prov-host: ") for line in lines)
    text = "\n".join(lines)
    assert "plugin nfs_subdri is not installed; did you mean nfs_subdir?" in text
    assert "worker-threads is 0; at least 1 is needed" in text
    assert "--resync-period: 'soon' is not a duration" in text


def test_without_a_plugin_it_says_which_are_installed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NFS_SERVER", "NFS_PATH", "PROVISIONER_NAME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert "no plugin is selected: say --plugin NAME (installed: " in err
    assert "nfs_subdir" in err


def test_plugins_lists_what_is_installed(invoke: Invoke) -> None:
    result = invoke("plugins")
    assert result.exit_code == 0
    row = next(line for line in result.output.splitlines() if line.startswith("nfs_subdir "))
    assert "prov-host" in row
    assert "not loaded" in row


def test_plugins_as_json_for_scripts(invoke: Invoke) -> None:
    rows = {row["name"]: row for row in json.loads(invoke("plugins", "--json").output)}
    assert rows["hostpath"] == {
        "name": "hostpath",
        "distribution": "prov-host",
        "version": rows["nfs_subdir"]["version"],
        "entryPoint": "prov_host_hostpath:HostpathPlugin",
        "status": "not loaded",
        "provisioners": [],
        "hooks": [],
        "wrappers": [],
        "commands": [],
        "threads": 0,
        "problems": [],
    }


@pytest.fixture
def with_candidates(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def put(*candidates: Candidate) -> None:
        everyone = (*discover(), *candidates)
        monkeypatch.setattr("prov_host.cli_plugins.discover", lambda: everyone)

    return put


def fake(name: str, target: object) -> Candidate:
    def load() -> object:
        if isinstance(target, BaseException):
            raise target
        return target

    return Candidate(name, f"{name}-dist", "1.2", f"{name}:Plugin", load)


class WithCommand:
    @hookimpl
    def commands(self, group: click.Group) -> None:
        @group.command()
        def greet() -> None:
            """Greet."""
            click.echo("hello")


class Asking:
    @hookimpl
    def commands(self, group: click.Group, context: CommandContext) -> None:
        @group.command()
        def ask() -> None:
            click.echo(f"{len(context.volumes())} {len(context.claims())}")


class Picky:
    @hookimpl
    def configure(self) -> None:
        raise ConfigurationError("picky: root is not set")


def many_names() -> object:
    class Plugin:
        @hookimpl
        def provisioners(self) -> list[str]:
            return [f"example.com/quite-a-long-name-{number}" for number in range(10)]

        @hookimpl
        def provision(self) -> None:
            raise NotImplementedError

        @hookimpl
        def delete(self) -> None:
            raise NotImplementedError

    return Plugin


def test_every_plugin_is_shown_with_what_is_wrong_with_it(invoke: Invoke, with_candidates: Callable[..., None]) -> None:
    with_candidates(
        fake("broken", ImportError("no boto3")), fake("leaver", SystemExit(3)), fake("greeter", WithCommand)
    )
    result = invoke("plugins", "--all", "--json")
    assert result.exit_code == 0, result.output
    rows = {row["name"]: row for row in json.loads(result.stdout)}
    assert rows["broken"]["status"] == "failed"
    assert rows["broken"]["problems"] == ["plugin broken (broken-dist 1.2) cannot be loaded: ImportError: no boto3"]
    assert "SystemExit: 3" in rows["leaver"]["problems"][0]
    assert rows["greeter"]["status"] == "ok"
    assert rows["greeter"]["commands"] == ["greet"]
    assert rows["hostpath"]["hooks"]


def test_a_plugin_that_was_asked_for_and_is_broken_fails_the_listing(
    invoke: Invoke, with_candidates: Callable[..., None]
) -> None:
    with_candidates(fake("broken", ImportError("no boto3")))
    result = invoke("--plugin", "broken", "plugins")
    assert result.exit_code == 1
    assert "no boto3" in result.output


def test_a_plugins_command_is_found(invoke: Invoke, with_candidates: Callable[..., None]) -> None:
    with_candidates(fake("greeter", WithCommand), fake("broken", ImportError("x")))
    assert invoke("--plugin", "greeter", "greet").output == "hello\n"
    assert invoke("greet").output == "hello\n"


def test_a_mistyped_command_gets_a_suggestion(invoke: Invoke, with_candidates: Callable[..., None]) -> None:
    with_candidates(fake("greeter", WithCommand))
    result = invoke("--plugin", "greeter", "gret")
    assert result.exit_code == 2
    assert "No such command 'gret'; did you mean greet?" in result.output


def test_an_unknown_command_shows_which_plugins_could_not_be_asked(
    invoke: Invoke, with_candidates: Callable[..., None]
) -> None:
    with_candidates(fake("broken", ImportError("no boto3")))
    result = invoke("--plugin", "broken", "frobnicate")
    assert result.exit_code == 2
    assert "plugin broken (broken-dist 1.2) cannot be loaded: ImportError: no boto3" in result.output


def test_errors_of_users_have_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(**options: object) -> None:
        raise ConfigurationError("a is wrong", "b is wrong")

    monkeypatch.setattr(cli_module.cli, "main", fail)
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 2
    assert capsys.readouterr().err == "prov-host: a is wrong\nprov-host: b is wrong\n"


def test_a_configuration_file_is_read(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("plugin = 3\n")
    result = invoke("--config", str(path), "plugins")
    assert isinstance(result.exception, ConfigurationError)
    assert f"{path}: plugin" in str(result.exception)


@pytest.mark.parametrize(
    "args",
    [
        ("--threadiness", "2", "--worker-threads", "3"),
        ("--threadiness=2", "--worker-threads=3"),
        ("--worker-threads", "2", "--worker-threads=3"),
        ("--leader-election", "--no-leader-election"),
        ("--leader-election=false", "--leader-election"),
        ("--config", "a", "--config", "b"),
    ],
)
def test_one_option_with_two_values_is_a_usage_error(invoke: Invoke, args: tuple[str, ...]) -> None:
    result = invoke(*args, "plugins")
    assert result.exit_code == 2
    assert "are the same option with different values" in result.output


def test_one_option_said_twice_alike_is_fine(invoke: Invoke) -> None:
    assert invoke("--threadiness", "2", "--worker-threads", "2", "plugins").exit_code == 0


@pytest.mark.parametrize(
    ("arg", "words"),
    [
        (
            "-leader-elect=false",
            "No such option: -leader-elect (options begin with two dashes); did you mean --leader-e",
        ),
        ("-http-address=:1", "No such option: -http-address (options begin with two dashes); did you mean --http-addr"),
        ("-kubeconfig", "did you mean --kubeconfig?"),
        ("-zzzzzz", "No such option: -zzzzzz (options begin with two dashes)"),
    ],
)
def test_an_option_with_one_dash_is_told_about_the_other(invoke: Invoke, arg: str, words: str) -> None:
    result = invoke(arg)
    assert result.exit_code == 2
    assert words in result.output


def test_a_value_may_begin_with_a_dash_or_be_a_commands_name() -> None:
    with cli.make_context("prov-host", ["--node-name", "-leader-elect", "--context", "demo", "plugins"]) as context:
        assert context.params["node_name"] == "-leader-elect"
        assert context.params["context"] == "demo"


def test_help_lists_the_commands_of_selected_plugins_only(invoke: Invoke, with_candidates: Callable[..., None]) -> None:
    with_candidates(fake("greeter", WithCommand), fake("broken", ImportError("no boto3")))
    text = invoke("--plugin", "greeter", "--help").output
    assert "greet  Greet." in text
    assert "boto3" not in text
    assert "greet " not in invoke("--help").output
    assert "greet  Greet." in invoke("--help", env={"PROV_HOST_PLUGIN": "greeter"}).output


def test_help_says_which_selected_plugin_has_none_to_give(invoke: Invoke, with_candidates: Callable[..., None]) -> None:
    with_candidates(fake("broken", ImportError("no boto3")))
    result = invoke("--plugin", "broken", "--help")
    assert result.exit_code == 0
    assert "plugin broken (broken-dist 1.2) cannot be loaded" in result.output


def test_help_is_given_whatever_is_wrong_with_the_settings(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("--config", str(tmp_path / "missing.toml"), "--plugin", "nfs_subdir", "--help")
    assert result.exit_code == 0
    assert "--worker-threads" in result.output


def test_help_for_a_built_in_plugin_is_quick_and_imports_nothing_heavy() -> None:
    script = (
        "import sys, time\n"
        "began = time.perf_counter()\n"
        "from prov_host.cli import main\n"
        "try:\n    main(['--plugin', 'nfs_subdir', '--help'])\nexcept SystemExit as end:\n    code = end.code\n"
        "heavy = sorted({name.partition('.')[0] for name in sys.modules} & {'kubernetes', 'aiohttp', 'yaml'})\n"
        "print('HEAVY', heavy, code, time.perf_counter() - began < 1)\n"
    )
    runs = [
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True) for _ in range(3)
    ]
    assert all("archives  " in run.stdout for run in runs)
    assert any("HEAVY [] 0 True" in run.stdout for run in runs), runs[0].stdout


def test_the_listing_fits_a_terminal_and_a_plugins_own_words_are_not_prefixed_twice(
    invoke: Invoke, with_candidates: Callable[..., None]
) -> None:
    with_candidates(
        fake("a-plugin-with-quite-a-long-name", many_names()), fake("greeter", WithCommand), fake("picky", Picky)
    )
    result = invoke("plugins", "--all")
    table = result.output.split("\n\n")[0].splitlines()
    assert max(map(len, table)) <= 120
    assert table[0].split() == ["PLUGIN", "DISTRIBUTION", "VERSION", "STATUS", "PROVISIONER", "NAMES", "COMMANDS"]
    assert "example.com/quite-a-long-name-9" in result.output  # in a line of its own, and not cut off
    assert "plugin picky (picky-dist 1.2): root is not set\n" in result.output


def test_all_about_one_plugin(invoke: Invoke, with_candidates: Callable[..., None]) -> None:
    with_candidates(fake("greeter", WithCommand), fake("broken", ImportError("no boto3")))
    result = invoke("plugins", "greeter")
    assert result.exit_code == 0
    assert {"plugin:            greeter", "hooks:             commands", "commands:          greet"} <= set(
        result.output.splitlines()
    )
    assert "nfs_subdir" not in result.output
    result = invoke("plugins", "broken")
    assert result.exit_code == 1
    assert "no boto3" in result.output


EMBEDDED = 'plugin = ["asking"]\nembedded = true\n'


def test_a_command_asks_no_embedded_cluster_and_says_so(
    invoke: Invoke, with_candidates: Callable[..., None], tmp_path: Path
) -> None:
    with_candidates(fake("asking", Asking))
    path = tmp_path / "c.toml"
    path.write_text(EMBEDDED)
    nowhere = {"HOME": str(tmp_path), "KUBECONFIG": "", "KUBERNETES_SERVICE_HOST": ""}
    result = invoke("--config", str(path), "ask", env=nowhere)
    assert isinstance(result.exception, ConfigurationError)
    assert "no way to the cluster" in str(result.exception)
    assert "commands start no embedded cluster; to ask that of a running prov-host, say --kubeconfig" in str(
        result.exception
    )


def test_a_command_names_the_cluster_it_asks_instead_of_an_embedded_one(
    invoke: Invoke, with_candidates: Callable[..., None], tmp_path: Path, cluster: EmbeddedCluster
) -> None:
    with_candidates(fake("asking", Asking))
    path = tmp_path / "c.toml"
    path.write_text(EMBEDDED)
    given = invoke("--config", str(path), "--kubeconfig", str(cluster.kubeconfig), "ask")
    assert (given.exit_code, given.output) == (0, "0 0\n")
    found = invoke("--config", str(path), "ask", env={"KUBECONFIG": str(cluster.kubeconfig)})
    assert found.exit_code == 0, found.output
    assert found.stdout == "0 0\n"
    assert found.stderr.count("embedded is ignored, asking http://127.0.0.1:") == 1


def test_a_run_still_has_one_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--plugin", "hostpath", "--embedded", "--kubeconfig", "x"])
    assert caught.value.code == 2
    assert "embedded runs a cluster of its own" in capsys.readouterr().err
