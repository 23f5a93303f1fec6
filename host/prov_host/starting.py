"""Starts a thread, or says so.

A container has a limit of processes and threads, and a neighbour or a plugin may use it up for a moment. Starting a
thread fails then, and whoever starts one must be able to go on afterwards: nothing may count on a thread that never
was. So every thread of the host and of its plugins is started here, and :exc:`NoThread` names the one that is missing.
"""

from __future__ import annotations

import threading

from prov_host.errors import ProvHostError

__all__ = ["NoThread", "start_thread"]


class NoThread(ProvHostError):
    """A thread could not be started: nothing of what it was to do was begun. Since 0.1."""


def start_thread(thread: threading.Thread) -> None:
    """Start a thread.

    Args:
        thread: one that was not started yet; after a failure it must not be used any more.

    Raises:
        NoThread: the system has none to give, or no memory for it. It may have one a moment later.

    Callable from any thread. Since 0.1.
    """
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        # The same exception tells of a second start, which is a mistake in the program.
        if thread.ident is not None:
            raise
        raise NoThread(
            f"could not start the thread {thread.name!r}: {str(error) or 'out of memory'} (is the limit of processes"
            " and threads reached: the container's pids limit, or ulimit -u?)"
        ) from error
