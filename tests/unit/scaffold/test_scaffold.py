"""`prov-host new-plugin` writes a whole package, or nothing."""

from __future__ import annotations

import ast
import os
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from prov_host import ConfigurationError
from prov_host.scaffold import FILES, names_for, write_plugin
from prov_host.scaffold.command import new_plugin


def test_all_names_follow_from_one() -> None:
    assert names_for("zfs-pool") == {
        "name": "zfs_pool",
        "distribution": "prov-host-zfs-pool",
        "package": "prov_host_zfs_pool",
        "class_name": "ZfsPool",
        "provisioner": "example.com/zfs-pool",
        "variable": "PROV_HOST_ZFS_POOL",
    }
    assert names_for("zfs_pool") == names_for("zfs-pool")


@pytest.mark.parametrize(
    "name",
    ["", "-", "a b", "A", "1st", "a--b", "a__b", "a-", "../x", "a/b", "a\n", "a.b", "\u00e9", "x" * 41, "$x", "--help"],
)
def test_a_name_that_cannot_work_is_refused_with_an_example(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="for example zfs-pool"):
        write_plugin(name, tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("all", "--plugin all selects every installed plugin"),
        ("import", "'import' is a Python keyword"),
        ("class", "'class' is a Python keyword"),
        ("async", "for example async-storage"),
    ],
)
def test_a_name_that_means_something_else_is_refused_and_says_what(name: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        names_for(name)


@pytest.mark.parametrize("name", ["nfs-subdir", "hostpath", "prov-host", "tests"])
def test_a_name_that_is_taken_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="is taken"):
        names_for(name)


@settings(deadline=None)
@given(st.text(max_size=50))
def test_any_text_is_a_good_name_or_refused(name: str) -> None:
    try:
        names = names_for(name)
    except ConfigurationError:
        return
    assert names["package"].isidentifier()
    assert names["class_name"].isidentifier()
    assert names["package"].isascii()


def test_every_file_is_written_and_can_be_read(tmp_path: Path) -> None:
    target = tmp_path / "new"
    written = write_plugin("zfs-pool", target)
    assert sorted(written) == sorted(path for path in target.rglob("*") if path.is_file())
    assert len(written) == len(FILES)
    for path in written:
        text = path.read_text(encoding="utf-8")
        assert "$" not in text or path.suffix == ".md"
        if path.suffix == ".py":
            ast.parse(text)
            assert max(len(line) for line in text.splitlines()) <= 120
    project = tomllib.loads((target / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["prov_host"] == {"zfs_pool": "prov_host_zfs_pool:ZfsPoolPlugin"}


def test_an_empty_directory_is_filled(tmp_path: Path) -> None:
    assert write_plugin("zfs-pool", tmp_path)


def test_a_directory_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    with pytest.raises(ConfigurationError, match="is not empty"):
        write_plugin("zfs-pool", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_a_file_in_the_way_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "new").write_text("data")
    with pytest.raises(ConfigurationError, match="cannot write to"):
        write_plugin("zfs-pool", tmp_path / "new")
    assert (tmp_path / "new").read_text() == "data"


def test_a_missing_parent_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        write_plugin("zfs-pool", tmp_path / "a" / "b")


def test_a_failure_half_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Path.open

    def full_disk(self: Path, *args: str, **options: str) -> object:
        if self.name == "settings.py":
            raise OSError(28, "No space left on device", str(self))
        return whole(self, *args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", full_disk)
    with pytest.raises(ConfigurationError, match=r"settings\.py: No space left"):
        write_plugin("zfs-pool", tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_what_it_wrote_and_what_is_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(new_plugin, ["zfs-pool"])
    assert result.exit_code == 0, result.output
    assert "wrote prov-host-zfs-pool/pyproject.toml" in result.output
    assert "python -m pytest" in result.output
    assert os.listdir(tmp_path) == ["prov-host-zfs-pool"]


def test_the_command_refuses_without_a_traceback(tmp_path: Path) -> None:
    result = CliRunner().invoke(new_plugin, ["Zfs", str(tmp_path / "x")])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("prov-host new-plugin: 'Zfs' cannot be a plugin's name")
