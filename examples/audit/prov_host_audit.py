"""An audit log around all backends: a line before each operation, written or it does not happen, and one after it.

The line before comes from a wrapper, which runs in the backend's thread around the operation: if it cannot be
written, the operation fails and is retried. The line after comes from an observer, which is told what the host made
of it: an error there is logged and changes nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from typing import Any, TypeVar

import msgspec

from prov_host import (
    ConfigurationError,
    DeleteError,
    HostContext,
    Provisioned,
    ProvisionError,
    ProvisionRequest,
    Record,
    Removed,
    Volume,
    hookimpl,
)

T = TypeVar("T")


class AuditSettings(msgspec.Struct, frozen=True):
    """Where to write: the file is made if it is missing, and only ever appended to."""

    path: str = ""


class AuditPlugin:
    """One append per line, under a lock: lines of several threads never mix."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @hookimpl
    def settings_type(self) -> type[AuditSettings]:
        return AuditSettings

    @hookimpl
    def configure(self, settings: AuditSettings, host: HostContext) -> None:
        if not settings.path:
            raise ConfigurationError("PROV_HOST_AUDIT_PATH is not set; name the file to write the audit log to")
        self._path = settings.path
        self._clock = host.clock

    @hookimpl
    def check(self) -> list[str]:
        directory = os.path.dirname(os.path.abspath(self._path))
        return [] if os.access(directory, os.W_OK) else [f"{directory} cannot be written to, so nothing is served"]

    @hookimpl(wrapper=True)
    def provision(self, request: ProvisionRequest) -> Generator[None, Provisioned, Provisioned]:
        try:
            self._begin("provision", request.pv_name, request.claim.key)
        except OSError as error:
            # Nothing was made yet: this is a failure for good, to be retried, and not "maybe still running".
            raise ProvisionError(f"the audit log {self._path} cannot be written: {error.strerror}") from error
        return (yield)

    @hookimpl(wrapper=True)
    def delete(self, volume: Volume) -> Generator[None, Removed | None, Removed | None]:
        self._begin_removal("delete", volume)
        return (yield)

    @hookimpl(wrapper=True)
    def archive(self, volume: Volume) -> Generator[None, Removed | None, Removed | None]:
        self._begin_removal("archive", volume)
        return (yield)

    @hookimpl
    def observe(self, record: Record) -> None:
        self._write(event="end", **msgspec.to_builtins(record))

    def _begin(self, operation: str, volume: str, claim: str) -> None:
        self._write(event="begin", operation=operation, volume=volume, claim=claim)

    def _begin_removal(self, operation: str, volume: Volume) -> None:
        try:
            self._begin(operation, volume.name, volume.claim_key)
        except OSError as error:
            raise DeleteError(f"the audit log {self._path} cannot be written: {error.strerror}") from error

    def _write(self, **fields: Any) -> None:
        line = msgspec.json.encode({"at": self._clock.now().isoformat(), **fields}) + b"\n"
        with self._lock, open(self._path, "ab", buffering=0) as file:
            file.write(line)
            os.fsync(file.fileno())
