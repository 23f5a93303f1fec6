"""Label and field selectors, with the API server's syntax and its words about mistakes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from prov_host.embedded.failures import bad_request

__all__ = ["field_selector", "label_selector"]

LabelTest = Callable[[Mapping[str, str]], bool]
FieldTest = Callable[[Mapping[str, Any]], bool]

_TOKEN = re.compile(r"\s*(!=|==|=|!|,|\(|\)|<|>|[^\s!=,()<>]+)")
_OPERATORS = "in, notin, =, ==, !=, gt, lt"


class _Tokens:
    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.findall(text)
        self._next = 0

    def peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self._next += 1
        return token


def _is_word(token: str) -> bool:
    return bool(token) and token[0] not in "!=,()<>"


def label_selector(text: str) -> LabelTest | None:
    """Compile a label selector.

    Args:
        text: for example ``"app=x,tier in (a,b),!legacy"``.

    Returns:
        A test of an object's labels, or None for the selector that matches everything.

    Raises:
        ApiFailure: 400 for a text that is no selector.
    """
    tokens, tests = _Tokens(text), []
    if not tokens.peek():
        return None
    while True:
        tests.append(_requirement(tokens))
        token = tokens.take()
        if not token:
            break
        if token[0] != ",":
            raise bad_request(f"found '{token}', expected: ',' or 'end of string'")
        if not _is_word(tokens.peek()) and tokens.peek() != "!":
            raise bad_request(f"found '{tokens.peek()}', expected: identifier after ','")
    return tests[0] if len(tests) == 1 else lambda labels: all(test(labels) for test in tests)


def _requirement(tokens: _Tokens) -> LabelTest:
    token = tokens.take()
    if token[:1] == "!":
        absent = tokens.take()
        if not _is_word(absent):
            raise bad_request(f"unable to parse requirement: found '{absent}', expected: identifier")
        return lambda labels: absent not in labels
    if not _is_word(token):
        raise bad_request(f"found '{token}', expected: !, identifier, or 'end of string'")
    key, operator = token, tokens.peek()
    if operator in {"", ","}:
        return lambda labels: key in labels
    tokens.take()
    if operator in {"=", "==", "!="}:
        value = tokens.take() if _is_word(tokens.peek()) else ""
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if operator in {"in", "notin"}:
        values = _values(tokens)
        if operator == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: key not in labels or labels[key] not in values
    if operator in {">", "<"}:
        bound = tokens.take()
        if not re.fullmatch(r"-?[0-9]+", bound):
            raise bad_request(
                f"unable to parse requirement: for 'Gt', 'Lt' operators, the value must be an integer: {bound}"
            )
        sign = 1 if operator == ">" else -1
        return lambda labels: _number(labels.get(key)) is not None and sign * (int(labels[key]) - int(bound)) > 0
    raise bad_request(f"unable to parse requirement: found '{operator}', expected: {_OPERATORS}")


def _values(tokens: _Tokens) -> frozenset[str]:
    if tokens.take() != "(":
        raise bad_request("unable to parse requirement: found '', expected: '('")
    values: set[str] = set()
    while True:
        token = tokens.take()
        if token[:1] == ")":
            return frozenset(values or {""})
        if not token:
            raise bad_request("unable to parse requirement: found '', expected: ',', ')' or identifier")
        if token[0] != ",":
            values.add(token)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"-?[0-9]+", text) else None


def field_selector(text: str, known: Mapping[str, str], unknown: str) -> FieldTest | None:
    """Compile a field selector.

    Args:
        text: for example ``"metadata.name=a,metadata.namespace!=b"``.
        known: the fields that can be selected by, and the path in the stored object of each.
        unknown: the words about other fields, with ``{field}`` in them.

    Returns:
        A test of an object, or None for the selector that matches everything.

    Raises:
        ApiFailure: 400 for a text that is no selector, or an unknown field.
    """
    tests: list[FieldTest] = []
    for term in text.split(","):
        if not term:
            continue
        match = re.fullmatch(r"([^=!]*)(==|!=|=)(.*)", term)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        field, operator, value = match.groups()
        if field not in known:
            raise bad_request(unknown.format(field=field))
        tests.append(_field_test(known[field].split("."), value, wanted=operator != "!="))
    if not tests:
        return None
    return tests[0] if len(tests) == 1 else lambda obj: all(test(obj) for test in tests)


def _field_test(path: list[str], value: str, *, wanted: bool) -> FieldTest:
    def test(obj: Mapping[str, Any]) -> bool:
        found: Any = obj
        for part in path:
            found = found.get(part) if isinstance(found, Mapping) else None
        text = "" if found is None else str(found).lower() if isinstance(found, bool) else str(found)
        return (text == value) is wanted

    return test
