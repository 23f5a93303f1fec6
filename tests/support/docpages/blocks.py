"""Finds the fenced blocks of a page."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

LANGUAGES = frozenset({"sh", "console", "python", "toml", "yaml", "json", "text", "mermaid"})
_ALIASES = {"bash": "sh", "shell": "sh", "yml": "yaml", "py": "python"}
_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,}|~{3,})(?P<head>.*)$")
_TITLE = re.compile(r'title="([^"]+)"')
_DIRECTIVE = re.compile(r"<!--\s*docs-test:\s*(.*?)\s*-->")
_READY = re.compile(r'ready="([^"]*)"')


class BadBlock(Exception):
    """A fence that cannot be understood."""


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        page: the file it is in.
        line: of its fence, from 1.
        language: what it is written in.
        text: what is in it, without the fence's indentation.
        title: the file it is to be written to, or "".
        background: whether it is started and left running.
        ready: what its output has when it is ready.
    """

    page: Path
    line: int
    language: str
    text: str
    title: str = ""
    background: bool = False
    ready: str = ""
    where: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "where", f"{self.page.name}:{self.line}")


def blocks_of(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order.

    Raises:
        BadBlock: a language nobody executes, an attribute nobody reads, a fence that is not closed.
    """
    blocks: list[Block] = []
    directive = ""
    lines = page.read_text(encoding="utf-8").splitlines()
    index = 0
    while index < len(lines):
        line = lines[index]
        if found := _DIRECTIVE.search(line):
            directive = found.group(1)
        elif fence := _FENCE.match(line):
            end = index + 1
            closing = re.compile(rf"^ *{re.escape(fence['ticks'])}[`~]*\s*$")
            while end < len(lines) and not closing.match(lines[end]):
                end += 1
            if end == len(lines):
                raise BadBlock(f"{page.name}:{index + 1}: this fence is not closed")
            indent = len(fence["indent"])
            text = "\n".join(inner[indent:] if inner[:indent].isspace() else inner for inner in lines[index + 1 : end])
            blocks.append(_block(page, index + 1, fence["head"].strip(), text + "\n", directive))
            directive = ""
            index = end
        elif line.strip() and directive:
            raise BadBlock(f"{page.name}:{index + 1}: a docs-test comment must stand before a fence")
        index += 1
    return blocks


def _block(page: Path, line: int, head: str, text: str, directive: str) -> Block:
    where = f"{page.name}:{line}"
    title = found.group(1) if (found := _TITLE.search(head)) else ""
    language = _TITLE.sub("", head).strip()
    language = _ALIASES.get(language, language)
    if language not in LANGUAGES:
        raise BadBlock(f"{where}: the fence says {language!r}; say one of {', '.join(sorted(LANGUAGES))}")
    ready = found.group(1) if (found := _READY.search(directive)) else ""
    flags = set(_READY.sub("", directive).replace(",", " ").split())
    if flags - {"background"} or (flags and language != "sh"):
        raise BadBlock(f"{where}: docs-test does not know {directive!r} for {language}")
    return Block(page, line, language, text, title=title, background="background" in flags, ready=ready)
