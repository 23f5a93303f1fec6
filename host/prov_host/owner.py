"""The owner's word: what the plugin that owns a volume said itself, apart from what wrappers made of it.

Wrappers may refuse, change and fail. But whether an asset exists only its owner knows, so only the owner's own answer
can end the life of a claim's mark or of a volume. :class:`OwnersHooks` is registered in place of the owner; it asks the
owner (with its own wrappers, if it has some) and notes in the call's :class:`Word` what came of it. Afterwards
what came out of the wrappers is weighed against it (:func:`provision_outcome`).
"""

from __future__ import annotations

import contextvars
from typing import Any

from prov_host.errors import (
    Ignored,
    InBackground,
    Infeasible,
    NoChange,
    Outcome,
    ProvisionError,
    Reschedule,
)
from prov_host.hookspecs import hookimpl
from prov_host.model import ProvisionRequest, Volume
from prov_host.output import words_of
from prov_host.plugins import Plugin

__all__ = ["OwnersHooks", "Word", "provision_outcome"]

_FINAL = (ProvisionError, Infeasible, Reschedule, Ignored)
"""What says of a ``provision`` that nothing is left. ``NoChange`` does so too, if it is the first answer."""


class Word:
    """What the owner said in one call; belongs to the thread of the call.

    Attributes:
        asked: whether its hook was called at all.
        returned: whether it returned.
        error: what it raised, or None.
    """

    _of_this_call: contextvars.ContextVar[Word] = contextvars.ContextVar("owner's word")

    def __init__(self) -> None:
        self.asked = False
        self.returned = False
        self.error: BaseException | None = None

    def begin(self) -> None:
        """This call's word it is from now on, in this context."""
        self._of_this_call.set(self)

    @classmethod
    def of_this_call(cls) -> Word:
        """The word of the call that the thread is in."""
        return cls._of_this_call.get()

    @property
    def final(self) -> bool:
        """Whether the owner itself said that nothing is left."""
        return isinstance(self.error, _FINAL)


class OwnersHooks:
    """Stands for the owner among the wrappers of others.

    Args:
        owner: the plugin.

    Its hooks run on threads of the owner's pool. Since 0.1.
    """

    def __init__(self, owner: Plugin) -> None:
        self._own = owner.own

    @hookimpl
    def provision(self, request: ProvisionRequest) -> Any:
        """Ask the owner."""
        return self._ask("provision", request=request)

    @hookimpl
    def delete(self, volume: Volume) -> Any:
        """Ask the owner."""
        return self._ask("delete", volume=volume)

    @hookimpl
    def archive(self, volume: Volume) -> Any:
        """Ask the owner."""
        return self._ask("archive", volume=volume)

    def _ask(self, hook: str, **given: Any) -> Any:
        word = Word.of_this_call()
        word.asked = True
        try:
            answer = getattr(self._own, hook)(**given)
        except BaseException as error:
            word.error = error
            raise
        word.returned = True
        return answer


def provision_outcome(error: Outcome, word: Word) -> BaseException:
    """What an outcome out of ``provision`` and its wrappers comes to.

    Args:
        error: what came out.
        word: what the owner said.

    Returns:
        The exception that counts: the owner's own unless it was final; :exc:`InBackground` if it made something and a
        wrapper failed; else what came out. If the owner was not asked, the caller says so with ``owner_asked``.

    Since 0.1.
    """
    if word.returned:
        return InBackground(f"{words_of(error, kind=False)} (its asset was made; the plugin will be asked again)")
    may_end = isinstance(error, (*_FINAL, NoChange))
    if word.error is not None and may_end and not word.final and not _same(error, word.error):
        return word.error
    return error


def _same(error: BaseException, said: BaseException) -> bool:
    """Whether a wrapper said what the owner said; other words for the same outcome are its own affair."""
    return error is said or (isinstance(error, NoChange) and isinstance(said, NoChange))
