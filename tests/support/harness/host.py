"""The installed `prov-host` as a process of its own, as a user or kubelet runs it."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import urllib3

from harness import MissingPart
from harness.process import ChildProcess, ProcessFailed, free_ports

if TYPE_CHECKING:
    import signal
    from collections.abc import Mapping, Sequence
    from types import TracebackType

_KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "COVERAGE_PROCESS_START", "SSL_CERT_FILE")


def installed_program() -> str:
    """The `prov-host` of the running interpreter's environment, else of PATH."""
    candidates = [Path(sysconfig.get_path("scripts")) / "prov-host", Path(sys.executable).with_name("prov-host")]
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return str(candidate)
    found = shutil.which("prov-host")
    if found is None:
        raise MissingPart("prov-host is not installed: pip install -e .")
    return found


class HostProcess:
    """One replica of the host; a context manager that starts it, waits until it is ready, and stops it.

    Args:
        directory: for its log.
        args: command line after `prov-host`; `--http-address` is added.
        env: its whole environment but for PATH and the like: nothing of the test run's own configuration leaks in.
        name: what messages and the log file call it.
    """

    def __init__(
        self, directory: Path, args: Sequence[str], env: Mapping[str, str], *, name: str = "prov-host"
    ) -> None:
        self.directory = directory
        self.name = name
        self.args = list(args)
        self.env = {key: os.environ[key] for key in _KEPT if key in os.environ} | dict(env)
        self.address = ""
        self._process: ChildProcess | None = None
        self._http = urllib3.PoolManager(retries=False, timeout=urllib3.Timeout(connect=1, read=5))

    def start(self, *, ready: bool = True, timeout: float = 30.0) -> Self:
        """Start it; with `ready`, wait until /readyz says 200.

        Raises:
            ProcessFailed: it ended or was not ready in time; with the end of its log.
        """
        for attempt in range(3):
            (port,) = free_ports(1)
            self.address = f"127.0.0.1:{port}"
            argv = [installed_program(), *self.args, "--http-address", self.address]
            self._process = ChildProcess(self.name, argv, log=self.directory / f"{self.name}.log", env=self.env)
            if not ready:
                return self
            try:
                self._process.wait_until(self.ready, timeout=timeout)
            except ProcessFailed as error:
                self._process.kill()
                if attempt == 2 or "ddress already in use" not in str(error):
                    raise
            else:
                break
        return self

    @property
    def started(self) -> bool:
        """Whether it was ever started."""
        return self._process is not None

    @property
    def process(self) -> ChildProcess:
        """The process that was started last."""
        if self._process is None:
            raise ProcessFailed(f"{self.name} was never started")
        return self._process

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of one of its own pages; status 0 while nothing listens."""
        try:
            response = self._http.request("GET", f"http://{self.address}{path}")
        except urllib3.exceptions.HTTPError:
            return 0, ""
        return response.status, response.data.decode(errors="replace")

    def ready(self) -> bool:
        """Whether /readyz says 200."""
        return self.get("/readyz")[0] == 200

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.signal(number)

    def wait(self, timeout: float = 30.0) -> int:
        """Wait for its end; returns the exit code, negative for a signal."""
        return self.process.wait(timeout)

    def stop(self, timeout: float = 30.0) -> int:
        """SIGTERM, then SIGKILL after `timeout`; returns the exit code."""
        code = self.process.stop(timeout)
        self._http.clear()
        return code

    def log_text(self) -> str:
        """Everything it and its predecessors of the same name printed."""
        return self.process.log_text()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self._http.clear()


def usage_of(pid: int) -> tuple[float, int]:
    """CPU seconds so far and peak resident memory in bytes of a process, from /proc."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(stat[11]) + int(stat[12])
    status = Path(f"/proc/{pid}/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return ticks / os.sysconf("SC_CLK_TCK"), int(peak.split()[1]) * 1024


def run_program(args: Sequence[str], env: Mapping[str, str], *, timeout: float = 60.0) -> tuple[int, str, float]:
    """Run `prov-host` to its end; returns exit code, everything it printed and the seconds it took."""
    import subprocess

    started = time.monotonic()
    whole = {key: os.environ[key] for key in _KEPT if key in os.environ} | dict(env)
    done = subprocess.run(
        [installed_program(), *args],
        env=whole,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    return done.returncode, done.stdout, time.monotonic() - started
