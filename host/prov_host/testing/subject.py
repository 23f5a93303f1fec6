"""The backend under test: started as the host starts it, called as the host calls it.

The hooks are called through pluggy, with the host's own specifications, from a thread that is not the test's, with a
time limit. Every start makes a new plugin object, so that a test can forget everything a plugin only remembers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pluggy

from prov_host.hookspecs import PROJECT, HookSpecs
from prov_host.model import Asset, Claim, ProvisionRequest, Volume, private_copy
from prov_host.testing.context import FakeHost
from prov_host.testing.objects import make_claim, make_class, make_request

__all__ = ["BackendUnderTest", "LateError", "RunningBackend"]

T = TypeVar("T")


class LateError(AssertionError):
    """A hook did not return within the time limit; its thread may still be running. Since 0.1."""


class BackendUnderTest:
    """What the contract suite needs to know of a backend. Since 0.1.

    Args:
        plugin: the plugin's class (or anything that makes a plugin object), as the entry point names it.
        settings: an instance of the plugin's settings, or a mapping of them; None means the defaults.
        name: the plugin's name, as in ``--plugin``.
        node_name: the node that the plugin is told it runs on.
        parameters: class parameters that the backend needs to provision an ordinary claim.
        selected_node: the node to ask for, for backends that need one.
        access_modes: of the claims, for backends that refuse ``ReadWriteOnce``.
        storage: the directory that is the backend's storage, if it is one. Everything beside it, in its parent
            directory, must stay as it is: the suite looks.
        exists: tells whether a volume's asset is on the storage. Not needed if the plugin has an ``inventory`` hook.
        time_limit: seconds that one call of a hook may take.
    """

    def __init__(
        self,
        plugin: Callable[[], object],
        settings: object = None,
        *,
        name: str = "tested",
        node_name: str = "node-1",
        parameters: Mapping[str, str] | None = None,
        selected_node: str = "",
        access_modes: Sequence[str] = ("ReadWriteOnce",),
        storage: Path | None = None,
        exists: Callable[[Volume], bool] | None = None,
        time_limit: float = 10.0,
    ) -> None:
        self.plugin = plugin
        self.settings = settings
        self.name = name
        self.node_name = node_name
        self.parameters = dict(parameters or {})
        self.selected_node = selected_node
        self.access_modes = tuple(access_modes)
        self.storage = storage
        self.exists = exists
        self.time_limit = time_limit

    def start(self) -> RunningBackend:
        """A new plugin object on the same storage, configured: what is there after the host started again."""
        return RunningBackend(self)

    def claim(self, name: str | None = "data", namespace: str | None = "default", **options: Any) -> Claim:
        """A claim for this backend; options as :func:`prov_host.testing.make_claim`."""
        return make_claim(name, namespace, **{"access_modes": self.access_modes, **options})

    def request(self, claim: Claim | None = None, *, provisioner: str, policy: str = "delete") -> ProvisionRequest:
        """What the host would ask for a claim (an ordinary one by default)."""
        storage_class = make_class(self.parameters, provisioner=provisioner)
        return make_request(claim or self.claim(), storage_class, selected_node=self.selected_node, policy=policy)


class RunningBackend:
    """One started plugin object; the methods call its hooks. Since 0.1."""

    def __init__(self, subject: BackendUnderTest) -> None:
        self.subject = subject
        self._manager = pluggy.PluginManager(PROJECT)
        self._manager.add_hookspecs(HookSpecs)
        self._plugin = subject.plugin()
        # PluginValidationError names the hook, the argument and what the specification has.
        self._manager.register(self._plugin, name=subject.name)
        self._manager.check_pending()
        self.host = FakeHost(plugin=subject.name, node_name=subject.node_name)
        settings = subject.settings
        wanted = self._call("settings_type")
        if wanted is not None and (settings is None or isinstance(settings, Mapping)):
            settings = msgspec.convert(settings or {}, wanted)
        self._call("configure", settings=settings, host=self.host)

    @property
    def hooks(self) -> frozenset[str]:
        """The names of the hooks that the plugin implements."""
        callers = self._manager.get_hookcallers(self._plugin) or []
        return frozenset(caller.name for caller in callers)

    def provisioners(self) -> Any:
        """Call the hook; the answer as the plugin gave it."""
        return self._call("provisioners")

    def default_policy(self) -> Any:
        """Call the hook; the host's default if there is none."""
        return self._call("default_policy") or ("archive" if "archive" in self.hooks else "delete")

    def check(self) -> Any:
        """Call the hook."""
        return self._call("check")

    def provision(self, request: ProvisionRequest) -> Any:
        """Call the hook with a private copy; the answer as the plugin gave it."""
        return self._call("provision", request=private_copy(request))

    def delete(self, volume: Volume) -> Any:
        """Call the hook with a private copy."""
        return self._call("delete", volume=private_copy(volume))

    def archive(self, volume: Volume) -> Any:
        """Call the hook with a private copy."""
        return self._call("archive", volume=private_copy(volume))

    def inventory(self) -> Iterable[Asset]:
        """Call the hook; () without it."""
        return self._in_time(lambda: tuple(self._manager.hook.inventory() or ()), "inventory")

    def close(self) -> None:
        """Call the hook."""
        self._call("close")

    def _call(self, hook: str, **arguments: Any) -> Any:
        return self._in_time(lambda: getattr(self._manager.hook, hook)(**arguments), hook)

    def _in_time(self, function: Callable[[], T], hook: str) -> T:
        """Run in a thread, as the host does: a plugin must not count on the thread that configured it."""
        answers: list[T] = []
        failures: list[BaseException] = []

        def run() -> None:
            try:
                answers.append(function())
            except BaseException as error:  # noqa: BLE001 - the test decides what it means
                failures.append(error)

        thread = threading.Thread(target=run, name=f"{self.subject.name}-{hook}", daemon=True)
        thread.start()
        thread.join(self.subject.time_limit)
        if thread.is_alive():
            raise LateError(f"the hook {hook} did not return within {self.subject.time_limit:g} s")
        if failures:
            raise failures[0]
        return answers[0]
