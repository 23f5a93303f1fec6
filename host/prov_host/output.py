"""Plugins print; what they print goes to the log, so that stdout stays the host's own.

The host, and every command, works on the main thread; hooks, imports of plugins and the threads that plugins start
do not. So the rule is simple: text that the main thread writes to ``sys.stdout`` is the program's output, text from any
other thread is a plugin's and becomes log lines, under the plugin's name where the host started the thread. (What a
plugin's child process or C library writes to descriptor 1 itself cannot be told apart and is left alone.)
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TextIO

__all__ = [
    "STARTED_BY",
    "HostThread",
    "PluginOutput",
    "as_plugin",
    "plugin_output_to_log",
    "running_plugin",
    "words_of",
]

logger = logging.getLogger(__name__)

_WORDS_LIMIT = 900  # an event's message is cut at 1024 bytes; the end of an error says least
_LINE_LIMIT = 8192  # a plugin that prints without newlines must not fill the memory


STARTED_BY: weakref.WeakKeyDictionary[threading.Thread, str] = weakref.WeakKeyDictionary()
"""Threads that were started while a plugin was imported or configured, and that plugin's name."""


class HostThread(threading.Thread):
    """A daemon thread that the host started for plugins' code, as opposed to those that plugins start. Since 0.1."""

    def __init__(self, target: Callable[[], object], name: str) -> None:
        super().__init__(target=target, name=name, daemon=True)


def words_of(error: BaseException, *, kind: bool = True) -> str:
    """What an exception of a plugin says, on one line, cut, whatever its ``__str__`` does.

    Args:
        error: any exception.
        kind: whether to name its class.

    Callable from any thread. Since 0.1.
    """
    try:
        text = " ".join(str(error).split())
    except BaseException as unspeakable:  # noqa: BLE001  it is the plugin's own code
        text = f"(its text could not be read: {type(unspeakable).__name__})"
    if len(text) > _WORDS_LIMIT:
        text = text[:_WORDS_LIMIT] + "…"
    if not kind:
        return text or type(error).__name__
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class _Current(threading.local):
    plugin: str = ""
    pending: str = ""


_current = _Current()


def running_plugin() -> str:
    """The plugin whose code the calling thread runs, or "". Callable from any thread. Since 0.1."""
    return _current.plugin


def as_plugin(name: str, function: Callable[[], object]) -> object:
    """Run ``function`` on the calling thread as code of the plugin ``name``; what it prints is logged under that name.

    Args:
        name: the plugin's name, as in ``--plugin``.
        function: called without arguments.

    Returns:
        What it returned; what it raised comes out unchanged.

    Callable from any thread but the main one (whose prints are the host's). Since 0.1.
    """
    before, _current.plugin = _current.plugin, name
    try:
        return function()
    finally:
        _log_pending()
        _current.plugin = before


def _log_pending() -> None:
    text, _current.pending = _current.pending, ""
    if text.strip():
        logger.info("plugin %s printed: %s", _current.plugin or "(its own thread)", text.rstrip())


class PluginOutput(io.TextIOBase):
    """Stands in for ``sys.stdout``: the main thread's text passes, everyone else's is logged line by line.

    Args:
        behind: the real stream.

    Callable from any thread. Since 0.1.
    """

    def __init__(self, behind: TextIO) -> None:
        super().__init__()
        self._behind = behind

    def write(self, text: str, /) -> int:
        """Write or log ``text``; returns its length."""
        if threading.current_thread() is threading.main_thread():
            return self._behind.write(text)
        *lines, rest = (_current.pending + text).split("\n")
        for line in lines:
            _current.pending = line
            _log_pending()
        _current.pending = rest
        if len(rest) > _LINE_LIMIT:
            _log_pending()
        return len(text)

    def flush(self) -> None:
        """Flush the real stream."""
        if threading.current_thread() is threading.main_thread():
            self._behind.flush()

    def isatty(self) -> bool:
        """Whether the real stream is a terminal."""
        return self._behind.isatty()

    def fileno(self) -> int:
        """The real stream's descriptor."""
        return self._behind.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The real stream's encoding."""
        return self._behind.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """The real stream's error handling."""
        return self._behind.errors

    @property
    def buffer(self) -> object:
        """The real stream's bytes; click writes through it."""
        return getattr(self._behind, "buffer", None)


@contextlib.contextmanager
def plugin_output_to_log() -> Iterator[None]:
    """While inside, prints of plugins become log lines. Nesting is harmless. On the main thread. Since 0.1."""
    if isinstance(sys.stdout, PluginOutput):
        yield
        return
    before = sys.stdout
    sys.stdout = PluginOutput(before)
    try:
        yield
    finally:
        sys.stdout = before
