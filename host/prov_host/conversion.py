"""Turns what people write in options, variables and files into typed values, with words that help when it cannot.

A variable or an option is text; a TOML file has types of its own. Text becomes what the setting's type asks for:
durations in Go's notation (``15s``, ``1h30m``), yes-or-no words, lists as JSON or separated by commas, nested settings
as JSON. Everything ends in :func:`msgspec.convert`, so a plugin may use any type that msgspec knows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import inspect as mi

__all__ = ["DURATION", "convert", "format_duration", "is_flag", "parse_duration", "parse_flag", "parse_go_bool"]

DURATION = {"format": "duration"}
"""Marks a float setting as seconds that people write as ``15s``: ``Annotated[float, Meta(extra=DURATION)]``."""

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_GO_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_GO_FALSE = ("0", "f", "F", "FALSE", "false", "False")
_TRUE = ("true", "t", "1", "yes", "on")
_FALSE = ("false", "f", "0", "no", "off")


def parse_duration(text: str) -> float:
    """Read a duration in Go's notation.

    Args:
        text: for example ``15s``, ``5m``, ``1h30m``, ``500ms``, or ``0``.

    Returns:
        Seconds.

    Raises:
        ValueError: it is none; the message says how to write one.

    Callable from any thread. Since 0.1.
    """
    rest = text.strip()
    sign = -1.0 if rest.startswith("-") else 1.0
    rest = rest[1:] if rest[:1] in {"+", "-"} else rest
    if rest == "0":
        return 0.0
    seconds, position = 0.0, 0
    while match := _PART.match(rest, position):
        seconds += float(match[1]) * _UNITS[match[2]]
        position = match.end()
    if not position or position < len(rest) or not math.isfinite(seconds):
        raise ValueError(f"{text!r} is not a duration; write it like 500ms, 15s, 5m or 1h30m")
    return sign * seconds


def format_duration(seconds: float) -> str:
    """Write seconds in Go's notation, ``90.0`` as ``1m30s``. Callable from any thread. Since 0.1."""
    if seconds < 0:
        return "-" + format_duration(-seconds)
    if seconds < 1:
        return "0s" if not seconds else f"{seconds * 1000:.6g}ms"
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    parts = [f"{hours:.0f}h" if hours else "", f"{minutes:.0f}m" if minutes else "", f"{rest:.6g}s" if rest else ""]
    return "".join(parts)


def parse_go_bool(text: str) -> bool:
    """Read a bool exactly as Go's ``strconv.ParseBool`` does.

    Raises:
        ValueError: it is none; the message says what is.

    Callable from any thread. Since 0.1.
    """
    if text in _GO_TRUE:
        return True
    if text in _GO_FALSE:
        return False
    raise ValueError(f"{text!r} is neither true (1 t T TRUE true True) nor false (0 f F FALSE false False)")


def parse_flag(text: str) -> bool:
    """Read a yes-or-no word, in any case.

    Raises:
        ValueError: it is none; the message says what is.

    Callable from any thread. Since 0.1.
    """
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(f"{text!r} is neither yes nor no; write true or false")


def is_flag(kind: mi.Type) -> bool:
    """Whether a setting of that type is yes or no."""
    return isinstance(_bare(kind), mi.BoolType)


def convert(raw: Any, kind: mi.Type, python_type: Any, *, text: bool) -> Any:
    """Turn a raw value into a setting.

    Args:
        raw: text if ``text``, else what the TOML file or JSON holds.
        kind: the setting's type, from :func:`msgspec.inspect.type_info`.
        python_type: the same type, as annotated.
        text: whether it comes from an option or a variable.

    Returns:
        A value of that type.

    Raises:
        ValueError: it cannot be one; the message says why and never repeats more than the text given.

    Callable from any thread. Since 0.1.
    """
    prepared = _from_text(raw, kind) if text else _from_file(raw, kind)
    try:
        return msgspec.convert(prepared, python_type, strict=not text)
    except msgspec.ValidationError as error:
        raise ValueError(_plain(str(error), kind)) from error


def _bare(kind: mi.Type) -> mi.Type:
    """The type under descriptions and ``| None``."""
    while True:
        if isinstance(kind, mi.Metadata):
            kind = kind.type
        elif isinstance(kind, mi.UnionType):
            others = [one for one in kind.types if not isinstance(one, mi.NoneType)]
            if len(others) != 1:
                return kind
            (kind,) = others
        else:
            return kind


