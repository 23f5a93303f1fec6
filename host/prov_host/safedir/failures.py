"""What safe directories raise beyond the system's own errors, and the system's errors with whole paths in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["NotADirectory", "OtherFilesystem", "located"]


class NotADirectory(NotADirectoryError):
    """Something on the way is no directory: a link, a file, a device. Since 0.1."""


class OtherFilesystem(OSError):
    """Something is mounted on the way: renaming and removing must stay on one file system. Since 0.1."""


@contextmanager
def located(path: str, other: str | None = None) -> Iterator[None]:
    """Let an OSError name the whole path instead of the bare name that the call was made with.

    Args:
        path: what the calls inside are about.
        other: the second path of a rename.
    """
    try:
        yield
    except (NotADirectory, OtherFilesystem):
        raise
    except OSError as error:
        if error.errno is None:
            raise
        found = OSError(error.errno, error.strerror, path, None, other)
        for note in getattr(error, "__notes__", ()):
            found.add_note(note)
        raise found from error
