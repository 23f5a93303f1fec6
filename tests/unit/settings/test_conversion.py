from __future__ import annotations

import contextlib
import math
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect as mi

from prov_host.conversion import DURATION, convert, format_duration, parse_duration, parse_flag, parse_go_bool


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("15s", 15),
        ("5m", 300),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("500ms", 0.5),
        ("0", 0),
        ("0s", 0),
        ("1h2m3.5s", 3723.5),
        ("250us", 0.00025),
        ("-5s", -5),
        ("+5s", 5),
        (" 2s ", 2),
        (".5s", 0.5),
    ],
)
def test_a_duration_is_read_as_go_reads_it(text: str, seconds: float) -> None:
    assert math.isclose(parse_duration(text), seconds)


@pytest.mark.parametrize(
    "text", ["", "15", "s", "1d", "1h 30m", "five", "1s2", "--5s", "1e3s", "٣s", "inf", "9" * 400 + "h"]
)
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="write it like 500ms, 15s, 5m or 1h30m"):
        parse_duration(text)


@given(st.integers(0, 10**9))
def test_a_written_duration_reads_back_the_same(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    assert math.isclose(parse_duration(format_duration(seconds)), seconds, rel_tol=1e-5, abs_tol=1e-9)


@given(st.text(max_size=12))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert math.isfinite(parse_duration(text))


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_go_calls_these_true(text: str) -> None:
    assert parse_go_bool(text) is True


@pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False"])
def test_go_calls_these_false(text: str) -> None:
    assert parse_go_bool(text) is False


@pytest.mark.parametrize("text", ["yes", "no", "on", "tRUE", "", " true", "2"])
def test_go_refuses_anything_else(text: str) -> None:
    with pytest.raises(ValueError, match="neither true"):
        parse_go_bool(text)


def test_our_own_flags_take_more_words() -> None:
    assert parse_flag(" Yes ")
    assert not parse_flag("OFF")
    with pytest.raises(ValueError, match="write true or false"):
        parse_flag("maybe")


class Export(msgspec.Struct):
    name: str
    grace: Annotated[float, msgspec.Meta(extra=DURATION)] = 1.0


CASES: list[tuple[Any, str, Any]] = [
    (str, "007", "007"),
    (int, "7", 7),
    (float, "0.5", 0.5),
    (bool, "off", False),
    (int | None, "7", 7),
    (tuple[str, ...], "a, b,,c", ("a", "b", "c")),
    (list[int], "1,2", [1, 2]),
    (list[int], "[1, 2]", [1, 2]),
    (set[str], "a,b", {"a", "b"}),
    (dict[str, int], '{"a": 1}', {"a": 1}),
    (Export, '{"name": "x", "grace": "2m"}', Export("x", 120.0)),
    (tuple[Export, ...], '[{"name": "x"}, {"name": "y", "grace": "1s"}]', (Export("x"), Export("y", 1.0))),
    (Literal["a", "b"], "a", "a"),
    (Annotated[float, msgspec.Meta(extra=DURATION)], "1m", 60.0),
]


@pytest.mark.parametrize(("kind", "text", "value"), CASES)
def test_text_becomes_what_the_type_asks_for(kind: Any, text: str, value: Any) -> None:
    assert convert(text, mi.type_info(kind), kind, text=True) == value


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        (int, "x", "it must be a whole number"),
        (Annotated[int, msgspec.Meta(ge=1, le=9)], "x", "a whole number from 1 to 9"),
        (float, "x", "it must be a number"),
        (bool, "x", "neither yes nor no"),
        (dict[str, int], "a=1", "it must be JSON"),
        (list[int], "[1,", "it must be JSON"),
        (list[int], "1,x", r"expected `int`"),
        (Export, '{"nmae": "x"}', "nmae is not among name, grace"),
        (Export, "{}", "missing required field `name`"),
        (Literal["a", "b"], "c", "invalid enum value 'c'"),
    ],
)
def test_what_cannot_be_one_is_refused_in_plain_words(kind: Any, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        convert(text, mi.type_info(kind), kind, text=True)


def test_a_file_has_types_of_its_own() -> None:
    assert convert(7, mi.type_info(int), int, text=False) == 7
    with pytest.raises(ValueError, match="it must be a whole number"):
        convert("7", mi.type_info(int), int, text=False)


def test_a_duration_in_a_file_needs_a_unit() -> None:
    kind = Annotated[float, msgspec.Meta(extra=DURATION)]
    assert convert("15s", mi.type_info(kind), kind, text=False) == 15
    assert convert(0, mi.type_info(kind), kind, text=False) == 0
    with pytest.raises(ValueError, match='15 has no unit; write it in quotes, like "15s"'):
        convert(15, mi.type_info(kind), kind, text=False)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (tuple[str, ...], ("a,b",)),
        (list[str], ["a,b"]),
        (tuple[str | Export, ...], ("a,b",)),
        (list[str] | None, ["a,b"]),
    ],
)
def test_text_in_a_file_where_a_list_belongs_is_a_list_of_one(kind: Any, value: Any) -> None:
    assert convert("a,b", mi.type_info(kind), kind, text=False) == value


@pytest.mark.parametrize(
    ("kind", "raw", "words"),
    [
        (list[int], "1", "it must be a list, in brackets"),
        (tuple[Export, ...], "x", "it must be a list, in brackets"),
        (tuple[Export, ...], {"name": "x"}, r"it must be a list; .* written \[\[\.\.\.\]\]"),
    ],
)
def test_what_can_be_no_list_says_how_to_write_one(kind: Any, raw: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        convert(raw, mi.type_info(kind), kind, text=False)
