"""Finding directories that are the same, inside one another, or only spelled differently, among many thousands."""

from __future__ import annotations

import unicodedata
from collections.abc import Hashable, Iterator
from functools import lru_cache
from typing import Generic, TypeVar

__all__ = ["PathIndex", "folded"]

_K = TypeVar("_K", bound=Hashable)


@lru_cache(maxsize=65536)
def folded(parts: tuple[str, ...]) -> tuple[str, ...]:
    """A path as a server sees it that ignores case and normalizes names: for comparing, not for using."""
    return tuple(unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", part).casefold()) for part in parts)


class PathIndex(Generic[_K]):
    """Keys by their paths, whatever the spelling. Not locked: that is its owner's business. Since 0.1."""

    def __init__(self) -> None:
        self._at: dict[tuple[str, ...], set[_K]] = {}
        self._inside: dict[tuple[str, ...], set[_K]] = {}

    def add(self, key: _K, parts: tuple[str, ...]) -> None:
        """Remember a key's path."""
        parts = folded(parts)
        self._at.setdefault(parts, set()).add(key)
        for depth in range(1, len(parts)):
            self._inside.setdefault(parts[:depth], set()).add(key)

    def drop(self, key: _K, parts: tuple[str, ...]) -> None:
        """Forget a key that was added with this path."""
        parts = folded(parts)
        self._take(self._at, parts, key)
        for depth in range(1, len(parts)):
            self._take(self._inside, parts[:depth], key)

    @staticmethod
    def _take(where: dict[tuple[str, ...], set[_K]], parts: tuple[str, ...], key: _K) -> None:
        keys = where.get(parts, set())
        keys.discard(key)
        if not keys:
            where.pop(parts, None)

    def overlapping(self, parts: tuple[str, ...]) -> Iterator[_K]:
        """The keys at a path, inside it and around it."""
        parts = folded(parts)
        for depth in range(1, len(parts) + 1):
            yield from self._at.get(parts[:depth], ())
        yield from self._inside.get(parts, ())
