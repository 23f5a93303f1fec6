"""A storage budget per namespace, kept by a wrapper around every backend's ``provision``.

The volumes of the cluster come from the host's cache. A volume between "decided" and "in the cache" is remembered
here, so that claims which arrive together cannot all fit into the same room.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping

import msgspec

from prov_host import (
    ConfigurationError,
    HostContext,
    Ignored,
    Infeasible,
    Provisioned,
    ProvisionError,
    ProvisionRequest,
    Removed,
    Reschedule,
    Volume,
    format_bytes,
    hookimpl,
    parse_bytes,
)


class QuotaSettings(msgspec.Struct, frozen=True):
    """Budgets as quantities, for example ``10Gi``."""

    default: str = ""
    budgets: dict[str, str] = {}


class QuotaPlugin:
    """Decides under a lock; the backend's own work runs outside of it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._promised: dict[str, tuple[str, int]] = {}  # volume name -> namespace, bytes

    @hookimpl
    def settings_type(self) -> type[QuotaSettings]:
        return QuotaSettings

    @hookimpl
    def configure(self, settings: QuotaSettings, host: HostContext) -> None:
        self._host = host
        self._budgets: dict[str, int] = {}
        problems = []
        for namespace, text in {"": settings.default, **settings.budgets}.items():
            try:
                if text:
                    self._budgets[namespace] = parse_bytes(text)
            except ValueError as error:
                where = f"budgets.{namespace}" if namespace else "default"
                problems.append(f"quota: the setting {where}: {error}")
        if problems:
            raise ConfigurationError(*problems)
        host.every("forget volumes that are saved", 10.0, self._saved)

    @hookimpl(wrapper=True)
    def provision(self, request: ProvisionRequest) -> Generator[None, Provisioned, Provisioned]:
        self._reserve(request)
        try:
            return (yield)
        except (ProvisionError, Infeasible, Reschedule, Ignored):
            # Nothing was made. Any other failure may still come to something, and keeps its room.
            self._release(request.pv_name)
            raise

    @hookimpl(wrapper=True)
    def delete(self, volume: Volume) -> Generator[None, Removed | None, Removed | None]:
        removed = yield
        self._release(volume.name)  # also how the host undoes a volume that it could not save
        return removed

    def _reserve(self, request: ProvisionRequest) -> None:
        namespace = request.claim.namespace
        budget = self._budgets.get(namespace, self._budgets.get(""))
        if budget is None:
            return
        try:
            wanted = request.claim.requested_bytes
        except ValueError as error:
            raise Infeasible(f"the storage request of {request.claim.key}: {error}") from error
        with self._lock:
            saved = self._saved()
            used = sum(
                _size(volume)
                for name, volume in saved.items()
                if volume.claim_key.partition("/")[0] == namespace and name != request.pv_name
            )
            used += sum(
                size for name, (space, size) in self._promised.items() if space == namespace and name != request.pv_name
            )
            if used + wanted > budget:
                raise ProvisionError(
                    f"namespace {namespace} has a storage budget of {format_bytes(budget)} and uses "
                    f"{format_bytes(used)}; {request.claim.key} wants {format_bytes(wanted)}. Delete volumes, or ask "
                    "for a larger budget"
                )
            self._promised[request.pv_name] = (namespace, wanted)

    def _saved(self) -> dict[str, Volume]:
        """The volumes of the cluster; what is among them is no promise any more."""
        with self._lock:  # look and forget in one step: a volume is always in one of the two
            saved = {volume.name: volume for volume in self._host.volumes()}
            self._promised = {name: what for name, what in self._promised.items() if name not in saved}
        return saved

    def _release(self, name: str) -> None:
        with self._lock:
            self._promised.pop(name, None)


def _size(volume: Volume) -> int:
    """The volume's capacity; one that cannot be read counts nothing, and never stops a claim."""
    capacity: Mapping[str, object] = volume.spec.capacity or {}
    try:
        return parse_bytes(str(capacity.get("storage", "0")))
    except ValueError:
        return 0
