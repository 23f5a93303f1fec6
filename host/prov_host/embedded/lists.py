"""List and watch: what a client sees of a kind, at once or from now on.

Lists are consistent: the pages of one list, and a list at an exact revision, are rebuilt from the history. Watches
follow the real server in what comes first: without a revision, or with "0", the objects there are; with
``sendInitialEvents`` those and a bookmark that ends them; with a revision, the changes since; with one from before the
history, an ERROR event of 410.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec

from prov_host.clock import Clock
from prov_host.embedded.failures import ApiFailure, bad_request, expired, too_large_version
from prov_host.embedded.requests import Options, Target
from prov_host.embedded.schema import Type
from prov_host.embedded.selectors import field_selector, label_selector
from prov_host.embedded.store import Change, Store, Stored, Watcher, watch_line

__all__ = ["Page", "Selection", "WatchStream", "list_objects", "parse_revision", "select", "start_watch"]

_BOOKMARK_INTERVAL = 60.0
_DEFAULT_TIMEOUT = 1800.0
_CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
Selection = Callable[[str, Stored], bool]


def parse_revision(text: str, *, code: int = 400) -> int | None:
    """A resourceVersion as a number; None for "".

    Raises:
        ApiFailure: no number.
    """
    if not text:
        return None
    if not text.isascii() or not text.isdigit():
        why = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise bad_request(f"invalid resource version: {why}") if code == 400 else ApiFailure(code, "", why)
    return int(text)


def select(target: Target, options: Options) -> Selection | None:
    """What of a kind a request sees; None means all of it."""
    resource = target.resource
    labels = label_selector(options.labels) if options.labels else None
    fields = _field_test(target, options.fields) if options.fields else None
    prefix = f"{target.namespace}/" if target.namespace else ""
    if not (labels or fields or prefix):
        return None

    def sees(key: str, stored: Stored) -> bool:
        if prefix and not key.startswith(prefix):
            return False
        if labels is not None and not labels(stored.obj["metadata"].get("labels", {})):
            return False
        return fields is None or fields(stored.obj)

    del resource
    return sees


def _field_test(target: Target, text: str) -> Callable[[Mapping[str, Any]], bool] | None:
    resource = target.resource
    known = {name: name for name in ("metadata.name", "metadata.namespace", *resource.selectable)}
    if resource.plural == "events":
        known |= {"source": "source.component"}
        if target.group:
            known = {
                name.replace("involvedObject", "regarding").replace("reportingComponent", "reportingController"): path
                for name, path in known.items()
            }
        return field_selector(text, known, "field label not supported: {field}")
    if resource.selectable:
        return field_selector(text, known, "field label not supported: {field}")
    return field_selector(
        text, known, '"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"'
    )


# ---------------------------------------------------------------------------------------------- lists


class Page(msgspec.Struct, frozen=True):
    """A list, or a part of one.

    Attributes:
        revision: of the whole list.
        items: in the order of their keys.
        continue_: the token of the next part, or "".
        remaining: how many come after this part; None if that is not known.
    """

    revision: int
    items: tuple[Stored, ...]
    continue_: str = ""
    remaining: int | None = None


class _Token(msgspec.Struct, frozen=True):
    v: str
    rv: int
    start: str


def _encode_token(revision: int, after: str) -> str:
    token = msgspec.json.encode(_Token("meta.k8s.io/v1", revision, f"/{after}\0"))
    return base64.urlsafe_b64encode(token).decode().rstrip("=")


def _decode_token(text: str) -> tuple[int, str]:
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        token = msgspec.json.decode(raw, type=_Token)
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from None
    return token.rv, token.start[1:-1]


def list_objects(store: Store, target: Target, options: Options) -> Page:
    """Read a kind.

    Raises:
        ApiFailure: 400 and 422 for a bad request, 410 for a revision that is gone, 504 for one from the future.
    """
    table = store.tables[target.resource.id]
    asked = parse_revision(options.resource_version)
    revision, after = store.revision, ""
    if options.continue_:
        if asked:
            raise bad_request("specifying resource version is not allowed when using continue")
        revision, after = _decode_token(options.continue_)
        if revision == -1:
            revision = store.revision
    elif asked is not None and options.match == "Exact":
        revision = asked
    if max(asked or 0, revision) > store.revision:
        raise too_large_version(max(asked or 0, revision), store.revision)
    try:
        objects = table.at(revision)
    except ApiFailure:
        if not options.continue_:
            raise
        raise expired(_CONTINUE_EXPIRED, _encode_token(-1, after)) from None
    selection = select(target, options)
    found = sorted(
        (key, stored)
        for key, stored in objects.items()
        if key > after and (selection is None or selection(key, stored))
    )
    # Like the real server, a list at "0" comes whole, out of the cache.
    if options.limit and options.resource_version != "0" and len(found) > options.limit:
        selective = bool(options.labels or options.fields)
        page = found[: options.limit]
        token = _encode_token(revision, page[-1][0])
        return Page(revision, tuple(s for _, s in page), token, None if selective else len(found) - options.limit)
    return Page(revision, tuple(stored for _, stored in found))


# --------------------------------------------------------------------------------------------- watches


class WatchStream:
    """A watch: lines without their newline, until the server ends it.

    Attributes:
        render: replaces how an event becomes a line (tables); None for the ordinary way.
    """

    def __init__(self, watcher: Watcher, selection: Selection | None, kind: bytes) -> None:
        self._watcher = watcher
        self._selection = selection
        self._kind = kind
        self._keeper: asyncio.Task[None] | None = None
        self.drop_bookmarks: Callable[[], bool] = lambda: False
        self.render: Callable[[str, Stored], bytes] | None = None
        self.on_close: Callable[[WatchStream], None] = lambda stream: None

    def keep(self, clock: Clock, timeout: float, bookmarks: Callable[[], int] | None) -> None:
        """End the watch after a time, and send bookmarks until then."""
        self._keeper = asyncio.get_running_loop().create_task(self._keep(clock, timeout, bookmarks))

    async def _keep(self, clock: Clock, timeout: float, bookmarks: Callable[[], int] | None) -> None:
        end = clock.monotonic() + timeout
        while bookmarks is not None and end - clock.monotonic() > _BOOKMARK_INTERVAL:
            await clock.sleep(_BOOKMARK_INTERVAL)
            self.bookmark(bookmarks())
        await clock.sleep(end - clock.monotonic())
        self._watcher.close()

    def bookmark(self, revision: int, *, initial_end: bool = False) -> None:
        """Tell how far the client is."""
        if self.drop_bookmarks() and not initial_end:
            return
        note = b',"annotations":{"k8s.io/initial-events-end":"true"}' if initial_end else b""
        head = self._kind.partition(b"|")
        body = (
            head[0] + b'"metadata":{"resourceVersion":"' + str(revision).encode() + b'"' + note + b"}" + head[2] + b"}"
        )
        self._watcher.put(watch_line("BOOKMARK", body))

    def put(self, change: Change | bytes) -> None:
        """Send an event of the past."""
        self._watcher.put(change)

    def close(self) -> None:
        """End the watch. Idempotent."""
        if self._keeper is not None:
            self._keeper.cancel()
            self._keeper = None
        self._watcher.close()
        self.on_close(self)

    def _line(self, change: Change | bytes) -> bytes | None:
        if isinstance(change, bytes):
            return change
        selection = self._selection
        if selection is None:
            return change.line if self.render is None else self.render(change.type, change.last)
        before = change.before is not None and selection(change.key, change.before)
        after = change.after is not None and selection(change.key, change.after)
        if after:
            kind = "MODIFIED" if before else "ADDED"
        elif before:
            kind = "DELETED"
        else:
            return None
        if self.render is not None:
            return self.render(kind, change.last)
        return change.line if kind == change.type else watch_line(kind, change.last.json)

    def take(self) -> list[bytes]:
        """All lines that are there already."""
        lines = []
        while (change := self._watcher.take()) is not None:
            line = self._line(change)
            if line is not None:
                lines.append(line)
        return lines

    async def next(self) -> bytes | None:
        """The next line; None when the watch has ended."""
        while (change := await self._watcher.next()) is not None:
            line = self._line(change)
            if line is not None:
                return line
        return None

    async def lines(self) -> AsyncIterator[bytes]:
        """The lines, until the watch ends."""
        try:
            while (line := await self.next()) is not None:
                yield line
        finally:
            self.close()


def start_watch(store: Store, clock: Clock, target: Target, options: Options) -> WatchStream:
    """Start a watch; it misses nothing from this call on.

    Raises:
        ApiFailure: 400, 422 and 500 for a bad request.
    """
    table = store.tables[target.resource.id]
    asked = parse_revision(options.resource_version, code=500)
    selection = select(target, options)
    initial = options.initial_events or (options.initial_events is None and not asked)
    watcher = Watcher(table)
    stream = WatchStream(watcher, selection, table.head + b"|" + _zero(target.resource.schema))
    if initial:
        for key in sorted(table.objects):
            stored = table.objects[key]
            watcher.put(Change(key, None, stored, stored))
        if options.initial_events and options.bookmarks:
            stream.bookmark(store.revision, initial_end=True)
    elif asked:
        try:
            for change in table.since(asked):
                watcher.put(change)
        except ApiFailure as failure:
            watcher.put(watch_line("ERROR", failure.body()))
            watcher.close()
            return stream
    stream.keep(clock, options.timeout or _DEFAULT_TIMEOUT, (lambda: store.revision) if options.bookmarks else None)
    return stream


def _zero(schema: Type) -> bytes:
    """An empty object's fields besides its metadata, as they follow it in JSON."""
    fields = {name: field for name, field in schema.fields.items() if name != "metadata" and field.always}
    parts = [f',"{name}":'.encode() + msgspec.json.encode(_zero_value(field)) for name, field in fields.items()]
    return b"".join(parts)


def _zero_value(field: Type) -> Any:
    if field.kind == "object":
        return {name: _zero_value(inner) for name, inner in field.fields.items() if inner.always}
    return {"string": "", "list": []}.get(field.kind)
