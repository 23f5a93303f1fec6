"""Executes the blocks of one page, top to bottom."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from docpages.blocks import Block, blocks_of
from docpages.scratch import REPOSITORY, Scratch
from prov_host.errors import ApiError
from prov_host.plugins import discover, load
from prov_host.settings import read_settings

if TYPE_CHECKING:
    from prov_host.testing import EmbeddedCluster

_PARSERS = {".py": ast.parse, ".toml": tomllib.loads, ".json": json.loads, ".yaml": yaml.safe_load}
_SERVED = frozenset({"StorageClass", "PersistentVolumeClaim", "PersistentVolume", "Namespace", "Node", "Lease"})


class Page:
    """One page under test.

    Args:
        path: of the page.
        scratch: where it is executed.
        cluster: what its manifests are given to; its kubeconfig is in the scratch's environment.
    """

    def __init__(self, path: Path, scratch: Scratch, cluster: EmbeddedCluster) -> None:
        self.path = path
        self.scratch = scratch
        self.cluster = cluster
        self._namespace: dict[str, Any] = {"__name__": "__docs__"}

    def execute(self) -> int:
        """Execute every block.

        Returns:
            How many there were.

        Raises:
            AssertionError: a block does not work; begins with where it is.
        """
        blocks = blocks_of(self.path)
        for block in blocks:
            try:
                self._execute(block)
            except Exception as error:
                error.add_note(f"in the block at {block.where}")
                raise
        return len(blocks)

    def _execute(self, block: Block) -> None:
        if block.title:
            self._write(block)
        elif block.background:
            self.scratch.start(block.text, block.ready)
        elif block.language == "sh":
            self.scratch.run(block.text)
        elif block.language == "console":
            self._transcript(block)
        elif block.language == "python":
            self._python(block)
        elif block.language == "toml":
            _settings(block.text)
        elif block.language == "yaml":
            self._manifests(block.text)
        elif block.language == "json":
            for line in [block.text] if block.text.lstrip().startswith(("[", "{\n")) else block.text.splitlines():
                json.loads(line)

    def _write(self, block: Block) -> None:
        path = (self.scratch.current() / block.title).resolve()
        assert self.scratch.work.resolve() in path.parents, f"{block.title} leads out of the page's directory"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text)
        if parse := _PARSERS.get(path.suffix):
            parse(block.text)

    def _python(self, block: Block) -> None:
        code = compile("\n" * block.line + block.text, str(block.page), "exec")
        before = os.getcwd()
        os.chdir(self.scratch.current())
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(code, self._namespace)
        finally:
            os.chdir(before)

    def _transcript(self, block: Block) -> None:
        command, expected = "", ""
        for line in [*block.text.splitlines(), "$ :"]:
            if line.startswith("> ") and not expected:
                command += "\n" + line[2:]
            elif line.startswith("$ "):
                if command:
                    output = self.scratch.run(command, may_fail=True)
                    assert _matches(expected, output), f"{command}\nprinted\n{output}\nand the page says\n{expected}"
                command, expected = line[2:], ""
            else:
                expected += line + "\n"

    def _manifests(self, text: str) -> None:
        for obj in yaml.safe_load_all(text):
            if not isinstance(obj, dict) or "kind" not in obj:
                continue  # a fragment, a values file
            assert obj.get("apiVersion"), f"{obj['kind']} has no apiVersion"
            assert obj.get("metadata", {}).get("name"), f"{obj['kind']} has no name"
            if obj["kind"] in _SERVED:
                try:
                    self.cluster.create(obj)
                except ApiError as error:
                    if error.reason != "AlreadyExists":
                        raise


def _settings(text: str) -> None:
    """Read a settings file as the host would: unknown keys, wrong types and wrong values are errors."""
    tables = tomllib.loads(text)
    candidates = [one for one in discover() if one.name in tables]
    installed = [one.name for one in candidates]
    for example in (REPOSITORY / "examples").iterdir():
        if example.name in tables and example.name not in installed:
            return  # its own package's tests read it
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"docs-settings-{os.getpid()}.toml"
    path.write_text(text)
    try:
        settings = read_settings({}, environment={}, path=str(path), installed=installed)
        loaded = load(installed, candidates)
        loaded.raise_if_asked()
        for plugin in loaded.working:
            settings.for_plugin(plugin.name, plugin.own.settings_type())
    finally:
        path.unlink()


def _matches(expected: str, output: str) -> bool:
    """Whether an output is what a page shows; ``...`` stands for anything, and the width of gaps does not count."""
    pattern = ""
    for line in expected.strip("\n").splitlines():
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*".join(re.escape(part) for part in _gapless(line).split("...")) + r"\n"
    said = [_gapless(line) for line in output.strip("\n").splitlines()]
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in said)) is not None


def _gapless(line: str) -> str:
    return " ".join(line.split())
