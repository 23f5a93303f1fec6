from __future__ import annotations

import asyncio
import io
import json
import logging

from prov_host.about import about, what_about
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


def test_json_lines_say_what_they_are_about() -> None:
    stream = io.StringIO()
    set_up_logging("info", "json", stream)
    log = logging.getLogger("prov_host.test")
    with about({"claim": "default/one", "class": "", "plugin": "nfs"}):
        log.info("outer")
        with about({"volume": "pv"}):
            log.info("inner")
        as_plugin("audit", lambda: log.info("of another plugin"))
    log.info("after")
    outer, inner, other, after = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (outer["claim"], outer["plugin"], "class" in outer) == ("default/one", "nfs", False)
    assert (inner["claim"], inner["volume"]) == ("default/one", "pv")
    assert (other["claim"], other["plugin"]) == ("default/one", "audit")
    assert after.keys() == {"time", "level", "logger", "message"}


async def test_what_a_task_is_about_is_not_what_another_is_about() -> None:
    async def work(claim: str) -> str:
        with about({"claim": claim}):
            await asyncio.sleep(0)
            return what_about()["claim"]

    assert await asyncio.gather(work("a"), work("b")) == ["a", "b"]
