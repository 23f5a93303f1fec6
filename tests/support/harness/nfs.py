"""A real NFS server, nfs-ganesha, and files written and read through it the way a pod would, without mounting.

NFSv4.1 only, so neither rpcbind nor lockd is needed. The server exports one directory under its own path, therefore a
volume's `spec.nfs.path` is at once the path on this machine's disk and the path on the server. Its attribute cache is
off, because the plugin under test works on the disk behind it.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from harness import MissingPart
from harness.process import ChildProcess, ProcessFailed, free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    import nfs_rs

_HOW = "install the NFS server: apt-get install nfs-ganesha nfs-ganesha-vfs (Debian's names)"
_CONFIG = """\
NFS_CORE_PARAM {{
    Protocols = 4;
    NFS_Port = {port};
    Bind_addr = 127.0.0.1;
    Enable_NLM = false;
    Enable_RQUOTA = false;
}}
NFSV4 {{
    Graceless = true;
    Allow_Numeric_Owners = true;
    Only_Numeric_Owners = true;
    RecoveryBackend = fs;
}}
EXPORT {{
    Export_Id = 1;
    Path = "{path}";
    Pseudo = "{path}";
    Access_Type = RW;
    Squash = No_Root_Squash;
    Protocols = 4;
    SecType = sys;
    Attr_Expiration_Time = 0;
    FSAL {{ Name = VFS; }}
}}
"""


class NfsServer:
    """nfs-ganesha that exports one directory; a context manager that starts and stops it.

    Args:
        directory: for its configuration, log and state.
        export: the exported directory; made when missing.

    Attributes:
        server: what a PV's `spec.nfs.server` must say.
        path: the export's path, what `spec.nfs.path` starts with.
    """

    server = "127.0.0.1"

    def __init__(self, directory: Path, export: Path) -> None:
        program = shutil.which("ganesha.nfsd", path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        if program is None:
            raise MissingPart(f"ganesha.nfsd is not on this machine; {_HOW}")
        if os.geteuid() != 0:
            raise MissingPart(
                "ganesha.nfsd opens files by handle, which only root may (CAP_DAC_READ_SEARCH): run the tests as root"
            )
        self._program = program
        self.directory = directory
        self.export = export.resolve()
        self.path = str(self.export)
        self.port = 0
        self._process: ChildProcess | None = None

    def start(self) -> Self:
        """Start it and wait until a client can connect.

        Raises:
            ProcessFailed: with the end of its log.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        self.export.mkdir(parents=True, exist_ok=True)
        for attempt in range(3):
            try:
                self._start()
            except ProcessFailed as error:
                self.stop()
                if attempt == 2 or "Address already in use" not in str(error):
                    raise
            else:
                break
        return self

    def _start(self) -> None:
        (self.port,) = free_ports(1)
        config = self.directory / "ganesha.conf"
        config.write_text(_CONFIG.format(port=self.port, path=self.path))
        log = self.directory / "ganesha.log"
        argv = [self._program, "-F", "-f", str(config), "-L", str(log), "-p", str(self.directory / "ganesha.pid")]
        self._process = ChildProcess("ganesha.nfsd", argv, log=self.directory / "ganesha.out")
        self._process.log = log  # it writes everything there, the output stays empty
        self._process.wait_until(self._answers, timeout=30)

    def _answers(self) -> bool:
        try:
            with self.connect() as client:
                client.stat(self.path)
        except Exception:
            return False
        return True

    @contextmanager
    def connect(self) -> Iterator[nfs_rs.Client]:
        """A client of the server's pseudo root; paths are those of the disk."""
        import nfs_rs

        # The pseudo root, because the client cannot list an export's own root. noresvport: ports below 1024 need
        # privileges.
        client = nfs_rs.Client.connect(f"nfs://{self.server}/?version=4.1&nfsport={self.port}&noresvport=true")
        try:
            yield client
        finally:
            client.close()

    def write(self, volume: Mapping[str, Any], name: str, data: bytes) -> None:
        """Write a file into a PersistentVolume through its `spec.nfs`."""
        with self.connect() as client, client.open(f"{self._source(volume)}/{name}", "wb") as file:
            file.write(data)

    def read(self, volume: Mapping[str, Any], name: str) -> bytes:
        """Read a file of a PersistentVolume through its `spec.nfs`."""
        with self.connect() as client, client.open(f"{self._source(volume)}/{name}", "rb") as file:
            return bytes(file.read())

    def _source(self, volume: Mapping[str, Any]) -> str:
        source = volume["spec"]["nfs"]
        if source["server"] != self.server:
            raise AssertionError(f"volume {volume['metadata']['name']} is on {source['server']}, not on {self.server}")
        return str(source["path"]).rstrip("/")

    def stop(self) -> None:
        """Stop it; harmless when it does not run."""
        if self._process is not None:
            # Nothing here needs its grace; an orderly end takes it seconds.
            self._process.kill()
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
