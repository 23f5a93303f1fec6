"""Reading the small values people write into classes, claims and settings: switches, modes, ids, ranges, durations.

Each function takes what was written and returns a value, or raises ValueError that says what is allowed; who calls it
adds where the value was written.
"""

from __future__ import annotations

import re

__all__ = ["parse_duration", "parse_flag", "parse_id", "parse_mode", "parse_range"]

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_MODE = re.compile(r"[0-7]{1,4}", re.ASCII)
_ID = re.compile(r"[0-9]{1,5}", re.ASCII)
_RANGE = re.compile(r"([0-9]{1,5})-([0-9]{1,5})", re.ASCII)
_DURATION = re.compile(r"(?:[0-9]{1,9}[smhdw])+", re.ASCII)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
MAX_ID = 65535


def parse_flag(text: str) -> bool:
    """A switch, in the syntax of Go's ``strconv.ParseBool``."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(
        f"{text!r} is neither true nor false; allowed are true, false (and 1, t, T, True, TRUE, 0, f, F, False, FALSE)"
    )


def parse_mode(text: str) -> int:
    """Permission bits: octal digits, 0 to 0777."""
    if not _MODE.fullmatch(text) or (mode := int(text, 8)) > 0o777:
        raise ValueError(f"{text!r} is not a mode; allowed are octal digits from 0 to 0777, like 0770")
    return mode


def parse_id(text: str) -> int:
    """A user's or group's number, 0 to 65535."""
    if not _ID.fullmatch(text) or (number := int(text)) > MAX_ID:
        raise ValueError(f"{text!r} is not an id; allowed are whole numbers from 0 to {MAX_ID}")
    return number


def parse_range(text: str) -> tuple[int, int]:
    """A range of ids, ends included, like ``1000-1999``."""
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a range; write it like 1000-1999")
    low, high = parse_id(match[1]), parse_id(match[2])
    if low > high:
        raise ValueError(f"{text!r} is an empty range: {low} is more than {high}")
    return low, high


def parse_duration(text: str) -> int:
    """Seconds from ``30d``, ``36h``, ``1w12h``; ``0`` is zero."""
    if text == "0":
        return 0
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration; write it like 30d, 12h or 1h30m (units s, m, h, d, w)")
    return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"([0-9]+)([smhdw])", text, re.ASCII))
