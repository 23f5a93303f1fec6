"""Text that may be shown: what comes from a disk or a cluster is anybody's choice of bytes until it went through here.

Names of files need not be text in any encoding; Python carries such bytes as lone surrogates, which no log, page, JSON
document or metric can be written with. And text may hold what a terminal obeys, what starts a new line, or what turns
the reading direction. Everything the host prints, logs, serves or sends as event goes through one of these two.
"""

from __future__ import annotations

import re

__all__ = ["encodable", "printable"]

_SURROGATE = re.compile("[\ud800-\udfff]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def encodable(text: str) -> str:
    r"""A text that every encoding of Unicode can be written with: bytes that were no text become ``\xfc`` and the like.

    For JSON and other formats that escape control characters themselves.

    Args:
        text: any string.

    Returns:
        The same string, unless it holds lone surrogates.

    Callable from any thread. Since 0.1.
    """
    return text if text.isascii() else _SURROGATE.sub(lambda found: _escape(found[0]), text)


def printable(text: str) -> str:
    r"""A text on one line that a terminal only shows, with escapes like Python's for everything else.

    Args:
        text: any string.

    Returns:
        The same string, unless it holds control, invisible or unassigned characters, line separators, or bytes that
        were no text (``\xfc``).

    Callable from any thread. Since 0.1.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or _is_space(character) else _escape(character) for character in text
    )


def _is_space(character: str) -> bool:
    """No-break and other spaces with a width: harmless, though Python does not count them as printable."""
    return character.isspace() and character not in "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029"


def _escape(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code <= 0xFF:
        return _SHORT.get(character) or f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
