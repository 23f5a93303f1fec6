"""Kubernetes quantities ("1Gi", "500m", "1e3", "1.5G") to whole bytes and back.

The notation is the API's: a decimal number with one suffix out of ``n u m k M G T P E``, ``Ki Mi Gi Ti Pi Ei``, or a
decimal exponent ``e3``/``E3``. The SDK has a parser too, but importing it loads the whole SDK, which ``--help`` and
the plugins must not pay for.
"""

from __future__ import annotations

import decimal
import re

__all__ = ["format_bytes", "parse_bytes"]

_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([KMGTPE]i|[numkMGTPE]?)|[eE]([+-]?[0-9]{1,2}))", re.ASCII
)
_FACTORS = {
    "": decimal.Decimal(1),
    **{suffix: decimal.Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{suffix + "i": decimal.Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
    **{suffix: decimal.Decimal(1000) ** -power for power, suffix in enumerate("mun", start=1)},
}
_MAX_LENGTH = 64


def parse_bytes(text: str) -> int:
    """Parse a quantity of storage.

    Args:
        text: for example ``"1Gi"``.

    Returns:
        Whole bytes, rounded up, as the API rounds a request.

    Raises:
        ValueError: not a quantity, or negative; the message names the text.

    Callable from any thread. Since 0.1.
    """
    match = _QUANTITY.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise ValueError(f"{text[:_MAX_LENGTH]!r} is not a quantity; write it like 500Mi, 10Gi or 2T")
    number, suffix, exponent = match.groups()
    with decimal.localcontext(prec=200):
        factor = decimal.Decimal(10) ** int(exponent) if exponent else _FACTORS[suffix or ""]
        value = decimal.Decimal(number) * factor
        if value < 0:
            raise ValueError(f"{text!r} is negative; a volume needs a size of at least 0")
        return int(value.to_integral_value(rounding=decimal.ROUND_CEILING))


def format_bytes(size: int) -> str:
    """Write whole bytes as the shortest exact quantity: ``1073741824`` as ``"1Gi"``, ``1000`` as ``"1000"``.

    Args:
        size: bytes, 0 or more.

    Returns:
        A quantity that :func:`parse_bytes` reads back to the same number.

    Callable from any thread. Since 0.1.
    """
    for power, letter in ((6, "Ei"), (5, "Pi"), (4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if size and size % (1024**power) == 0:
            return f"{size // 1024**power}{letter}"
    return str(size)
