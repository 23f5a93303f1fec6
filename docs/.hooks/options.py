"""The table of options, from the options themselves: it cannot be out of date."""

from __future__ import annotations

from typing import Any

from prov_host.host_options import options

MARK = "<!-- the table of options -->"


def table() -> str:
    """One row for each option, in the order of their names."""
    rows = ["| option | default | meaning |", "|---|---|---|"]
    for option in sorted(options(), key=lambda option: option.name):
        default = f"`{option.default_text}`" if option.default_text else ""
        rows.append(f"| `--{option.name}` | {default} | {option.description} |")
    return "\n".join(rows)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs with each page's text."""
    return markdown.replace(MARK, table()) if MARK in markdown else markdown
