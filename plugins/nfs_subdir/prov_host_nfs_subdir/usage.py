"""How much the volumes take: measured in the background, at a bounded rate, never deeper than is sane.

A walk opens one directory at a time by descending from the volume's own, so it holds two descriptors whatever the
depth, and a link or mount in the tree is never entered.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prov_host.safedir import Dir
from prov_host_nfs_subdir.capacity import promised
from prov_host_nfs_subdir.exports import ExportAtWork
from prov_host_nfs_subdir.locating import is_ours, parts_in, provisioned_by
from prov_host_nfs_subdir.metrics import Metrics
from prov_host_nfs_subdir.share import ShareProblem

__all__ = ["Usage", "UsageMeter", "measure"]

_MAX_DEPTH = 128
_BLOCK = 512


@dataclass(slots=True)
class Usage:
    """What one tree takes. Since 0.1.

    Attributes:
        used: bytes of disk, hard links counted once.
        files: entries of any kind.
        complete: False if something could not be looked at.
    """

    used: int = 0
    files: int = 0
    complete: bool = True


def measure(top: Dir, *, pause: Callable[[int], bool] = lambda _: False) -> Usage:
    """Add up a tree.

    Args:
        top: its top directory, readable.
        pause: told after each directory how many entries it had; may sleep; True ends the walk.

    Returns:
        What it takes, as far as it could be seen.
    """
    usage = Usage(used=top.stat().st_blocks * _BLOCK)
    linked: set[int] = set()
    todo: list[tuple[str, ...]] = [()]
    while todo:
        parts = todo.pop()
        try:
            with top.walk(parts, readable=True) as directory:
                count = 0
                for entry in directory.entries():
                    count += 1
                    status = directory.lstat(entry.name)
                    if status is None:
                        continue
                    usage.files += 1
                    if status.st_nlink > 1 and not entry.is_dir:
                        if status.st_ino in linked:
                            continue
                        linked.add(status.st_ino)
                    usage.used += status.st_blocks * _BLOCK
                    if entry.is_dir and len(parts) < _MAX_DEPTH:
                        todo.append((*parts, entry.name))
                    elif entry.is_dir:
                        usage.complete = False
        except OSError:
            usage.complete = False
            continue
        if pause(count + 1):
            usage.complete = False
            break
    return usage


class UsageMeter:
    """Measures the volumes of one export again and again. One thread. Since 0.1.

    Args:
        work: the export.
        metrics: where the results go.
        closed: set when the plugin stops.
    """

    def __init__(self, work: ExportAtWork, metrics: Metrics, closed: threading.Event) -> None:
        self._work = work
        self._metrics = metrics
        self._closed = closed
        self._shown: set[tuple[str, str, str]] = set()

    def run(self) -> None:
        """Measure every volume once."""
        work = self._work
        self._metrics.promised_bytes.labels(work.name).set(promised(work))
        shown: set[tuple[str, str, str]] = set()
        for labels, parts in self._ours():
            try:
                with work.share.open(begin=False) as share, share.root.walk(parts, readable=True) as top:
                    usage = measure(top, pause=self._pause)
            except (OSError, ValueError):
                continue
            except ShareProblem as error:
                if error.unused:
                    return
                raise
            if self._closed.is_set():
                return
            shown.add(labels)
            self._metrics.used_bytes.labels(work.name, *labels).set(usage.used)
            self._metrics.used_files.labels(work.name, *labels).set(usage.files)
        for labels in self._shown - shown:
            for gauge in (self._metrics.used_bytes, self._metrics.used_files):
                gauge.remove(work.name, *labels)
        self._shown = shown
        self._metrics.measured.labels(work.name).set(work.host.clock.now().timestamp())

    def _ours(self) -> Iterator[tuple[tuple[str, str, str], tuple[str, ...]]]:
        for volume in self._work.host.volumes():
            parts = parts_in(self._work.export, volume)
            if parts and (is_ours(volume) or provisioned_by(volume) in self._work.export.provisioners):
                namespace, _, claim = volume.claim_key.partition("/")
                yield (volume.name, namespace, claim), parts

    def _pause(self, looked_at: int) -> bool:
        return self._closed.wait(looked_at / self._work.settings.usage_rate)
