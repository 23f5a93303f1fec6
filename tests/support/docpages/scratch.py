"""A directory with a Python environment of its own, where blocks of a page or steps of an author are run.

The environment sees the packages of the one that runs the tests through a ``.pth`` file: what is installed in it stays
in it, and nothing is downloaded, so the tests need no network and take no minutes. pip runs as a user would run it,
with the package index turned off and without an isolated build environment, which it would have to download.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Self

REPOSITORY = Path(__file__).resolve().parents[3]


class Scratch:
    """The directory, its environment, and what was started in it.

    Args:
        directory: made if it is missing.
        variables: added to the environment.
    """

    def __init__(self, directory: Path, variables: dict[str, str] | None = None) -> None:
        self.directory = directory
        self.work = directory / "work"
        self.environment = directory / "venv"
        self.work.mkdir(parents=True)
        venv.EnvBuilder(symlinks=True).create(self.environment)
        self._see_our_packages()
        binaries = self.environment / "bin"
        for name, module in (("pip", "pip"), ("pytest", "pytest"), ("prov-host", "prov_host")):
            self._script(binaries / name, f'exec python -m {module} "$@"')
        self._script(binaries / "make", _MAKE.format(repository=REPOSITORY))
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PROV_HOST_", "PYTEST_", "PIP_", "KUBE", "NFS_", "COV_")) and name != "PYTHONPATH"
        }
        self.variables = {
            **inherited,
            "PATH": os.pathsep.join([str(binaries), str(Path(sys.executable).parent), inherited.get("PATH", "")]),
            "VIRTUAL_ENV": str(self.environment),
            "HOME": str(directory),
            "PROJECT": str(REPOSITORY),
            "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "0",  # pip reads this one the wrong way round, and has to keep it so
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_ROOT_USER_ACTION": "ignore",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # an author's environment has pytest, and not our pytest plugins
            **(variables or {}),
        }
        self._state = directory / "state.sh"
        self._state.write_text(f"cd {_quoted(str(self.work))}\n")
        self._running: list[subprocess.Popen[bytes]] = []

    def _see_our_packages(self) -> None:
        site = Path(sysconfig.get_path("purelib", vars={"base": str(self.environment)}))
        ours = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
        # The sources of prov-host itself are found through the .pth file of its editable installation: `site` reads
        # .pth files only in directories that it is told of.
        (site / "ours.pth").write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in ours))

    def _script(self, path: Path, text: str) -> None:
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def run(self, script: str, *, timeout: float = 120.0, may_fail: bool = False) -> str:
        """Run bash commands; exported variables and the working directory go on to the next call.

        Args:
            script: what to run.
            timeout: seconds.
            may_fail: whether their exit code does not matter.

        Returns:
            Standard output and standard error, in one.

        Raises:
            AssertionError: one of them failed; says what it printed.
        """
        keep = f'export -p > {self._state}; echo cd "$(printf %q "$PWD")" >> {self._state}'
        whole = f"set -euo pipefail\nsource {self._state}\ntrap '{keep}' EXIT\n{script}\n"
        done = subprocess.run(
            ["bash", "-c", whole],
            cwd=self.work,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            check=False,
        )
        output = done.stdout.decode("utf-8", "replace")
        assert may_fail or done.returncode == 0, f"exit code {done.returncode} of\n{script}\n{output}"
        return output

    def current(self) -> Path:
        """The directory where the last commands left off."""
        return Path(self.run("pwd").strip())

    def start(self, script: str, ready: str, *, timeout: float = 30.0) -> None:
        """Start bash commands and wait until their output has a text.

        Raises:
            AssertionError: they ended, or did not say so in time.
        """
        log = self.directory / f"background-{len(self._running)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"set -euo pipefail\nsource {self._state}\n{script}\n"],
                cwd=self.work,
                env={**self.variables, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._running.append(process)
        for _ in range(int(timeout / 0.05)):
            said = log.read_text(errors="replace")
            if ready in said:
                return
            assert process.poll() is None, f"it ended with {process.returncode}:\n{script}\n{said}"
            try:
                process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
        raise AssertionError(f"not ready after {timeout} s, {ready!r} was not said:\n{script}\n{log.read_text()}")

    def close(self) -> None:
        """Stop what was started, in the group of processes that each made."""
        for process in self._running:
            if process.poll() is None:
                os.killpg(process.pid, 15)
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, 9)
                    process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# In the pages, `make` must not run the tests from inside of themselves: a target has to exist, and the demo runs.
_MAKE = """
for target in "$@"; do
  case "$target" in
    *=*|-*) ;;
    run) prov-host demo ;;
    *) PATH=/usr/bin:/bin make -n -C {repository} "$target" >/dev/null ;;
  esac
done
"""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
