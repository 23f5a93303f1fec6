"""Whatever bytes a name is made of: nothing that shows it fails, and nothing that shows it obeys."""

from __future__ import annotations

import io
import json
import logging
import os

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prov_host import encodable, printable
from prov_host.cli import cli, main
from prov_host.logs import set_up_logging

LATIN = os.fsdecode(b"caf\xe9")
HOSTILE = [LATIN, "a\nb", "\x1b[2J", "\u2028x", "\u202eevil", "\ud83d", "\x85", "\x00", "\U000e0001"]
anything = st.text(st.characters(codec=None, categories=None) | st.sampled_from("".join(HOSTILE)))


@given(anything)
@example("".join(HOSTILE))
def test_printable_text_is_one_line_that_can_be_written_and_shown(text: str) -> None:
    shown = printable(text)
    shown.encode()
    assert len(shown.splitlines()) <= 1
    assert all(character.isprintable() or character.isspace() for character in shown)
    assert printable(shown) == shown


@given(anything)
def test_encodable_text_can_be_written_and_is_changed_only_where_it_must(text: str) -> None:
    encoded = encodable(text)
    encoded.encode()
    assert encodable(encoded) == encoded
    try:
        text.encode()
    except UnicodeEncodeError:
        assert encoded != text
    else:
        assert encoded == text


@pytest.mark.parametrize("text", ["", "data", "Müller", "日本語", "a\u00a0b", "🗄"])
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == encodable(text) == text


def test_bytes_are_shown_as_the_bytes_they_are() -> None:
    assert printable(f"{LATIN}\n\t\x1b\u2028\U000e0001") == r"caf\xe9\n\t\x1b\u2028\U000e0001"
    assert encodable(f"{LATIN}\n") == "caf\\xe9\n"


# --- logs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("text", HOSTILE)
def test_every_record_is_logged_on_a_line(form: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="utf-8", errors="strict", newline="")
    set_up_logging("info", form, stream)
    log = logging.getLogger("prov_host.test")
    log.info("entry %s stays", text)
    try:
        raise OSError(5, "Input/output error", text)
    except OSError:
        log.exception("failed")
    stream.flush()
    written = raw.getvalue().decode()
    assert capsys.readouterr().err == ""  # where logging tells of its own failures
    lines = written.split("\n")[:-1]
    if form == "json":
        first, second = map(json.loads, lines)
        assert first["message"] == f"entry {encodable(text)} stays"
        assert "Input/output error" in second["error"]
    else:
        assert printable(text) in lines[0]
        assert all(line.startswith("    ") for line in lines[2:])
        assert "\x1b" not in written
        assert written.splitlines() == lines  # no separator that is no newline


def test_a_command_that_prints_a_name_does_not_end_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="utf-8", errors="strict", write_through=True))

    @click.command("name")
    def name() -> None:
        click.echo(f"{LATIN} é")

    monkeypatch.setattr(cli, "get_command", lambda _context, _name: name)
    with pytest.raises(SystemExit) as ended:
        main(["name"])
    assert ended.value.code in {0, None}
    assert raw.getvalue() == b"caf\\udce9 \xc3\xa9\n"