def is_duration(kind: mi.Type) -> bool:
    """Whether a setting of that type is written as a duration."""
    if isinstance(kind, mi.Metadata):
        return (kind.extra or {}).get("format") == "duration" or is_duration(kind.type)
    return isinstance(kind, mi.UnionType) and any(is_duration(one) for one in kind.types)


def _from_text(raw: str, kind: mi.Type) -> Any:
    bare = _bare(kind)
    if is_duration(kind):
        return parse_duration(raw)
    if isinstance(bare, mi.BoolType):
        return parse_flag(raw)
    if isinstance(bare, (mi.ListType, mi.SetType, mi.FrozenSetType, mi.VarTupleType, mi.TupleType)):
        if raw.lstrip().startswith("["):
            return _nested(_json(raw), bare)
        return [part.strip() for part in raw.split(",") if part.strip()]
    if isinstance(bare, (mi.DictType, mi.StructType, mi.DataclassType, mi.TypedDictType)):
        return _nested(_json(raw), bare)
    return raw


def _from_file(raw: Any, kind: mi.Type) -> Any:
    if is_duration(kind):
        if isinstance(raw, str):
            return parse_duration(raw)
        if isinstance(raw, (int, float)) and not isinstance(raw, bool) and not raw:
            return 0.0
        raise ValueError(f'{raw!r} has no unit; write it in quotes, like "15s" or "5m"')
    return _nested(raw, _bare(kind))


def _nested(raw: Any, kind: mi.Type) -> Any:
    """Durations inside nested settings are written like those outside."""
    if isinstance(kind, mi.StructType) and isinstance(raw, Mapping):
        kinds: dict[str, mi.Type] = {field.encode_name: field.type for field in kind.fields}
        unknown = [key for key in raw if key not in kinds]
        if unknown:
            raise ValueError(f"{', '.join(map(str, unknown))} is not among {', '.join(kinds)}")
        return {key: _inner(value, kinds[key]) for key, value in raw.items()}
    if isinstance(kind, (mi.ListType, mi.VarTupleType)):
        if isinstance(raw, str):
            raw = _one_item(raw, kind)
        elif isinstance(raw, Mapping):
            words = "it must be a list; a table of its own is an item when its head is written [[...]]"
            raise ValueError(words)  # noqa: TRY004  as everything that is wrong with a setting
        if isinstance(raw, list):
            return [_inner(value, kind.item_type) for value in raw]
    return raw


def _one_item(raw: str, kind: mi.ListType | mi.VarTupleType) -> list[str]:
    """Text where a list belongs is a list of one, if that can be."""
    bare = _bare(kind.item_type)
    kinds = bare.types if isinstance(bare, mi.UnionType) else (bare,)
    if any(isinstance(one, (mi.StrType, mi.AnyType)) for one in kinds):
        return [raw]
    raise ValueError("it must be a list, in brackets")


def _inner(raw: Any, kind: mi.Type) -> Any:
    bare = _bare(kind)
    # Text where a number belongs can only be meant as a duration.
    if isinstance(raw, str) and (is_duration(kind) or isinstance(bare, mi.FloatType)):
        return parse_duration(raw)
    return _nested(raw, bare)


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"it must be JSON, like [..] or {{..}}: {error}") from error


_NAMES: tuple[tuple[type[mi.Type], str], ...] = (
    (mi.IntType, "a whole number"),
    (mi.FloatType, "a number"),
    (mi.StrType, "text"),
    (mi.BoolType, "true or false"),
)


def _plain(message: str, kind: mi.Type) -> str:
    """Msgspec's words for people who do not know Python's type names."""
    bare = _bare(kind)
    if " - at `$" not in message and message.startswith("Expected `"):
        for one, name in _NAMES:
            if isinstance(bare, one):
                bounds: Callable[[str], Any] = lambda name: getattr(bare, name, None)  # noqa: E731
                low, high = bounds("ge"), bounds("le")
                span = f" from {low} to {high}" if low is not None and high is not None else ""
                at_least = f", at least {low}" if low is not None and high is None else ""
                return f"it must be {name}{span}{at_least}"
    return f"{message[0].lower()}{message[1:]}".replace(" - at `$", ", at `")
