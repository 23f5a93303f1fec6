"""What a backend promises, and how the contract suite says that a promise is broken.

The texts are what :mod:`prov_host.hookspecs` says, in the words of someone whose data depends on it. Each has a short
name, which every failure of the suite begins with.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import pytest

from prov_host.errors import Outcome
from prov_host.testing.subject import LateError

__all__ = ["PROMISES", "broken", "keeping"]

PROMISES = {
    "backend": "a backend implements provisioners, provision and delete, names at least one provisioner, "
    "and finds nothing wrong with a storage that is fine",
    "whole-answer": "provision returns a prov_host.Provisioned with exactly one volume source, all of it fit for JSON",
    "idempotent-provision": "asked again with the same pv_name, provision answers with the same asset",
    "own-asset": "two volumes never share an asset",
    "delete-removes": "delete removes the volume's asset, and nothing else",
    "idempotent-delete": "deleting again is a success and changes nothing",
    "missing-asset": "a missing asset is a success for delete and archive, also after a restart",
    "restart": "nothing that matters is only in memory: after a restart provision answers with the same asset",
    "concurrent-calls": "hooks run in several threads at once, for different volumes, and never mix them up",
    "hostile-names": "names, labels and annotations are hostile: a claim is refused with an outcome of "
    "prov_host.errors, or its asset stays inside the storage",
    "record-round-trip": "what delete needs is in the saved volume: its record comes back as text, after a restart",
    "forged-volume": "a volume that was made to look like another never costs that other its asset",
    "given-up": "a volume that was asked for, given up late and deleted leaves nothing behind",
    "time-limit": "every hook returns in time; work that takes longer raises InBackground and is asked for again",
    "archive": "archive puts the asset aside, keeps what was archived before, and a second archive changes nothing",
    "inventory": "inventory lists every asset once, with the name of its volume",
}


def broken(promise: str, what: str) -> NoReturn:
    """Fail the test.

    Args:
        promise: a key of :data:`PROMISES`.
        what: what the backend did instead, naming values.

    Raises:
        pytest.fail.Exception: always.

    Since 0.1.
    """
    pytest.fail(f"broken promise {promise!r}: {PROMISES[promise]}.\nInstead: {what}", pytrace=False)


@contextmanager
def keeping(promise: str, what: str) -> Iterator[None]:
    """Whatever is raised inside breaks the promise; a hook that is late breaks ``time-limit``.

    Args:
        promise: a key of :data:`PROMISES`.
        what: what was being done, for example ``"deleting pvc-1 a second time"``.

    Since 0.1.
    """
    try:
        yield
    except LateError as error:
        broken("time-limit", f"{what}: {error}")
    except Outcome as error:
        broken(promise, f"{what} raised {type(error).__name__}: {error}")
    except Exception as error:  # noqa: BLE001 - any exception of a plugin is a finding
        broken(promise, f"{what} raised {type(error).__module__}.{type(error).__qualname__}: {error}")
