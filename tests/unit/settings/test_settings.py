from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prov_host.errors import ConfigurationError
from prov_host.host_options import options
from prov_host.settings import Settings, plugin_variable, read_settings

INSTALLED = ("nfs", "nfs_subdir", "hostpath")


def read(given: dict[str, Any] | None = None, env: dict[str, str] | None = None, path: Path | str = "") -> Settings:
    return read_settings(given or {}, env or {}, path=str(path), installed=INSTALLED)


def problems(
    given: dict[str, Any] | None = None, env: dict[str, str] | None = None, path: Path | str = ""
) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        read(given, env, path)
    return caught.value.problems


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "prov-host.toml"


def test_the_command_line_beats_the_environment_beats_the_file_beats_the_default(file: Path) -> None:
    file.write_text("worker-threads = 3\n")
    assert read().controller.worker_threads == 4
    assert read(path=file).controller.worker_threads == 3
    assert read(env={"PROV_HOST_WORKER_THREADS": "2"}, path=file).controller.worker_threads == 2
    given = {"worker_threads": "1"}
    assert read(given, {"PROV_HOST_WORKER_THREADS": "2"}, file).controller.worker_threads == 1


def test_the_file_may_be_named_by_a_variable(file: Path) -> None:
    file.write_text("worker_threads = 9\n")
    assert read(env={"PROV_HOST_CONFIG": str(file)}).controller.worker_threads == 9


def test_every_option_is_a_variable_and_a_key_of_the_file(file: Path) -> None:
    assert read(env={"PROV_HOST_RESYNC_PERIOD": "1h"}).controller.resync_period == 3600
    file.write_text(
        'plugin = ["a", "b"]\nresync-period = "1h"\nembedded = true\n[pv-create-backoff]\nduration = "2s"\n'
    )
    settings = read(path=file)
    assert settings.host.plugin == ("a", "b")
    assert settings.controller.resync_period == 3600
    assert settings.host.embedded
    assert settings.controller.pv_create_backoff is not None
    assert settings.controller.pv_create_backoff.duration == 2


def test_an_empty_variable_counts_as_not_set() -> None:
    assert read(env={"PROV_HOST_WORKER_THREADS": "", "ENABLE_LEADER_ELECTION": ""}).controller.worker_threads == 4


def test_names_and_variables_of_options_are_unique_and_none_hides_behind_a_service_link() -> None:
    names = [option.name for option in options()]
    assert len(set(names)) == len(names)
    assert all(option.description for option in options())
    every = {option.variable: "" for option in options()}
    assert read(env=every)  # none is taken for something else


def test_all_problems_come_in_one_message(file: Path) -> None:
    file.write_text('resync-period = 15\nlog-levle = "info"\n[hostpaht]\nx = 1\n')
    found = problems(
        {"worker_threads": "many"}, {"PROV_HOST_KUBE_API_QPS": "-1", "PROV_HOST_KUBE_API_BRUST": "1"}, file
    )
    typo = "variable PROV_HOST_KUBE_API_BRUST is not the name of an option or a setting of an installed plugin"
    assert set(found) == {
        f"{file}: log-levle is not the name of an option or an installed plugin; did you mean log-level?",
        f"{file}: hostpaht is not the name of an option or an installed plugin; did you mean hostpath?",
        f"{typo}; did you mean PROV_HOST_KUBE_API_BURST?",
        "--worker-threads: 'many': it must be a whole number",
        f'{file}: resync-period: 15 has no unit; write it in quotes, like "15s" or "5m"',
        "kube-api-qps must not be negative; 0 means no limit",
    }


def test_the_controllers_own_checks_are_among_the_problems() -> None:
    assert "worker-threads is 0; at least 1 is needed" in problems({"worker_threads": "0"})


@pytest.mark.parametrize("text", ["", "no toml", "x = "])
def test_a_file_that_is_no_toml_is_refused(file: Path, text: str) -> None:
    file.write_text(text)
    if not text:
        assert read(path=file).path == str(file)
        return
    assert "is not TOML" in problems(path=file)[0]


def test_a_missing_file_is_named(file: Path) -> None:
    assert problems(path=file) == (f"the configuration file {file} cannot be read: No such file or directory",)


