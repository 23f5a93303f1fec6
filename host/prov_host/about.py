"""What the work at hand is about: fields that every log line written meanwhile carries.

Who works on a claim or a volume says so once; log lines of anything that is called then, also on a plugin's threads,
carry it as fields of their own in JSON logs, so that a collector finds all lines of one claim whatever their words are.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Mapping

__all__ = ["FIELDS", "about", "what_about"]

FIELDS = ("claim", "claim_uid", "class", "volume", "plugin", "provisioner")
"""The names of the fields: ``claim`` is ``namespace/name``, the others are names and the claim's uid."""

_NOTHING: Mapping[str, str] = {}
_current: contextvars.ContextVar[Mapping[str, str]] = contextvars.ContextVar("about", default=_NOTHING)


@contextlib.contextmanager
def about(fields: Mapping[str, str]) -> Iterator[None]:
    """While inside, in this task or thread, log lines carry these fields too; empty ones are left out.

    Args:
        fields: from :data:`FIELDS`.

    Callable from any thread. Since 0.1.
    """
    token = _current.set({**_current.get(), **{name: text for name, text in fields.items() if text}})
    try:
        yield
    finally:
        _current.reset(token)


def what_about() -> Mapping[str, str]:
    """The fields of the calling task or thread. Callable from any thread. Since 0.1."""
    return _current.get()
