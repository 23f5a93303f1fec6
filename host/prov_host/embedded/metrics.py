"""How many requests of which kind were answered, under the names of the real API server."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prov_host.embedded.requests import Target

__all__ = ["RequestCounter"]

_VERBS = {
    "get": "GET", "list": "LIST", "watch": "WATCH", "create": "POST", "update": "PUT", "patch": "PATCH",
    "delete": "DELETE", "deletecollection": "DELETECOLLECTION",
}  # fmt: skip
_HEAD = """\
# HELP apiserver_request_total [STABLE] Counter of apiserver requests broken out for each verb, dry run value, group, \
version, resource, scope, component, and HTTP response code.
# TYPE apiserver_request_total counter
"""


class RequestCounter:
    """Counts requests; a watch is counted when it starts."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str, str, str, str]] = Counter()

    def count(self, target: Target, code: int, *, patch: str = "") -> None:
        """Count one answer; ``patch`` is the content type, which tells an apply from a patch."""
        verb = (
            "APPLY" if target.verb == "patch" and patch.startswith("application/apply-patch") else _VERBS[target.verb]
        )
        key = (str(code), target.group, target.resource.plural, target.scope, target.subresource, verb)
        self._counts[key] += 1

    def total(self, *, resource: str | None = None, verb: str | None = None, code: int | None = None) -> int:
        """How many requests there were of a resource's plural, a verb (``LIST``), a status code; None is all."""
        return sum(
            count
            for (its_code, _, its_resource, _, _, its_verb), count in self._counts.items()
            if resource in {None, its_resource} and verb in {None, its_verb} and code in {None, int(its_code)}
        )

    def expose(self) -> str:
        """The text of ``/metrics``."""
        lines = [
            f'apiserver_request_total{{code="{code}",component="apiserver",dry_run="",group="{group}",'
            f'resource="{resource}",scope="{scope}",subresource="{sub}",verb="{verb}",version="v1"}} {count}\n'
            for (code, group, resource, scope, sub, verb), count in sorted(self._counts.items())
        ]
        return _HEAD + "".join(lines)
