"""Which names and paths may be used at all: plain text work, before any file system is touched.

Two strengths. :func:`check_name` refuses what is not the name of one entry: it is enough for names that exist already
and were made by another program. :func:`check_new_name` refuses also what would surprise a person, another operating
system or a server that normalizes names; everything we make passes it.

Paths *below* a root are tuples of names, never strings with slashes in them; the text form (joined by ``/``) is for
records, messages and volume sources, and is split and checked again whenever it comes back.
"""

from __future__ import annotations

import unicodedata

__all__ = [
    "MAX_NAME_BYTES",
    "UnsafeName",
    "check_name",
    "check_new_name",
    "normalize_absolute",
    "overlaps",
    "relative_parts",
    "split_relative",
]

MAX_NAME_BYTES = 255
"""The longest name of one entry on every file system in use (NAME_MAX)."""

# Cc control, Cf format (zero width, bidirectional), Cs lone surrogates, Zl and Zp line and paragraph separators.
_REFUSED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


class UnsafeName(ValueError):
    """A name or path that must not be used; the message says which, and why. Since 0.1."""


def check_name(name: str) -> None:
    """Refuse what cannot be the name of one directory entry.

    Args:
        name: one path segment.

    Raises:
        UnsafeName: empty, ``.``, ``..``, with a slash or NUL, longer than 255 bytes, or not encodable.

    Callable from any thread. Since 0.1.
    """
    if not name:
        raise UnsafeName("a path segment is empty")
    if name in {".", ".."}:
        raise UnsafeName(f"the path segment {name!r} would leave its directory")
    if "/" in name:
        raise UnsafeName(f"the name {_short(name)} has a slash in it")
    if "\0" in name:
        raise UnsafeName(f"the name {_short(name)} has a NUL character in it")
    # Names of existing entries may hold bytes that are not UTF-8; Python carries those as lone surrogates.
    try:
        size = len(name.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError as error:
        raise UnsafeName(f"the name {_short(name)} is not valid Unicode text") from error
    if size > MAX_NAME_BYTES:
        raise UnsafeName(f"the name {_short(name)} is {size} bytes long, more than {MAX_NAME_BYTES}")


def check_new_name(name: str) -> None:
    """Refuse what we do not want to make, beyond :func:`check_name`.

    Args:
        name: one path segment.

    Raises:
        UnsafeName: as :func:`check_name`; also control and invisible characters, a backslash, only white space, or
            characters that a server that normalizes names turns into ``.``, ``..``, a slash or a backslash.

    Callable from any thread. Since 0.1.
    """
    check_name(name)
    for character in name:
        if unicodedata.category(character) in _REFUSED_CATEGORIES:
            raise UnsafeName(
                f"the name {_short(name)} has the control or invisible character U+{ord(character):04X} in it"
            )
    if "\\" in name:
        raise UnsafeName(f"the name {_short(name)} has a backslash in it")
    if not name.strip():
        raise UnsafeName(f"the name {_short(name)} is only white space")
    folded = unicodedata.normalize("NFKC", name)
    if folded in {".", ".."} or "/" in folded or "\\" in folded:
        raise UnsafeName(f"the name {_short(name)} looks like {folded!r} to a server that normalizes names")


def split_relative(path: str) -> tuple[str, ...]:
    """Split the text form of a path below a root.

    Args:
        path: names joined by single slashes, no slash at either end.

    Returns:
        At least one name, each accepted by :func:`check_name`.

    Raises:
        UnsafeName: anything else.

    Callable from any thread. Since 0.1.
    """
    parts = tuple(path.split("/"))
    for part in parts:
        check_name(part)
    return parts


def normalize_absolute(path: str) -> str:
    """Write an absolute path without empty, ``.`` and ``..`` segments and without a slash at its end.

    It is text work only: where ``a/..`` would lead through a link does not matter, because the result is compared
    with other such results and walked without following links, never handed to the system as a string.

    Args:
        path: for example ``//exports/../exports/k8s/``.

    Returns:
        For example ``/exports/k8s``; ``/`` for the root itself.

    Raises:
        UnsafeName: not absolute, with NUL in it, or leading above ``/``.

    Callable from any thread. Since 0.1.
    """
    if not path.startswith("/"):
        raise UnsafeName(f"{_short(path)} is not an absolute path")
    if "\0" in path:
        raise UnsafeName(f"{_short(path)} has a NUL character in it")
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if not parts:
                raise UnsafeName(f"{_short(path)} leads above the root directory")
            parts.pop()
        elif part not in {"", "."}:
            parts.append(part)
    return "/" + "/".join(parts)


def relative_parts(path: str, root: str) -> tuple[str, ...] | None:
    """The way from one absolute path down to another.

    Args:
        path: a result of :func:`normalize_absolute`.
        root: a result of :func:`normalize_absolute`.

    Returns:
        The names from ``root`` to ``path``, ``()`` if they are the same, None if ``path`` is not below ``root``
        (``/exports/k8s2`` is not below ``/exports/k8s``).

    Callable from any thread. Since 0.1.
    """
    if path == root:
        return ()
    prefix = root if root == "/" else root + "/"
    return tuple(path[len(prefix) :].split("/")) if path.startswith(prefix) else None


def overlaps(first: tuple[str, ...], second: tuple[str, ...]) -> bool:
    """Whether two paths below one root are the same, or one is inside the other.

    Callable from any thread. Since 0.1.
    """
    shorter = min(len(first), len(second))
    return first[:shorter] == second[:shorter]


def _short(text: str) -> str:
    """Quoted for a message, and short whatever comes in."""
    return ascii(text if len(text) <= 80 else text[:77] + "...")
