"""Emptying the trash: whole trees, in the background, with a bounded number of threads per export.

Nobody waits for this: a deleted volume's directory is out of everybody's reach after one rename. Threads take trees
from a queue; a thread that finds nothing to do makes the others move subtrees of theirs back into the trash, from
where it takes them, so one huge tree keeps all threads busy. What is in the trash when the process starts, because an
earlier one died, is found by :meth:`Trash.sweep`, which also tries again what could not be removed.
"""

from __future__ import annotations

import collections
import logging
import threading
from collections.abc import Callable

from prov_host.safedir import Removal, remove_tree
from prov_host.starting import NoThread, start_thread
from prov_host_nfs_subdir.metrics import Metrics
from prov_host_nfs_subdir.share import OpenShare, ShareProblem

__all__ = ["Trash"]

logger = logging.getLogger(__name__)

_LINGER = 5.0


class Trash:
    """The trash of one export. Any thread. Since 0.1.

    Args:
        export: the export's name.
        open_share: opens the proved share.
        threads: how many may remove at once.
        metrics: where to count.
    """

    def __init__(self, export: str, open_share: Callable[[], OpenShare], threads: int, metrics: Metrics) -> None:
        self._export = export
        self._open_share = open_share
        self._limit = threads
        self._metrics = metrics
        self._condition = threading.Condition()
        self._queue: collections.deque[str] = collections.deque()
        self._at_work: set[str] = set()
        self._threads = 0
        self._hungry = 0
        self._short = False
        self._closed = False

    def add(self, name: str) -> None:
        """Have an entry of the trash removed soon."""
        with self._condition:
            if self._closed or name in self._at_work:
                return
            if name not in self._queue:
                self._queue.append(name)
            # Also for one that is queued already: a thread that could not be started then may be had now.
            if self._threads < self._limit and self._hungry < len(self._queue):
                self._start()
            self._condition.notify()

    def _start(self) -> None:
        try:
            start_thread(threading.Thread(target=self._work, name=f"nfs_subdir-{self._export}-trash", daemon=True))
        except NoThread as error:
            if not self._short:
                logger.warning("export %s: the trash is emptied later: %s", self._export, error)
            self._short = True
        else:
            self._threads += 1
            self._short = False

    def sweep(self) -> int:
        """Have everything that is in the trash removed.

        Returns:
            How many entries there were.

        Raises:
            ShareProblem: the share is not the right one.
            OSError: it cannot be read.
        """
        try:
            with self._open_share() as share:
                names = share.trash.names()
        except ShareProblem as error:
            if not error.unused:
                raise
            return 0
        for name in names:
            self.add(name)
        return len(names)

    def wait(self, timeout: float) -> bool:
        """Wait until everything known was tried; returns whether that was in time."""
        with self._condition:
            return self._condition.wait_for(lambda: not self._queue and not self._at_work, timeout)

    def close(self) -> None:
        """Stop soon; what is left is found again by the next process."""
        with self._condition:
            self._closed = True
            self._queue.clear()
            self._condition.notify_all()

    def _work(self) -> None:
        while (name := self._take()) is not None:
            try:
                self._remove(name)
            except (OSError, ShareProblem) as error:
                logger.warning("export %s: trash entry %s stays for now: %s", self._export, name, error)
            except Exception:
                logger.exception("export %s: trash entry %s stays for now", self._export, name)
            finally:
                with self._condition:
                    self._at_work.discard(name)
                    self._condition.notify_all()

    def _take(self) -> str | None:
        with self._condition:
            self._hungry += 1
            self._condition.wait_for(lambda: self._queue or self._closed, _LINGER)
            self._hungry -= 1
            if not self._queue or self._closed:
                self._threads -= 1
                return None
            name = self._queue.popleft()
            self._at_work.add(name)
            return name

    def _remove(self, name: str) -> None:
        with self._open_share() as share:
            result = remove_tree(share.trash, name, spill=self._share_out, stop=lambda: self._closed)
        for spilled in result.spilled:
            self.add(spilled)
        self._tell(name, result)

    def _share_out(self) -> bool:
        # Read without the lock: a wrong answer costs one rename, or a moment of somebody's idleness.
        return (self._hungry > 0 or self._threads < self._limit) and len(self._queue) < self._limit and not self._closed

    def _tell(self, name: str, result: Removal) -> None:
        self._metrics.removed_files.labels(self._export).inc(result.files + result.directories)
        if result.done:
            logger.debug("export %s: emptied trash entry %s: %d files", self._export, name, result.files)
        elif not self._closed:
            self._metrics.removal_failures.labels(self._export).inc(result.failed)
            logger.warning(
                "export %s: %d entries of trash entry %s stay for now: %s",
                self._export,
                result.failed,
                name,
                "; ".join(result.problems),
            )
