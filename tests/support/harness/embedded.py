"""The embedded cluster in a process of its own, used like the real control plane: through HTTP and a kubeconfig."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

from harness.client import ApiClient
from harness.process import ChildProcess

if TYPE_CHECKING:
    from types import TracebackType


class EmbeddedCluster:
    """`prov_host.embedded`, serving on loopback; a context manager that starts and stops it.

    Args:
        directory: for its log and its kubeconfig.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.kubeconfig = directory / "embedded.kubeconfig"
        self.client = ApiClient("http://127.0.0.1:1")
        self._process: ChildProcess | None = None

    def start(self) -> Self:
        """Start it and wait until it answers."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._process = ChildProcess(
            "embedded cluster",
            [sys.executable, str(Path(__file__).with_name("serve_embedded.py"))],
            log=self.directory / "embedded.log",
        )
        process = self._process
        # A whole line: half of the address could have been written.
        process.wait_until(lambda: "serving http" in process.log_text().rpartition("\n")[0], timeout=30)
        self.client = ApiClient(process.log_text().partition("serving ")[2].split()[0])
        self.client.write_kubeconfig(self.kubeconfig)
        process.wait_until(self.client.ready, timeout=30)
        return self

    def log_tails(self, lines: int = 15) -> str:
        """The last lines of its log."""
        return self._process.log_tail(lines) if self._process else ""

    def stop(self) -> None:
        """Stop it."""
        self.client.close()
        if self._process is not None:
            self._process.stop(2.0)
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
