"""Whose thread is it? Threads that plugins start are not the host's to stop, but they can be named."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Sequence

from prov_host.plugins import Plugin

__all__ = ["count_by_plugin", "owner_of"]


def owner_of(thread: threading.Thread, plugins: Sequence[Plugin]) -> str:
    """The title of the plugin whose code a thread runs, "" if none's.

    Told by the packages of the frames on its stack, outermost first, and of the thread's own class, so that a
    plugin's helper thread deep in a library is still found. Callable from any thread. Since 0.1.
    """
    packages = {plugin.package: plugin.title for plugin in plugins}
    seen = [type(thread).__module__, getattr(getattr(thread, "_target", None), "__module__", None) or ""]
    frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001  the documented way to look at a stack
    while frame is not None:
        seen.append(str(frame.f_globals.get("__name__", "")))
        frame = frame.f_back
    return next((packages[name.partition(".")[0]] for name in seen if name.partition(".")[0] in packages), "")


def count_by_plugin(threads: Iterable[threading.Thread], plugins: Sequence[Plugin]) -> dict[str, int]:
    """How many of the threads run each plugin's code, by title. Callable from any thread. Since 0.1."""
    counts: dict[str, int] = {}
    for thread in threads:
        if title := owner_of(thread, plugins):
            counts[title] = counts.get(title, 0) + 1
    return counts