@pytest.mark.parametrize("text", [None, "no toml"])
def test_a_file_that_cannot_be_read_is_told_alone_and_not_with_what_follows_from_that(
    file: Path, text: str | None
) -> None:
    if text:
        file.write_text(text)
    collected: list[str] = []
    with pytest.raises(ConfigurationError) as caught:
        read_settings({"worker_threads": "0"}, {}, path=str(file), installed=INSTALLED, problems=collected)
    assert len(caught.value.problems) == 1
    assert str(file) in caught.value.problems[0]


@pytest.mark.parametrize("plugin", ["hostpath", ("hostpath",), "nfs_subdir,hostpath", ("nfs_subdir", "hostpath")])
def test_plugins_are_repeated_or_separated_by_commas_wherever_they_are_said(plugin: str | tuple[str, ...]) -> None:
    given = plugin if isinstance(plugin, tuple) else (plugin,)
    text = ",".join(given)
    assert read({"plugin": given}).host.plugin == read(env={"PROV_HOST_PLUGIN": text}).host.plugin
    assert read({"plugin": given}).host.plugin == tuple(text.split(","))


def test_what_kubernetes_puts_into_the_environment_for_services_is_no_option() -> None:
    read(
        env={
            "PROV_HOST_SERVICE_HOST": "10.0.0.1",
            "PROV_HOST_SERVICE_PORT": "80",
            "PROV_HOST_SERVICE_PORT_HTTP": "80",
            "PROV_HOST_PORT": "tcp://10.0.0.1:80",
            "PROV_HOST_PORT_80_TCP": "tcp://10.0.0.1:80",
            "PROV_HOST_PORT_80_TCP_ADDR": "10.0.0.1",
            "PROV_HOST_METRICS_SERVICE_HOST": "10.0.0.2",
            "PROV_HOST_METRICS_PORT_8080_TCP_PROTO": "tcp",
        }
    )


@pytest.mark.parametrize(("text", "value"), [("f", False), ("False", False), ("T", True), ("1", True)])
def test_the_go_tools_leader_election_variable_is_honoured(text: str, value: bool) -> None:
    assert read(env={"ENABLE_LEADER_ELECTION": text}).host.leader_election is value


def test_a_wrong_leader_election_variable_is_fatal_and_ours_comes_first() -> None:
    assert "ENABLE_LEADER_ELECTION: 'no' is neither true" in problems(env={"ENABLE_LEADER_ELECTION": "no"})[0]
    env = {"ENABLE_LEADER_ELECTION": "true", "PROV_HOST_LEADER_ELECTION": "false"}
    assert read(env=env).host.leader_election is False


def test_the_pods_namespace_holds_the_leases() -> None:
    assert read(env={"POD_NAMESPACE": "storage"}).host.leader_election_namespace == "storage"


def test_the_go_provisioners_variables_alone_select_its_successor() -> None:
    env = {"NFS_SERVER": "s", "NFS_PATH": "/p", "PROVISIONER_NAME": "a/b"}
    assert read(env=env).host.plugin == ("nfs_subdir",)
    assert read({"plugin": ("hostpath",)}, env).host.plugin == ("hostpath",)
    assert read(env={"NFS_SERVER": "s"}).host.plugin == ()


def test_hooks_have_a_time_limit_unless_told_otherwise() -> None:
    assert read().controller.provision_timeout == 120
    assert read({"provision_timeout": "0"}).controller.provision_timeout == 0


@pytest.mark.parametrize("address", ["8080", "host", ":http", ":70000", ":"])
def test_a_wrong_http_address_is_refused(address: str) -> None:
    assert "write it like :8080 or 127.0.0.1:8080" in problems({"http_address": address})[0]


