"""Docstrings name things with Sphinx roles, which editors understand; the site shows them as plain code."""

from __future__ import annotations

import re
from typing import Any

_ROLE = re.compile(r":(?:class|meth|func|mod|exc|data|attr|obj):<code>(~?)([^<]*)</code>")


def on_page_content(html: str, **_: Any) -> str:
    """Called by mkdocs with each page's HTML."""
    return _ROLE.sub(lambda match: f"<code>{match[2].rpartition('.')[2] if match[1] else match[2]}</code>", html)
