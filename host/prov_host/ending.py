"""Ends the process, come what may.

A process that has lost its Lease, or has said goodbye, must be gone: another one works on the same volumes. What could
keep it (a log whose reader has stopped reading, a name lookup that hangs in a thread, a plugin's thread) is given a
moment and no more.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading

from prov_host.starting import NoThread, start_thread

__all__ = ["exit_now", "exit_within"]

logger = logging.getLogger(__name__)

_MOMENT = 0.5


def exit_within(seconds: float, code: int) -> None:
    """End the process after that time at the latest; whatever it does until then goes on. Callable from any thread.

    Args:
        seconds: how long.
        code: the exit code.

    Since 0.1.
    """
    timer = threading.Timer(seconds, os._exit, (code,))
    timer.daemon = True
    try:
        start_thread(timer)
    except NoThread:
        # The alarm needs no thread and is fatal too, if with an exit code of its own.
        signal.setitimer(signal.ITIMER_REAL, seconds)


def exit_now(code: int, words: str = "") -> None:
    """End the process at once; its last words are logged if that does not take long. Callable from any thread.

    Args:
        code: the exit code.
        words: why.

    Since 0.1.
    """
    # Another thread may hold the log's lock while it writes into a full pipe.
    exit_within(_MOMENT, code)
    if words:
        logger.critical("%s", words)
    logging.shutdown()
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)
