"""What is remembered of the records is never older than the records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prov_host_hostpath.ledger import Ledger


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def _never() -> dict[str, int]:
    raise AssertionError("the records are read again")


def test_records_are_read_once_and_kept_up(lock: int) -> None:
    ledger = Ledger()
    with ledger.changing(lock, "a", 1):
        pass
    assert ledger.sizes(lock, lambda: {"a": 1}) == {"a": 1}
    with ledger.changing(lock, "b", 2):
        pass
    assert ledger.sizes(lock, _never) == {"a": 1, "b": 2}
    with ledger.changing(lock, "a", None):
        pass
    assert ledger.sizes(lock, _never) == {"b": 2}


def test_a_change_that_failed_is_not_believed(lock: int) -> None:
    ledger = Ledger()
    with ledger.changing(lock, "a", 1):
        pass
    ledger.sizes(lock, lambda: {"a": 1})
    with pytest.raises(OSError, match="full"), ledger.changing(lock, "b", 2):
        raise OSError("full")
    assert ledger.sizes(lock, lambda: {"a": 1}) == {"a": 1}


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from("abc"), st.none() | st.integers(0, 9), st.booleans()), max_size=30
    )
)
def test_several_processes_never_see_anything_old(lock: int, changes: list[tuple[int, str, int | None, bool]]) -> None:
    """Each step is one process's change of one record, which may fail after it was made."""
    os.truncate(lock, 0)
    records: dict[str, int] = {}
    ledgers = [Ledger() for _ in range(3)]
    for who, name, size, fails in changes:
        try:
            with ledgers[who].changing(lock, name, size):
                records.pop(name, None)
                if size is not None:
                    records[name] = size
                if fails:
                    raise OSError("after the fact")
        except OSError:
            pass
        for ledger in ledgers:
            assert ledger.sizes(lock, lambda: records) == records
