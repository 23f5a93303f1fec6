"""Where the API server is and who we are there, found by the ``kubernetes`` package's own loaders.

They accept everything that kubectl does, but they were written for scripts: some failures are only logged, a token file
keeps its final newline, and what is wrong is said in terms of the loader. Here every failure becomes a
:exc:`~prov_host.errors.ConfigurationError` that says what was tried and what to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ipaddress
import logging
import os
import ssl
import traceback
import urllib.parse
import urllib.request
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prov_host.clock import Clock
from prov_host.errors import ConfigurationError
from prov_host.kube.waiting import within

if TYPE_CHECKING:
    from kubernetes.aio.client import ApiClient, Configuration

__all__ = ["SERVICE_ACCOUNT", "Connection", "find_connection", "proxy_of"]

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_LOAD_LIMIT = 60.0  # seconds; an exec plugin that waits for somebody to type a password would wait for ever
_SDK_LOGGER = "kubernetes.aio.config.kube_config"


class Connection:
    """What is needed to send requests: a URL, TLS settings and credentials. For one event loop. Since 0.1.

    Args:
        source: where it was found, for people.
        configuration: the package's configuration, filled by one of its loaders.
        environ: the environment, for proxies.

    Raises:
        ConfigurationError: the certificates cannot be used, or the URL is none.
    """

    def __init__(self, source: str, configuration: Configuration, environ: Mapping[str, str]) -> None:
        from kubernetes.aio.client import ApiClient  # noqa: PLC0415

        self.source = source
        self.host: str = configuration.host.rstrip("/")
        parts = urllib.parse.urlsplit(self.host)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigurationError(f"{source}: the server {self.host!r} is not an http or https URL")
        self.proxy = configuration.proxy or proxy_of(self.host, environ)
        if self.proxy and not self.proxy.startswith(("http://", "https://")):
            raise ConfigurationError(f"{source}: the proxy {self.proxy!r} is not an http or https URL")
        self.server_name: str = configuration.tls_server_name or ""
        try:
            self._api: ApiClient = ApiClient(configuration)
            self.fingerprint = _fingerprint(configuration)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            files = ", ".join(
                filter(None, (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file))
            )
            raise ConfigurationError(f"{source}: the certificates ({files}) cannot be used: {error}") from error
        self.ssl: ssl.SSLContext = self._api.rest_client.ssl_context
        self.shows_certificate = bool(configuration.cert_file)

    async def authorization(self) -> str:
        """The Authorization header's value, "" if the credentials are a certificate or none.

        Raises:
            OSError: the token file cannot be read.
        """
        from kubernetes.aio.config import ConfigException  # noqa: PLC0415

        headers: dict[str, str] = {}
        try:
            # The only door to the package's credentials: a request through its session would go out without them.
            await self._api.update_params_for_auth(headers, [], ["BearerToken"], "", "", None)
        except ConfigException as error:
            raise OSError(f"{self.source}: {error}") from error
        return headers.get("authorization", "").strip()  # token files end with a newline, headers must not


async def find_connection(
    kubeconfig: str | None,
    context: str | None,
    *,
    environ: Mapping[str, str],
    clock: Clock,
    service_account: str = SERVICE_ACCOUNT,
) -> Connection:
    """Find the cluster: see :func:`prov_host.kube.session.load`.

    Args:
        kubeconfig: paths separated by colons, or None.
        context: a context's name, or None.
        environ: the environment.
        clock: the host's clock.
        service_account: the directory with the pod's token and certificate.

    Raises:
        ConfigurationError: what was tried and what to do.

    On the event loop. Since 0.1.
    """
    if kubeconfig:
        return await _from_kubeconfig(kubeconfig, context, "--kubeconfig", environ, clock)
    if environ.get("KUBECONFIG"):
        return await _from_kubeconfig(environ["KUBECONFIG"], context, "KUBECONFIG", environ, clock)
    tried = ["KUBECONFIG is not set"]
    if context:
        tried.append(f"the service account of a pod has no contexts (context {context!r} was asked for)")
    elif not environ.get("KUBERNETES_SERVICE_HOST"):
        tried.append("this is not a pod (KUBERNETES_SERVICE_HOST is not set)")
    elif not _is_file(service_account, "token"):
        tried.append(f"this pod has no service account token ({service_account}/token is missing)")
    else:
        return _from_service_account(service_account, environ)
    home = os.path.join(environ.get("HOME") or str(Path.home()), ".kube", "config")
    if _is_file(home):
        return await _from_kubeconfig(home, context, "the default", environ, clock)
    tried.append(f"{home} does not exist")
    raise ConfigurationError(
        f"no way to the cluster was found: {'; '.join(tried)}. Give --kubeconfig FILE or set KUBECONFIG; in a pod, let "
        "it mount its service account token"
    )


async def _from_kubeconfig(
    paths: str, context: str | None, said_by: str, environ: Mapping[str, str], clock: Clock
) -> Connection:
    from kubernetes.aio.client import Configuration  # noqa: PLC0415
    from kubernetes.aio.config import ConfigException, load_kube_config  # noqa: PLC0415

    source = f"the kubeconfig {paths} ({said_by})" + (f", context {context!r}" if context else "")
    names = _readable(paths, source)
    configuration = Configuration()
    # Not the loader's localhost default: a cluster without a server must be an error.
    configuration.host = ""
    with _complaints() as complaints:
        try:
            await within(
                clock,
                _LOAD_LIMIT,
                _ending_plugins(
                    load_kube_config(
                        config_file=os.pathsep.join(names),
                        context=context,
                        client_configuration=configuration,
                        persist_config=False,
                    )
                ),
            )
        except TimeoutError as error:
            raise ConfigurationError(
                f"{source}: no credentials after {_LOAD_LIMIT:g} s; an exec plugin must not ask for input"
            ) from error
        # The loader lets anything out: KeyError, TypeError and yaml errors of odd files, whatever an OIDC answer does.
        except Exception as error:
            words = " ".join(str(error).split())
            if not isinstance(error, ConfigException):
                words = f"it cannot be made sense of ({type(error).__name__}: {words})"
            raise ConfigurationError(f"{source}: {words}; `kubectl config view` shows what is in it") from error
    if complaints and not configuration.api_key and not configuration.cert_file:
        raise ConfigurationError(f"{source}: the exec plugin gave no credentials: {'; '.join(complaints)}")
    if not context:
        source += f", context {_current_context(names)!r}"
    return Connection(source, configuration, environ)


def _current_context(names: list[str]) -> str:
    """The context that a kubeconfig has just been read with, for people."""
    from kubernetes.aio.config import list_kube_config_contexts  # noqa: PLC0415

    try:
        return str(list_kube_config_contexts(os.pathsep.join(names))[1]["name"])
    except Exception:  # noqa: BLE001 - the loader lets anything out, and it is only a name
        return "?"


async def _ending_plugins(load: Coroutine[Any, Any, None]) -> None:
    """Run the package's loader; when that is cancelled, end the exec plugin it is waiting for.

    The package drops the process it started and lets it run on; only its own frame knows of it.
    """
    try:
        await load
    except asyncio.CancelledError as cancelled:
        for frame, _ in traceback.walk_tb(cancelled.__traceback__):
            for value in frame.f_locals.values():
                if isinstance(value, asyncio.subprocess.Process):
                    value._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - kills it, closes its pipes
        raise


def _readable(paths: str, source: str) -> list[str]:
    names = [os.path.expanduser(name) for name in paths.split(os.pathsep) if name]
    if not any(os.path.exists(name) for name in names):
        raise ConfigurationError(f"{source}: there is no such file; correct the path or leave it out")
    for name in names:
        try:
            if os.path.exists(name):
                with open(name, "rb"):
                    pass
        except OSError as error:
            raise ConfigurationError(f"{source}: {name} cannot be read: {error.strerror}") from error
    return names


def _is_file(*parts: str) -> bool:
    return os.path.isfile(os.path.join(*parts))


def _from_service_account(directory: str, environ: Mapping[str, str]) -> Connection:
    from kubernetes.aio.client import Configuration  # noqa: PLC0415
    from kubernetes.aio.config import ConfigException  # noqa: PLC0415
    from kubernetes.aio.config.incluster_config import InClusterConfigLoader  # noqa: PLC0415

    source = f"the service account of this pod ({directory})"
    configuration = Configuration()
    loader = InClusterConfigLoader(
        token_filename=os.path.join(directory, "token"),
        cert_filename=os.path.join(directory, "ca.crt"),
        environ=environ,
    )
    try:
        loader.load_and_set(configuration)
    except (ConfigException, OSError, ValueError) as error:
        raise ConfigurationError(f"{source}: {error}; the pod must mount its service account token") from error
    return Connection(source, configuration, environ)


def proxy_of(url: str, environ: Mapping[str, str]) -> str | None:
    """The proxy that the environment names for a URL; None for loopback, whatever the environment says. Since 0.1."""
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return None
    if host == "localhost" or host.endswith(".localhost"):
        return None

    def named(what: str) -> str:
        return environ.get(f"{what}_proxy") or environ.get(f"{what.upper()}_PROXY") or ""

    if urllib.request.proxy_bypass_environment(parts.netloc, {"no": named("no")} if named("no") else {}):  # type: ignore[attr-defined]
        return None
    return named(parts.scheme) or named("all") or None


@contextlib.contextmanager
def _complaints() -> Iterator[list[str]]:
    """What the package logs instead of raising: a failed exec plugin. Kept out of our log, it is raised there."""
    found: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR:
            found.append(" ".join(record.getMessage().split()))
            return False
        return True

    sdk = logging.getLogger(_SDK_LOGGER)
    sdk.addFilter(keep)
    try:
        yield found
    finally:
        sdk.removeFilter(keep)


def _fingerprint(configuration: Any) -> str:
    """Changes when anything changes that open connections were made with."""
    digest = hashlib.sha256(
        repr(
            (
                configuration.host,
                configuration.verify_ssl,
                configuration.tls_server_name,
                configuration.proxy,
                configuration.ca_cert_data,
            )
        ).encode()
    )
    for name in (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file):
        digest.update(b"\0")
        if name:
            with open(name, "rb") as file:
                digest.update(file.read())
    return digest.hexdigest()
