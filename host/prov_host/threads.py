"""Whose thread is it? Threads that plugins start are not the host's to stop, but they can be counted and named."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterable, Sequence

from prov_host.clock import Clock
from prov_host.output import STARTED_BY, HostThread
from prov_host.plugins import Plugin

__all__ = ["count_by_plugin", "name_what_is_left", "owner_of", "watch_threads"]

logger = logging.getLogger(__name__)

INTERVAL = 60.0
"""Seconds between two counts."""

MANY = 100
"""Threads of one plugin that are worth a word; the next word comes at twice as many."""


def owner_of(thread: threading.Thread, plugins: Sequence[Plugin]) -> str:
    """The title of the plugin whose code a thread runs, "" if none's.

    Threads started while a plugin was imported or configured are known; others are told by the packages of the frames
    on their stacks and of their own classes, so that a helper thread deep in a library is still found. Callable from
    any thread. Since 0.1.
    """
    titles = {plugin.name: plugin.title for plugin in plugins}
    if (starter := STARTED_BY.get(thread, "")) in titles:
        return titles[starter]
    packages = {plugin.package: plugin.title for plugin in plugins}
    seen = [type(thread).__module__, getattr(getattr(thread, "_target", None), "__module__", None) or ""]
    frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001  the documented way to look at a stack
    while frame is not None:
        seen.append(str(frame.f_globals.get("__name__", "")))
        frame = frame.f_back
    return next((packages[name.partition(".")[0]] for name in seen if name.partition(".")[0] in packages), "")


def count_by_plugin(threads: Iterable[threading.Thread], plugins: Sequence[Plugin]) -> dict[str, int]:
    """How many threads each plugin has started, by title. Callable from any thread. Since 0.1."""
    counts: dict[str, int] = {}
    for thread in threads:
        if isinstance(thread, HostThread):
            continue
        if title := owner_of(thread, plugins):
            counts[title] = counts.get(title, 0) + 1
    return counts


async def watch_threads(
    plugins: Sequence[Plugin], clock: Clock, *, interval: float = INTERVAL, many: int = MANY
) -> None:
    """Say so when a plugin has more and more threads, until cancelled. On the event loop. Since 0.1."""
    words_at: dict[str, int] = {}
    while True:
        await clock.sleep(interval)
        for title, count in count_by_plugin(threading.enumerate(), plugins).items():
            if count >= words_at.get(title, many):
                words = "%s has %d threads of its own; does it start some and never end them?"
                logger.warning(words, title, count)
                words_at[title] = 2 * count


def name_what_is_left(plugins: Sequence[Plugin]) -> int:
    """Log the threads that plugins have not ended when the host has; returns how many. Since 0.1."""
    count = 0
    for thread in threading.enumerate():
        if isinstance(thread, HostThread) or thread is threading.main_thread():
            continue
        owner = owner_of(thread, plugins)
        if owner or not thread.daemon:
            logger.warning("thread %r of %s still runs and is given up", thread.name, owner or "an unknown plugin")
            count += 1
    return count
