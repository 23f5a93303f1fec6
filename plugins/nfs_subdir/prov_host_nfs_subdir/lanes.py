"""Waiting for a share that may not answer: each export has a lane of its own.

A call into a hung NFS mount cannot be interrupted; its thread is lost until the server answers. So no thread of the
host makes such calls. Each operation runs in a thread of its export's lane, at most so many at once, and the host's
thread waits for it with a limit: then it says that it timed out and is free for other exports. The operation goes on;
the host calls again, and gets its result. While one operation has been stuck for some time, further ones on that export
are refused at once instead of queueing up behind it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

from prov_host import HostContext
from prov_host.starting import NoThread, start_thread

__all__ = ["Lane", "Late"]

_T = TypeVar("_T")
PATIENCE = 30.0
"""Seconds the host's thread waits for one operation."""
STUCK = 10.0
"""Seconds after which an operation counts as stuck."""


class Late(Exception):
    """The export does not answer in time.

    Attributes:
        running: whether the operation may still be running; it was not begun otherwise.
    """

    def __init__(self, message: str, *, running: bool) -> None:
        super().__init__(message)
        self.running = running


class _Job:
    def __init__(self, operation: str, identity: str, started: float) -> None:
        self.operation = operation
        self.identity = identity
        self.started = started
        self.done = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None


class Lane:
    """The operations of one export. Any thread. Since 0.1.

    Args:
        name: the export's name.
        limit: operations at once.
        host: for its clock.
        patience: seconds to wait for one.
    """

    def __init__(self, name: str, limit: int, host: HostContext, *, patience: float = PATIENCE) -> None:
        self.name = name
        self._host = host
        self._patience = patience
        self._slots = threading.BoundedSemaphore(limit)
        self._lock = threading.Lock()
        self._jobs: dict[str, _Job] = {}

    def run(self, operation: str, volume: str, function: Callable[[], _T], *, identity: str = "") -> _T:
        """Run an operation, or go on waiting for the one that an earlier call began.

        Args:
            operation: its name.
            volume: the volume it is about; one operation at a time for each.
            function: does it.
            identity: what makes the volume this very one (its uid): a late result about another one of that name is
                not the answer.

        Returns:
            What the function returned.

        Raises:
            Late: not in time.
            BaseException: what the function raised.
        """
        job = self._join(operation, identity, volume) or self._begin(operation, identity, volume, function)
        if not job.done.wait(self._patience):
            raise Late(
                f"timed out: export {self.name!r} has not answered for {self._age(job):.0f} s; the operation is still "
                "running and is asked for again",
                running=True,
            )
        with self._lock:
            if self._jobs.get(volume) is job:
                del self._jobs[volume]
        if job.error is not None:
            raise job.error
        return cast("_T", job.result)

    def stuck_for(self) -> float:
        """Seconds the oldest operation has been running if that is too long, else 0."""
        with self._lock:
            ages = [self._age(job) for job in self._jobs.values() if not job.done.is_set()]
        oldest = max(ages, default=0.0)
        return oldest if oldest >= STUCK else 0.0

    def _age(self, job: _Job) -> float:
        return self._host.clock.monotonic() - job.started

    def _join(self, operation: str, identity: str, volume: str) -> _Job | None:
        with self._lock:
            job = self._jobs.get(volume)
            if job is None or (job.operation, job.identity) == (operation, identity):
                return job
            if job.done.is_set():
                del self._jobs[volume]
                return None
        raise Late(
            f"timed out: export {self.name!r} has not finished the {job.operation} of volume {volume} for "
            f"{self._age(job):.0f} s",
            running=True,
        )

    def _begin(self, operation: str, identity: str, volume: str, function: Callable[[], _T]) -> _Job:
        if stuck := self.stuck_for():
            raise Late(
                f"timed out: export {self.name!r} has not answered for {stuck:.0f} s; nothing was begun",
                running=False,
            )
        if not self._slots.acquire(timeout=self._patience):
            raise Late(
                f"timed out: export {self.name!r} has been busy for {self._patience:.0f} s; nothing was begun",
                running=False,
            )
        job = _Job(operation, identity, self._host.clock.monotonic())
        with self._lock:
            self._jobs[volume] = job

        def work() -> None:
            try:
                job.result = function()
            except BaseException as error:  # noqa: BLE001 - handed to whoever waits
                job.error = error
            finally:
                self._slots.release()
                job.done.set()

        try:
            start_thread(threading.Thread(target=work, name=f"nfs_subdir-{self.name}-{operation}", daemon=True))
        except NoThread as error:
            self._slots.release()
            # Not thrown: whoever has come to wait for it meanwhile is told the same.
            job.error = Late(f"export {self.name!r}: {error}; nothing was begun", running=False)
            job.done.set()
        return job
