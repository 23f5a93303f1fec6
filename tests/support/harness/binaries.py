"""Where etcd, kube-apiserver and kube-controller-manager come from.

In this order: the directory that `KUBEBUILDER_ASSETS` names, the convention of envtest-style tools; a prebuilt
archive in `../shared/controlplane` beside the repository, unpacked once into the user's cache; what `make
controlplane` built into the same cache.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import tarfile
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from harness import MissingPart

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ("etcd", "kube-apiserver", "kube-controller-manager")
REPOSITORY = Path(__file__).resolve().parents[3]
_HOW = (
    "set KUBEBUILDER_ASSETS to a directory with etcd, kube-apiserver and kube-controller-manager, "
    "or run `make controlplane` (needs Go, about half an hour and 6 GB once)"
)


def cache_directory() -> Path:
    """The user's cache of this project; `make controlplane` and the archive are unpacked below it."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "prov-host"


def find_control_plane(repository: Path = REPOSITORY) -> Path:
    """The directory that holds the three programs.

    Raises:
        MissingPart: they are nowhere, or `KUBEBUILDER_ASSETS` names a directory without them.
    """
    named = os.environ.get("KUBEBUILDER_ASSETS")
    if named:
        lacking = _lacking(Path(named))
        if lacking:
            raise MissingPart(f"KUBEBUILDER_ASSETS={named} has no {', '.join(lacking)}: {_HOW}")
        return Path(named)
    for archive in _archives(repository.parent / "shared" / "controlplane"):
        return unpack(archive, cache_directory())
    for built in sorted(cache_directory().glob("controlplane-*-built"), reverse=True):
        if not _lacking(built):
            return built
    raise MissingPart(f"no Kubernetes control plane on this machine: {_HOW}")


def unpack(archive: Path, cache: Path) -> Path:
    """Unpack an archive into a directory of the cache named after its content; does nothing when it is there already.

    The archive must have the checksum that SHA256SUMS beside it says. Parallel callers wait for the first one, and a
    half unpacked directory is never seen under the final name.
    """
    digest = _expected_digest(archive)
    target = cache / f"{archive.name.removesuffix('.tar.xz')}-{digest[:12]}"
    if not _lacking(target):
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / "controlplane.lock"):
        if not _lacking(target):
            return target
        with archive.open("rb") as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
        if actual != digest:
            raise MissingPart(
                f"{archive} is damaged: its SHA-256 is {actual}, {archive.parent / 'SHA256SUMS'} says {digest}"
            )
        temporary = Path(tempfile.mkdtemp(prefix=".controlplane-", dir=cache))
        try:
            with tarfile.open(archive) as tar:
                tar.extractall(temporary, filter="data")
            lacking = _lacking(temporary)
            if lacking:
                raise MissingPart(f"{archive} has no {', '.join(lacking)}")
            if target.exists():  # an earlier one with a program missing
                shutil.rmtree(target)
            temporary.chmod(0o755)
            temporary.rename(target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return target


def _archives(directory: Path) -> list[Path]:
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    suffix = f"-{platform.system().lower()}-{machine}.tar.xz"
    return sorted(
        (path for path in directory.glob("controlplane-*.tar.xz") if path.name.endswith(suffix)), reverse=True
    )


def _expected_digest(archive: Path) -> str:
    sums = archive.parent / "SHA256SUMS"
    for line in sums.read_text().splitlines() if sums.exists() else []:
        digest, _, name = line.partition("  ")
        if name.strip() == archive.name:
            return digest
    raise MissingPart(f"{sums} has no checksum of {archive.name}; it is not unpacked unverified")


def _lacking(directory: Path) -> list[str]:
    return [name for name in NAMES if not os.access(directory / name, os.X_OK)]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
