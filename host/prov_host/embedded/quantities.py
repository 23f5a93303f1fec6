"""Quantities in the canonical form that the API server stores: ``1024Mi`` becomes ``1Gi``, ``0.1`` becomes ``100m``.

The notation a value was given in is kept as far as it can express the value: binary suffixes stay binary, an exponent
stays an exponent. :mod:`prov_host.quantity` answers how many bytes a quantity is; this answers how it is written.
"""

from __future__ import annotations

import decimal
import functools
import re

__all__ = ["canonical", "compare"]

_PATTERN = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?P<suffix>[KMGTPE]i|[eE][+-]?[0-9]+|[numkMGTPE]?)", re.ASCII
)
_MESSAGE = r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_BINARY = {suffix + "i": power for power, suffix in enumerate("KMGTPE", start=1)}
_BINARY_NAMES = {power: suffix for suffix, power in _BINARY.items()} | {0: ""}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_NAMES = {power: suffix for suffix, power in _DECIMAL.items()}
_LARGEST = decimal.Decimal(2**63 - 1)
_CONTEXT = decimal.Context(prec=200)


def _parse(text: str) -> tuple[decimal.Decimal, str]:
    """The value, and the notation: ``binary``, ``exponent`` or ``decimal``."""
    match = _PATTERN.fullmatch(text) if len(text) <= 64 else None
    if match is None:
        raise ValueError(_MESSAGE)
    suffix = match["suffix"]
    number = decimal.Decimal(match["number"])
    if suffix in _BINARY:
        notation, value = "binary", _CONTEXT.multiply(number, decimal.Decimal(1024 ** _BINARY[suffix]))
    elif suffix in _DECIMAL:
        notation, value = "decimal", _CONTEXT.scaleb(number, _DECIMAL[suffix])
    else:
        exponent = int(suffix[1:])
        if abs(exponent) > 99:
            raise ValueError(_MESSAGE)
        notation, value = "exponent", _CONTEXT.scaleb(number, exponent)
    # No more than nano, rounded away from zero, and no more than an int64 holds.
    value = _CONTEXT.quantize(value, decimal.Decimal("1e-9")) if value == value.to_integral_value() else _to_nano(value)
    return max(min(value, _LARGEST), -_LARGEST), notation


def _to_nano(value: decimal.Decimal) -> decimal.Decimal:
    return value.quantize(decimal.Decimal("1e-9"), rounding=decimal.ROUND_UP, context=_CONTEXT)


@functools.lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """Write a quantity as the API server stores it.

    Args:
        text: for example ``"1024Mi"``.

    Returns:
        For example ``"1Gi"``.

    Raises:
        ValueError: not a quantity; the message is the API server's.
    """
    value, notation = _parse(text)
    if value == 0:
        return "0"
    if notation == "binary":
        if value == value.to_integral_value() and abs(value) >= 1024:
            whole, power = int(value), 0
            while whole % 1024 == 0 and power < 6:
                whole, power = whole // 1024, power + 1
            return f"{whole}{_BINARY_NAMES[power]}"
        if abs(value) >= 1024:
            return str(int(value.to_integral_value(rounding=decimal.ROUND_UP)))
        notation = "decimal"
    nanos, power = int(_CONTEXT.scaleb(value, 9)), -9
    while nanos % 1000 == 0 and power < 18:
        nanos, power = nanos // 1000, power + 3
    if notation == "exponent":
        return f"{nanos}e{power}" if power else str(nanos)
    return f"{nanos}{_DECIMAL_NAMES[power]}"


def compare(left: str, right: str) -> int:
    """-1, 0 or 1 as ``left`` is less than, equal to or greater than ``right``; both must be quantities."""
    difference = _parse(left)[0] - _parse(right)[0]
    return (difference > 0) - (difference < 0)
