"""What the volumes of a base directory ask for together, without reading every record each time.

The records on the disk are the truth. What was read of them is remembered with a mark that is in the directory's lock
file, and that everyone who changes a record replaces first: as long as the mark is the same, nothing has changed, in
this process or any other. A change that fails half-way leaves a mark that nobody remembers anything for.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator, Mapping

__all__ = ["Ledger"]

_MARK_BYTES = 16


class Ledger:
    """Sizes by volume name. Only to be used while the directory's lock is held, by whoever holds it. Since 0.1."""

    def __init__(self) -> None:
        self._mark = b""
        self._sizes: dict[str, int] | None = None

    def sizes(self, lock: int, read: Callable[[], Mapping[str, int]]) -> Mapping[str, int]:
        """The sizes of all volumes.

        Args:
            lock: the descriptor of the lock file.
            read: reads them from the records.

        Returns:
            Bytes by volume name; not to be changed.
        """
        mark = os.pread(lock, _MARK_BYTES, 0)
        if self._sizes is None or mark != self._mark or not mark:
            self._sizes = dict(read())
            self._mark = mark
        return self._sizes

    @contextlib.contextmanager
    def changing(self, lock: int, pv_name: str, size: int | None) -> Iterator[None]:
        """Surrounds the change of a record.

        Args:
            lock: the descriptor of the lock file.
            pv_name: whose record it is.
            size: what it asks for from now on, None if its record goes away.
        """
        known = self._sizes if self._mark and self._mark == os.pread(lock, _MARK_BYTES, 0) else None
        self._sizes = None
        mark = secrets.token_bytes(_MARK_BYTES)
        try:
            os.pwrite(lock, mark, 0)
        except OSError:
            # A full disk must not keep anybody from deleting. No mark is a mark that nobody remembers anything for.
            os.ftruncate(lock, 0)
            known = None
        yield
        if known is not None:
            known.pop(pv_name, None)
            if size is not None:
                known[pv_name] = size
            self._sizes, self._mark = known, mark