@pytest.mark.parametrize(
    ("address", "endpoint"), [(":8080", ("", 8080)), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:80", ("::1", 80))]
)
def test_an_http_address_is_host_and_port(address: str, endpoint: tuple[str, int]) -> None:
    assert read({"http_address": address}).host.http_endpoint() == endpoint


class Nested(msgspec.Struct):
    name: str
    size: int = 1


class Plugin(msgspec.Struct):
    mount: str
    exports: tuple[Nested, ...] = ()
    tags: tuple[str, ...] = ()
    strict: bool = True
    number: int = 1

    def __post_init__(self) -> None:
        if self.number == 13:
            raise ValueError("number must not be 13")


def test_a_plugins_settings_come_from_variables_then_the_file_then_defaults(file: Path) -> None:
    file.write_text('[nfs_subdir]\nmount = "/file"\nnumber = 5\n[[nfs_subdir.exports]]\nname = "a"\n')
    env = {"PROV_HOST_NFS_SUBDIR_MOUNT": "/env", "PROV_HOST_NFS_SUBDIR_TAGS": "x, y"}
    assert read(env=env, path=file).for_plugin("nfs_subdir", Plugin) == Plugin(
        mount="/env", exports=(Nested("a"),), tags=("x", "y"), number=5
    )


def test_nested_settings_in_a_variable_are_json() -> None:
    env = {"PROV_HOST_NFS_SUBDIR_MOUNT": "/m", "PROV_HOST_NFS_SUBDIR_EXPORTS": '[{"name": "a", "size": 3}]'}
    assert read(env=env).for_plugin("nfs_subdir", Plugin).exports == (Nested("a", 3),)


def test_all_problems_of_a_plugins_settings_come_together(file: Path) -> None:
    file.write_text('[nfs_subdir]\nmuont = "/m"\nstrict = "yes"\n')
    env = {"PROV_HOST_NFS_SUBDIR_NUMBER": "x", "PROV_HOST_NFS_SUBDIR_TASG": "x"}
    with pytest.raises(ConfigurationError) as caught:
        read(env=env, path=file).for_plugin("nfs_subdir", Plugin)
    typo = "variable PROV_HOST_NFS_SUBDIR_TASG is not the name of a setting of plugin nfs_subdir"
    assert caught.value.problems == (
        f"{file}: [nfs_subdir] muont is not the name of a setting of plugin nfs_subdir; did you mean mount?",
        f"{typo}; did you mean PROV_HOST_NFS_SUBDIR_TAGS?",
        "mount is required: set PROV_HOST_NFS_SUBDIR_MOUNT, or mount in the file's table [nfs_subdir]",
        f"{file}: [nfs_subdir] strict: it must be true or false",
        "PROV_HOST_NFS_SUBDIR_NUMBER: it must be a whole number",
    )


def test_a_plugins_own_check_of_its_settings_is_a_configuration_error() -> None:
    env = {"PROV_HOST_NFS_SUBDIR_MOUNT": "/m", "PROV_HOST_NFS_SUBDIR_NUMBER": "13"}
    with pytest.raises(ConfigurationError, match="number must not be 13"):
        read(env=env).for_plugin("nfs_subdir", Plugin)


def test_the_longest_plugin_name_owns_a_variable() -> None:
    class Short(msgspec.Struct):
        subdir_mount: str = ""

    settings = read(env={"PROV_HOST_NFS_SUBDIR_MOUNT": "/m"})
    assert settings.for_plugin("nfs", Short) == Short()
    assert settings.for_plugin("nfs_subdir", Plugin).mount == "/m"


def test_settings_of_a_plugin_that_has_none_are_refused() -> None:
    assert read().for_plugin("hostpath", None) is None
    with pytest.raises(ConfigurationError, match="PROV_HOST_HOSTPATH_ROOT"):
        read(env={"PROV_HOST_HOSTPATH_ROOT": "/x"}).for_plugin("hostpath", None)


def test_a_plugins_table_must_be_one(file: Path) -> None:
    file.write_text("hostpath = 3\n")
    with pytest.raises(ConfigurationError, match="must be a table"):
        read(path=file).for_plugin("hostpath", None)


def test_a_value_that_may_be_a_secret_is_not_repeated() -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(env={"PROV_HOST_NFS_SUBDIR_MOUNT": "/m", "PROV_HOST_NFS_SUBDIR_NUMBER": "hunter2"}).for_plugin(
            "nfs_subdir", Plugin
        )
    assert "hunter2" not in str(caught.value)


def test_variables_of_odd_plugin_names_are_valid_variable_names() -> None:
    assert plugin_variable("my.odd-name", "a_b") == "PROV_HOST_MY_ODD_NAME_A_B"


@given(
    st.dictionaries(
        st.sampled_from([option.variable for option in options()]), st.text(max_size=8).filter(lambda t: "\0" not in t)
    )
)
def test_any_environment_is_read_or_refused(env: dict[str, str]) -> None:
    with contextlib.suppress(ConfigurationError):
        assert read(env=env).controller.problems() == []
