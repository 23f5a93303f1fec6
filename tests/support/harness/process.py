"""One child process: its log goes to a file, and it never outlives the test run.

Three nets, because a forgotten API server keeps ports and half a gigabyte: the owner calls `stop`; an exit handler
stops what is left when the interpreter ends (Ctrl-C included); and the kernel ends the child when the parent is
killed, where `setpriv` is installed.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path


class ProcessFailed(Exception):
    """A process that ended or did not answer when it should have; the message ends with the last lines of its log."""


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on.

    All are held open until the last is found, so that they differ. Between this call and the use somebody else may
    take one: callers that start servers try again with new ports.
    """
    held = [socket.socket() for _ in range(count)]
    try:
        for sock in held:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in held]
    finally:
        for sock in held:
            sock.close()


class ChildProcess:
    """A started process, its log and its end.

    Args:
        name: what messages call it.
        argv: program and arguments.
        log: file that gets standard output and standard error; appended to, so that a restarted process keeps one log.
        env: the whole environment; None inherits ours.
        cwd: working directory.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self.argv = list(argv)
        setpriv = shutil.which("setpriv")
        # SIGKILL, not SIGTERM: the parent is gone already, so there is nobody left to see an orderly end.
        guard = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                [*guard, *self.argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(env) if env is not None else None,
                cwd=cwd,
                start_new_session=True,
            )
        atexit.register(self.kill)

    @property
    def pid(self) -> int:
        """The process id; setpriv replaces itself, so it is the program's own."""
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._popen.poll()

    def log_text(self) -> str:
        """Everything it printed so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def log_tail(self, lines: int = 30) -> str:
        """The last lines it printed."""
        return "\n".join(self.log_text().splitlines()[-lines:])

    def failure(self, what: str) -> ProcessFailed:
        """An exception that says what went wrong and shows the end of the log."""
        state = "is running" if self.returncode is None else f"ended with {self.returncode}"
        return ProcessFailed(f"{self.name} {what} (it {state}; {self.log} ends with)\n{self.log_tail()}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process alone, as kubelet does."""
        if self._popen.poll() is None:
            self._popen.send_signal(number)

    def wait(self, timeout: float) -> int:
        """Wait for the end; raises ProcessFailed when it is not over after `timeout` seconds."""
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise self.failure(f"still runs after {timeout:g} s") from None

    def wait_until(self, ready: Callable[[], bool], *, timeout: float, interval: float = 0.05) -> None:
        """Poll `ready` until it is true; raises ProcessFailed when the process ends first or the time is over."""
        deadline = time.monotonic() + timeout
        while not ready():
            if self.returncode is not None:
                raise self.failure("ended before it was ready")
            if time.monotonic() > deadline:
                raise self.failure(f"is not ready after {timeout:g} s")
            time.sleep(interval)

    def kill(self) -> None:
        """End the whole process group at once; harmless when it ended already."""
        atexit.unregister(self.kill)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()

    def stop(self, timeout: float = 10.0) -> int:
        """Ask with SIGTERM, insist with SIGKILL on the group after `timeout` seconds; returns the exit code."""
        self.signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout)
        self.kill()
        return self._popen.wait()


def stop_all(processes: Iterable[ChildProcess], timeout: float = 10.0) -> None:
    """Stop every process, even when stopping one fails."""
    errors: list[Exception] = []
    for process in processes:
        try:
            process.stop(timeout)
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]
