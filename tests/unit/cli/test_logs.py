from __future__ import annotations

import io
import json
import logging

from prov_host.logs import set_up_logging
from prov_host.output import as_plugin


def logged(form: str, level: str = "info") -> list[str]:
    stream = io.StringIO()
    set_up_logging(level, form, stream)
    log = logging.getLogger("prov_host.test")
    log.debug("hidden")
    log.info("claim %s", "a\nb\rc")
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("failed")
    as_plugin("nfs", lambda: log.warning("slow"))
    return stream.getvalue().splitlines()


def test_a_newline_in_a_message_starts_no_line() -> None:
    lines = logged("text")
    assert lines[0].endswith(r"Z INFO prov_host.test: claim a\nb\rc")
    assert lines[1].endswith("ERROR prov_host.test: failed")
    assert all(line.startswith("    ") for line in lines[2:-1])
    assert "ValueError: broken" in lines[-2]


def test_json_lines_hold_one_record_each() -> None:
    entries = [json.loads(line) for line in logged("json")]
    assert [entry["message"] for entry in entries] == ["claim a\nb\rc", "failed", "slow"]
    assert entries[0].keys() == {"time", "level", "logger", "message"}
    assert "ValueError: broken" in entries[1]["error"]
    assert entries[2]["plugin"] == "nfs"


def test_the_level_decides_what_is_told() -> None:
    assert len([line for line in logged("json", "debug") if "hidden" in line]) == 1
    assert len(logged("json", "error")) == 1
