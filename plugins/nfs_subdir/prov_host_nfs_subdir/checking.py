"""Readiness of one export: look at the share in a thread of its own, and do not wait for it for ever."""

from __future__ import annotations

import threading

from prov_host.starting import NoThread, start_thread
from prov_host_nfs_subdir.exports import ExportAtWork
from prov_host_nfs_subdir.lanes import Lane
from prov_host_nfs_subdir.metrics import Metrics
from prov_host_nfs_subdir.share import OpenShare

__all__ = ["Checker"]


class Checker:
    """Looks at one export's share. One caller at a time; since 0.1."""

    def __init__(self, work: ExportAtWork, lane: Lane, metrics: Metrics) -> None:
        self._work = work
        self._lane = lane
        self._metrics = metrics
        self._started = 0.0
        self._done: threading.Event | None = None
        self._found: list[str] = []

    def begin(self) -> None:
        """Begin to look, unless an earlier look has not ended."""
        if self._done is not None:
            return
        done = self._done = threading.Event()
        self._started = self._work.host.clock.monotonic()

        def look() -> None:
            try:
                found = self._work.share.problems(self._measure)
            except Exception as error:  # noqa: BLE001 - whatever it is, the share is not well
                found = [f"export {self._work.name!r}: {type(error).__name__}: {error}"]
            self._found = found
            done.set()

        try:
            start_thread(threading.Thread(target=look, name=f"nfs_subdir-{self._work.name}-check", daemon=True))
        except NoThread as error:
            self._found, self._done = [f"export {self._work.name!r} was not looked at: {error}"], None

    def _measure(self, share: OpenShare) -> None:
        space = share.root.space()
        self._metrics.free_bytes.labels(self._work.name).set(space.f_bavail * space.f_frsize)
        self._metrics.size_bytes.labels(self._work.name).set(space.f_blocks * space.f_frsize)

    def result(self) -> list[str]:
        """What is wrong, a sentence each; waits for the look that was begun, up to the time limit."""
        name, limit = self._work.name, self._work.settings.check_timeout
        if self._done is not None:
            waited = self._work.host.clock.monotonic() - self._started
            if not self._done.wait(max(limit - waited, 0.05)):
                waited = self._work.host.clock.monotonic() - self._started
                return [f"export {name!r}: the share at {self._work.export.mount} has not answered for {waited:.0f} s"]
            self._done = None
        if stuck := self._lane.stuck_for():
            return [*self._found, f"export {name!r}: an operation has not come back for {stuck:.0f} s"]
        return self._found
