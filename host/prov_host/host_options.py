"""The host's options, declared once.

An option is a field of :class:`HostSettings` or of the controller's
:class:`~prov_host.controller.options.ControllerOptions`. From the field come ``--worker-threads``, the variable
``PROV_HOST_WORKER_THREADS`` and the file's key ``worker-threads``, their type, default and help
(:func:`options`); :mod:`prov_host.settings` reads them.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import inspect as mi

from prov_host.controller.options import ControllerOptions
from prov_host.conversion import DURATION, format_duration, is_duration, is_flag

__all__ = ["OTHER_DEFAULTS", "PREFIX", "HostSettings", "Option", "options"]

PREFIX = "PROV_HOST_"
"""What the variables of all options begin with."""

_DURATION_NAMES = ("_period", "_interval", "_interval_start", "_interval_max", "_timeout", "_deadline", "_duration")


def _option(description: str, *, duration: bool = False) -> msgspec.Meta:
    return msgspec.Meta(description=description, extra=DURATION if duration else None)


class HostSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What can be chosen about the host itself; durations are seconds. Since 0.1."""

    plugin: Annotated[
        tuple[str, ...], _option("A plugin to run; may be given more than once. 'all' runs every installed one.")
    ] = ()
    plugin_timeout: Annotated[
        float, _option("Importing, or configuring, one plugin may take this long.", duration=True)
    ] = 10.0
    embedded: Annotated[bool, _option("Run against an in-memory cluster of its own, on loopback; for trying out.")] = (
        False
    )
    embedded_kubeconfig: Annotated[
        str, _option("Where the embedded cluster's kubeconfig is while it runs; without one: a temporary file.")
    ] = ""
    kubeconfig: Annotated[str, _option("The kubeconfig file; without one: in the cluster, or ~/.kube/config.")] = ""
    context: Annotated[str, _option("The kubeconfig's context; without one: its current context.")] = ""
    kube_api_qps: Annotated[float, _option("Requests per second to the API server in the long run; 0 is no limit.")] = (
        100.0
    )
    kube_api_burst: Annotated[int, _option("Requests that may go at once before kube-api-qps counts.")] = 200
    leader_election: Annotated[bool, _option("Serve a provisioner name only while holding its Lease.")] = True
    leader_election_namespace: Annotated[
        str, _option("The Leases' namespace; without one: the pod's own, else 'default'.")
    ] = ""
    leader_election_lease_duration: Annotated[
        float, _option("A standby takes over this long after the last renewal.", duration=True)
    ] = 15.0
    leader_election_renew_deadline: Annotated[
        float, _option("The leader gives up if it could not renew for this long.", duration=True)
    ] = 10.0
    leader_election_retry_period: Annotated[float, _option("Pause between renewals, and tries.", duration=True)] = 2.0
    http_address: Annotated[
        str, _option("Serve /metrics, /healthz, /readyz and a status page here, like :8080; without one: off.")
    ] = ""
    node_name: Annotated[str, _option("The node this process runs on, for plugins with node-local volumes.")] = ""
    drain_timeout: Annotated[
        float, _option("When stopped, wait at most this long for running operations.", duration=True)
    ] = 30.0
    backend_threads: Annotated[
        int, _option("Hooks that may run at once per backend; 0: enough for all workers, and spare ones.")
    ] = 0
    backend_qps: Annotated[float, _option("Operations started per second and backend; 0 is no limit.")] = 0.0
    backend_burst: Annotated[int, _option("Operations that may start at once before backend-qps counts.")] = 10
    log_level: Annotated[str, _option("error, warning, info or debug.")] = "info"
    log_format: Annotated[str, _option("text or json.")] = "text"

    def problems(self) -> list[str]:
        """What cannot work, a sentence each."""
        found = []
        if self.log_level not in {"error", "warning", "info", "debug"}:
            found.append(f"log-level is {self.log_level!r}; it must be error, warning, info or debug")
        if self.log_format not in {"text", "json"}:
            found.append(f"log-format is {self.log_format!r}; it must be text or json")
        if self.http_address:
            try:
                self.http_endpoint()
            except ValueError as error:
                found.append(str(error))
        found += [
            f"{name} must not be negative; 0 means no limit"
            for name, value in (
                ("kube-api-qps", self.kube_api_qps),
                ("kube-api-burst", self.kube_api_burst),
                ("backend-threads", self.backend_threads),
                ("backend-qps", self.backend_qps),
                ("backend-burst", self.backend_burst),
                ("drain-timeout", self.drain_timeout),
            )
            if value < 0
        ]
        if self.plugin_timeout <= 0:
            found.append("plugin-timeout must be more than 0: a plugin that hangs would be waited for without end")
        return found

    def http_endpoint(self) -> tuple[str, int]:
        """The host and port of ``http_address``; host "" means every address.

        Raises:
            ValueError: it is not ``HOST:PORT``.
        """
        host, colon, port = self.http_address.rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
            raise ValueError(f"http-address is {self.http_address!r}; write it like :8080 or 127.0.0.1:8080")
        return host.removeprefix("[").removesuffix("]"), int(port)


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of the host: everything that the command line, the environment and the file need. Since 0.1.

    Attributes:
        field: its name in the Struct.
        name: as on the command line, without dashes in front.
        variable: its environment variable.
        kind: its type, as msgspec sees it.
        python_type: its type, as annotated.
        default: its default.
        description: for people.
        owner: the Struct it is a field of.
    """

    field: str
    name: str
    variable: str
    kind: mi.Type
    python_type: Any
    default: Any
    description: str
    owner: type[msgspec.Struct]

    @property
    def flag(self) -> bool:
        """Whether it is yes or no."""
        return is_flag(self.kind)

    @property
    def repeatable(self) -> bool:
        """Whether the command line may give it more than once."""
        return isinstance(self.default, tuple)

    @property
    def default_text(self) -> str:
        """The default as people write it, "" if there is none worth showing."""
        if self.default in {None, "", ()}:
            return ""
        if is_duration(self.kind):
            return format_duration(self.default)
        if isinstance(self.default, bool):
            return "on" if self.default else "off"
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)


# The reference waits for ever by default; a hook that hangs then never has its word, so ours has a limit.
OTHER_DEFAULTS: Mapping[str, tuple[Any, str]] = {
    "provision_timeout": (120.0, "Wait at most this long for a plugin to provision; 0 is no limit."),
    "deletion_timeout": (120.0, "Wait at most this long for a plugin to delete or archive; 0 is no limit."),
}


@functools.cache
def options() -> tuple[Option, ...]:
    """Every setting of the host, the controller's among them. Callable from any thread. Since 0.1."""
    found = []
    for owner in (HostSettings, ControllerOptions):
        annotated = typing.get_type_hints(owner, include_extras=True)
        info = mi.type_info(owner)
        assert isinstance(info, mi.StructType)
        for field in info.fields:
            python_type, kind = annotated[field.name], field.type
            description = _description(kind)
            default = None if field.default is msgspec.NODEFAULT else field.default
            if owner is ControllerOptions and _holds_float(kind) and field.name.endswith(_DURATION_NAMES):
                python_type = Annotated[python_type, msgspec.Meta(extra=DURATION)]
                kind = mi.type_info(python_type)
            default, description = OTHER_DEFAULTS.get(field.name, (default, description))
            found.append(
                Option(
                    field=field.name,
                    name=field.name.replace("_", "-"),
                    variable=PREFIX + field.name.upper(),
                    kind=kind,
                    python_type=python_type,
                    default=default,
                    description=description,
                    owner=owner,
                )
            )
    return tuple(found)


def _description(kind: mi.Type) -> str:
    return str((kind.extra_json_schema or {}).get("description", "")) if isinstance(kind, mi.Metadata) else ""


def _holds_float(kind: mi.Type) -> bool:
    if isinstance(kind, mi.Metadata):
        return _holds_float(kind.type)
    if isinstance(kind, mi.UnionType):
        return any(_holds_float(one) for one in kind.types)
    return isinstance(kind, mi.FloatType)
