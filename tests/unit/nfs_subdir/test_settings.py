"""Settings and the Go tool's environment: every problem at once, each saying where and what to do."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from prov_host import ConfigurationError
from prov_host.testing.context import FakeHost
from prov_host_nfs_subdir import NfsSubdirPlugin, NfsSubdirSettings
from prov_host_nfs_subdir.settings import Export, read_exports

GO = {"NFS_SERVER": "10.0.0.1", "NFS_PATH": "/exports/k8s", "PROVISIONER_NAME": "example.com/nfs"}


def read(environ: dict[str, str] | None = None, **settings: Any) -> tuple[Export, ...]:
    return read_exports(msgspec.convert(settings, NfsSubdirSettings), GO if environ is None else environ)


def test_the_go_tool_s_environment_alone_is_enough() -> None:
    (export,) = read({**GO, "NFS_DEFAULT_MODE": "0750", "NFS_DEFAULT_UID": "1000", "NFS_DEFAULT_GID": "2000"})
    assert (export.server, export.path, export.provisioners) == ("10.0.0.1", "/exports/k8s", ("example.com/nfs",))
    assert (export.mode, export.uid, export.gid) == (0o750, 1000, 2000)
    assert export.mount == "/persistentvolumes"
    assert not export.plain_directory


def test_settings_win_over_the_go_tool_s_environment() -> None:
    (export,) = read(server="other", path="/x/../y//", provisioner=["a", "b"], mount="/mnt/x", default_mode="0700")
    assert (export.server, export.path, export.provisioners) == ("other", "/y", ("a", "b"))
    assert (export.mount, export.mode) == ("/mnt/x", 0o700)


def test_every_missing_variable_is_named_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        read({})
    assert [word for word in GO if word in str(caught.value)] == list(GO)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NFS_DEFAULT_MODE", "0888"),
        ("NFS_DEFAULT_MODE", "1777"),
        ("NFS_DEFAULT_MODE", "0o777"),
        ("NFS_DEFAULT_MODE", "-1"),
        ("NFS_DEFAULT_UID", "-1"),
        ("NFS_DEFAULT_UID", "99999"),
        ("NFS_DEFAULT_GID", "1e3"),
        ("NFS_DEFAULT_GID", "١"),
        ("NFS_PATH", "exports"),
        ("NFS_PATH", "/../x"),
        ("NFS_SERVER", "a b"),
        ("NFS_SERVER", "a:/b"),
    ],
)
def test_a_bad_value_is_fatal_and_named(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        read({**GO, name: value})


def test_several_exports_have_names_mounts_and_defaults_of_their_own() -> None:
    exports = read(
        {},
        provisioner=["example.com/nfs"],
        plain_directory=True,
        exports=[
            {"name": "fast", "server": "a", "path": "/f", "mount": "/mnt/f", "historical_paths": ["/old/f/"]},
            {
                "name": "slow",
                "server": "b",
                "path": "/s",
                "mount": "/mnt/s",
                "provisioners": ["example.com/slow"],
                "budget": "2Ti",
                "plain_directory": False,
                "default_uid": "7",
            },
        ],
    )
    fast, slow = exports
    assert fast.roots == ("/old/f", "/f")
    assert fast.provisioners == ("example.com/nfs",)
    assert fast.plain_directory
    assert slow.provisioners == ("example.com/slow",)
    assert slow.budget == 2 * 1024**4
    assert not slow.plain_directory
    assert slow.uid == 7


def test_everything_wrong_with_several_exports_is_said_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(
            {},
            capacity_check="sometimes",
            usage_interval="soon",
            removal_threads=0,
            exports=[
                {"name": "A b", "server": "a", "path": "/a", "mount": "/m"},
                {"name": "x", "server": "a", "path": "a", "mount": "/m", "provisioners": ["p"]},
                {"name": "x", "server": "", "path": "/a", "mount": "/m", "provisioners": ["p"], "budget": "lots"},
            ],
        )
    text = str(caught.value)
    for word in ("'A b'", "absolute", "`server`", "budget", "capacity_check", "usage_interval", "removal_threads"):
        assert word in text
    assert all(problem.startswith("nfs_subdir: ") for problem in caught.value.problems)


def test_two_exports_may_not_have_one_name_or_one_mount() -> None:
    both = [{"name": "x", "server": "a", "path": "/a", "mount": "/m", "provisioners": ["p"]}] * 2
    with pytest.raises(ConfigurationError, match="two exports have the name 'x'"):
        read({}, exports=both)


def test_numbers_are_taken_as_they_are_written_in_a_file() -> None:
    (export,) = read(default_uid=1000, default_gid=2000)
    assert (export.uid, export.gid) == (1000, 2000)


def test_the_plugin_serves_every_name_of_every_export() -> None:
    plugin = NfsSubdirPlugin({})
    settings = {
        "exports": [
            {"name": "a", "server": "a", "path": "/a", "mount": "/a", "provisioners": ["x", "y"]},
            {"name": "b", "server": "b", "path": "/b", "mount": "/b", "provisioners": ["y", "z"]},
        ]
    }
    plugin.configure(msgspec.convert(settings, NfsSubdirSettings), FakeHost())
    assert plugin.provisioners() == ("x", "y", "z")
    assert plugin.default_policy() == "archive"
    assert not plugin.supports_block()


# --- exports that are not apart --------------------------------------------------------------------------------------


def _two(first: dict[str, Any], second: dict[str, Any]) -> tuple[Export, ...]:
    one = {"name": "one", "server": "a", "path": "/one", "mount": "/mnt/one", **first}
    two = {"name": "two", "server": "a", "path": "/two", "mount": "/mnt/two", **second}
    reports = []
    for exports in ([one, two], [two, one]):  # the order does not matter
        try:
            found = read({}, provisioner=["example.com/nfs"], exports=exports)
        except ConfigurationError as error:
            reports.append(error)
    if reports:
        assert len(reports) == 2
        raise reports[0]
    return found


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"path": "/exports"}, {"path": "/exports/k8s"}),
        ({"path": "/exports/k8s"}, {"path": "/exports/k8s/"}),
        ({"path": "/"}, {"path": "/exports"}),
        ({"historical_paths": ["/two"]}, {}),
        ({"historical_paths": ["/"]}, {}),
        ({"historical_paths": ["/old"]}, {"historical_paths": ["/old/x"]}),
        ({"server": "A."}, {"path": "/one/x"}),
        ({"server": "b", "server_aliases": ["a"]}, {"path": "/one"}),
        ({"server": "b", "server_aliases": ["c"]}, {"server_aliases": ["C"], "path": "/one"}),
        ({"server": "::1"}, {"server": "[::1]", "path": "/one"}),
        ({"mount": "/mnt"}, {"mount": "/mnt/two"}),
        ({"mount": "/mnt/x"}, {"mount": "/mnt/y/../x"}),
        ({"server": "b", "mount": "/mnt/x"}, {"mount": "/mnt/x"}),
    ],
)
def test_exports_that_could_reach_each_other_s_volumes_are_refused(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    with pytest.raises(ConfigurationError, match=r"lie inside each other|same place|have the mount"):
        _two(first, second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {}),
        ({"path": "/exports/k8s"}, {"path": "/exports/k8s2"}),
        ({"server": "a", "path": "/x"}, {"server": "b", "path": "/x"}),
        ({"server": "a", "path": "/x"}, {"server": "b", "path": "/"}),
        ({"path": "/one", "historical_paths": ["/one/", "//one"]}, {}),
        ({"mount": "/mnt/a"}, {"mount": "/mnt/ab"}),
    ],
)
def test_exports_that_are_apart_are_accepted(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert len(_two(first, second)) == 2


@pytest.mark.parametrize("old", ["/exports/k8s/old", "/exports", "/"])
def test_an_earlier_path_that_is_ambiguous_is_refused(old: str) -> None:
    with pytest.raises(ConfigurationError, match="two directories"):
        read(historical_paths=[old])
    with pytest.raises(ConfigurationError, match="two directories"):
        read(historical_paths=["/a", "/a/b"])


@pytest.mark.parametrize("mount", ["/", "//", "/x/..", "/proc", "/proc/1/root", "/sys/fs", "/dev", "/mnt\n", "mnt"])
def test_a_mount_that_cannot_be_one_is_refused(mount: str) -> None:
    with pytest.raises(ConfigurationError, match="mount"):
        read(mount=mount)
    with pytest.raises(ConfigurationError, match="mount"):
        _two({"mount": mount}, {})


@pytest.mark.parametrize("path", ["/exports/k8s\n", "/a\x1b[2J", "/a\u202eb", "/a\udcff"])
def test_a_path_that_cannot_be_shown_is_refused(path: str) -> None:
    with pytest.raises(ConfigurationError, match="NFS_PATH"):
        read({**GO, "NFS_PATH": path})
    with pytest.raises(ConfigurationError, match="historical_paths"):
        read(historical_paths=[path])


@pytest.mark.parametrize("alias", ["", "a b", "a:/b", "[]", "x\n"])
def test_a_server_alias_must_be_a_server(alias: str) -> None:
    with pytest.raises(ConfigurationError, match="server_aliases"):
        read(server_aliases=[alias])
