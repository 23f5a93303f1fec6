"""Logs of the process: one line each on stderr, as text for people or as JSON for collectors.

A newline in a message (names and messages are hostile) never starts a new line of the log, and a name that is not text
never keeps a line from being written.
"""

from __future__ import annotations

import datetime as dt
import logging
import sys
from typing import TextIO

import msgspec

from prov_host.about import what_about
from prov_host.output import running_plugin
from prov_host.printable import encodable, printable

__all__ = ["JsonFormatter", "TextFormatter", "set_up_logging"]

_NOISY = ("asyncio", "aiohttp", "kubernetes", "urllib3")


def _stamp(record: logging.LogRecord) -> str:
    moment = dt.datetime.fromtimestamp(record.created, dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextFormatter(logging.Formatter):
    """``2026-01-01T00:00:00.000Z INFO prov_host.host: message``; tracebacks follow, indented. Since 0.1."""

    def format(self, record: logging.LogRecord) -> str:
        """See :meth:`logging.Formatter.format`."""
        line = f"{_stamp(record)} {record.levelname} {record.name}: {printable(record.getMessage())}"
        if record.exc_info and record.exc_info[0] is not None:
            line += "".join(f"\n    {printable(one)}" for one in self.formatException(record.exc_info).split("\n"))
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, what it is about, error.

    What it is about: ``claim``, ``claim_uid``, ``class``, ``volume``, ``plugin`` and ``provisioner``, as far as they
    are known. Since 0.1.
    """

    def format(self, record: logging.LogRecord) -> str:
        """See :meth:`logging.Formatter.format`."""
        entry = {
            "time": _stamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry.update(what_about())
        if plugin := running_plugin():
            entry["plugin"] = plugin
        if record.exc_info and record.exc_info[0] is not None:
            entry["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode({key: encodable(value) for key, value in entry.items()}).decode()


def set_up_logging(level: str = "info", form: str = "text", stream: TextIO | None = None) -> None:
    """Send the process's logs to one stream.

    Args:
        level: ``error``, ``warning``, ``info`` or ``debug``; anything else is ``info``, and refused elsewhere.
        form: ``text`` or ``json``.
        stream: stderr by default.

    On the main thread, at start. Since 0.1.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper() if level in {"error", "warning", "info", "debug"} else "INFO")
    if level != "debug":
        for name in _NOISY:
            logging.getLogger(name).setLevel(logging.WARNING)
