"""Routes each operation to the one plugin that owns it, past the wrappers of all others.

Every backend has a plugin manager of its own. In it all plugins are registered, but of ``provision``, ``delete`` and
``archive`` only the owner's implementation counts, and of the others only the wrappers
(``@hookimpl(wrapper=True)``): a plugin can audit, limit or post-process any backend's operations, and can never be
asked for a volume that is not its own. What the owner said itself is told from what wrappers made of it
(:mod:`prov_host.owner`). Votes (``should_provision``, ``should_delete``) are asked plugin by plugin, so
that a wrong answer has a name; observers have a thread each, so that a slow one holds up nobody.

:class:`PluginBackend` is what the controller works with: it hands out private copies, keeps time and rate limits,
checks what comes back, and lets nothing out but the outcomes that :mod:`prov_host.controller.backend` promises.
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import msgspec
import pluggy

from prov_host.about import about
from prov_host.clock import Clock
from prov_host.controller.backend import Withdrawn
from prov_host.errors import (
    DeleteError,
    HookTimeout,
    Ignored,
    InBackground,
    Infeasible,
    NoChange,
    Outcome,
    PluginError,
    ProvisionError,
    Reschedule,
    VolumeInUse,
)
from prov_host.hookspecs import PROJECT, HookSpecs
from prov_host.kube.ratelimit import RateLimiter
from prov_host.model import Claim, Provisioned, ProvisionRequest, Record, Removed, StorageClass, Volume, private_copy
from prov_host.output import HostThread, as_plugin, words_of
from prov_host.owner import OwnersHooks, Word, provision_outcome
from prov_host.plugins import Plugin
from prov_host.pool import HookPool, Late, seconds_text
from prov_host.starting import NoThread, start_thread

__all__ = ["Limits", "Observers", "PluginBackend", "describe_late"]

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=msgspec.Struct)

_OPERATIONS = ("provision", "delete", "archive")
# HookTimeout of a plugin's own making is an InBackground; the subclasses come before their bases.
_FROM_PROVISION = (ProvisionError, Infeasible, InBackground, NoChange, Reschedule, Ignored)
_FROM_DELETE = (Ignored, VolumeInUse, DeleteError)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one backend may use. Since 0.1.

    Attributes:
        threads: hooks that run at once at most.
        provision: seconds that ``provision`` may take; 0 means no limit.
        delete: seconds that ``delete`` and ``archive`` may take; 0 means no limit.
        vote: seconds that ``should_provision``, ``should_delete`` and ``supports_block`` may take.
        check: seconds that ``check`` may take.
        queue_wait: seconds that a call waits for a free thread.
        qps: operations started per second in the long run; 0 means no limit.
        burst: operations that may start at once after a quiet time.
        observers: records that wait for one observer before further ones are dropped.
    """

    threads: int = 8
    provision: float = 120.0
    delete: float = 120.0
    vote: float = 10.0
    check: float = 5.0
    queue_wait: float = 30.0
    qps: float = 0.0
    burst: int = 10
    observers: int = 1000


class _Manager(pluggy.PluginManager):
    """Registers what stands for the owner whole, and of everyone else only the wrappers of the operations."""

    def __init__(self, owner: OwnersHooks) -> None:
        super().__init__(PROJECT)
        self._owner = owner
        self.add_hookspecs(HookSpecs)

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> pluggy.HookimplOpts | None:
        options = super().parse_hookimpl_opts(plugin, name)
        if options is None or plugin is self._owner:
            return options
        wraps = options.get("wrapper") or options.get("hookwrapper")
        return options if wraps and (options.get("specname") or name) in _OPERATIONS else None


class Observers:
    """Tells every plugin's ``observe`` of each record, on one thread per plugin.

    Args:
        plugins: all plugins in use.
        size: records that wait for one of them before further ones are dropped.
        dropped: called with a plugin's name for each record that was.
        also: called with each record itself, by who tells it.

    Callable from any thread. Since 0.1.
    """

    def __init__(
        self,
        plugins: Iterable[Plugin],
        *,
        size: int = 1000,
        dropped: Callable[[str], None] = lambda plugin: None,
        also: Callable[[Record], None] = lambda record: None,
    ) -> None:
        self._dropped = dropped
        self._also = also
        self._queues: list[tuple[Plugin, queue.Queue[Record | None]]] = []
        self._lock = threading.Lock()
        self._started: set[str] = set()
        self._waiting: set[str] = set()
        self._complained: set[str] = set()
        for plugin in plugins:
            if "observe" in plugin.hooks:
                self._queues.append((plugin, queue.Queue(size)))

    def tell(self, record: Record) -> None:
        """Queue a record; never waits, never raises."""
        try:
            self._also(record)
        except Exception:
            logger.exception("a record of %s was not counted", record.volume)
        for plugin, waiting in self._queues:
            self._start(plugin, waiting)
            try:
                waiting.put_nowait(record)
            except queue.Full:
                self._dropped(plugin.name)
                if plugin.name not in self._complained:
                    self._complained.add(plugin.name)
                    logger.warning("%s does not keep up observing; records for it are dropped", plugin.title)

    def _start(self, plugin: Plugin, waiting: queue.Queue[Record | None]) -> None:
        """Start an observer's thread unless it has one; without, its records wait until the next one is told."""
        with self._lock:
            if plugin.name in self._started:
                return
            try:
                start_thread(HostThread(functools.partial(self._work, plugin, waiting), f"observe of {plugin.name}"))
            except NoThread as error:
                if plugin.name not in self._waiting:
                    logger.warning("%s is told of operations later: %s", plugin.title, error)
                self._waiting.add(plugin.name)
            else:
                self._started.add(plugin.name)

    def _work(self, plugin: Plugin, waiting: queue.Queue[Record | None]) -> None:
        while (record := waiting.get()) is not None:
            subject = {"claim": record.claim, "claim_uid": record.claim_uid, "class": record.class_name}
            with about({**subject, "volume": record.volume, "provisioner": record.provisioner}):
                try:
                    as_plugin(plugin.name, lambda r=record: plugin.own.observe(record=private_copy(r)))  # type: ignore[misc]
                except BaseException as error:
                    logger.warning("%s: observe failed: %s", plugin.title, words_of(error), exc_info=error)

    def close(self) -> None:
        """End the threads once they have told what is queued. Idempotent."""
        for _, waiting in self._queues:
            try:
                waiting.put_nowait(None)
            except queue.Full:
                logger.debug("an observer is too far behind to be ended")


class PluginBackend:
    """One plugin that owns provisioner names: the controller's :class:`prov_host.controller.backend.Backend`.

    Args:
        owner: the plugin.
        everyone: all plugins in use, the owner among them.
        observers: who is told of finished operations.
        clock: measures the limits.
        limits: what it may use.

    All methods are called on the event loop. Since 0.1.
    """

    def __init__(
        self,
        owner: Plugin,
        everyone: Sequence[Plugin],
        *,
        observers: Observers,
        clock: Clock,
        limits: Limits | None = None,
    ) -> None:
        self.owner = owner
        self.limits = limits or Limits()
        self._observers = observers
        self._pool = HookPool(owner.name, size=self.limits.threads, clock=clock, queue_wait=self.limits.queue_wait)
        self._limiter = RateLimiter(clock, qps=self.limits.qps, burst=self.limits.burst)
        stand_in = OwnersHooks(owner)
        manager = _Manager(stand_in)
        manager.register(stand_in, owner.name)
        for plugin in everyone:
            if plugin is not owner:
                manager.register(plugin.instance, plugin.name)
        self._hooks = manager.hook
        self._packages = {plugin.package: plugin for plugin in (*everyone, owner)}
        self._provision_voters = tuple(plugin for plugin in everyone if "should_provision" in plugin.hooks)
        self._delete_voters = tuple(plugin for plugin in everyone if "should_delete" in plugin.hooks)

    @property
    def plugin(self) -> str:
        """See :attr:`prov_host.controller.backend.Backend.plugin`."""
        return self.owner.name

    @property
    def provisioners(self) -> tuple[str, ...]:
        """The provisioner names it owns."""
        return self.owner.provisioners

    @property
    def supports_archive(self) -> bool:
        """See :attr:`prov_host.controller.backend.Backend.supports_archive`."""
        return "archive" in self.owner.hooks

    @property
    def default_policy(self) -> str:
        """See :attr:`prov_host.controller.backend.Backend.default_policy`."""
        return self.owner.default_policy

    async def provision(self, request: ProvisionRequest, *, timeout: float | None = None) -> Provisioned:
        """See :meth:`prov_host.controller.backend.Backend.provision`."""
        await self._limiter.acquire()
        word = Word()

        def call() -> Provisioned:
            word.begin()
            answer = self._hooks.provision(request=private_copy(request))
            if not isinstance(answer, Provisioned):
                raise PluginError(f"it returned {_kind(answer)}; it must return a prov_host.Provisioned")
            return _checked(answer, Provisioned)

        try:
            limit = _smaller(timeout, self.limits.provision)
            return await self._pool.run(request.pv_name, "provision", call, limit=limit)
        except HookTimeout:
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, it is weighed and raised anew
            counts = provision_outcome(error, word) if isinstance(error, _FROM_PROVISION) else error
            if isinstance(counts, _FROM_PROVISION):
                _raise_anew(counts, _FROM_PROVISION, owner_asked=word.asked)
            # Nobody but the plugin knows whether something was made, so it is asked again until it says so.
            text = self._complaint("provision", request.pv_name, counts)
            raise InBackground(f"{text}; it may have made something, and will be asked again") from counts
        finally:
            word.error = None  # as in the pool: its traceback holds what holds it

    async def delete(
        self, volume: Volume, *, timeout: float | None = None, still: Callable[[], bool] | None = None
    ) -> Removed:
        """See :meth:`prov_host.controller.backend.Backend.delete`."""
        return await self._remove("delete", volume, timeout, still)

    async def archive(
        self, volume: Volume, *, timeout: float | None = None, still: Callable[[], bool] | None = None
    ) -> Removed:
        """See :meth:`prov_host.controller.backend.Backend.archive`."""
        if not self.supports_archive:
            raise DeleteError(f"{self.owner.title} cannot archive volumes; {volume.name} is left as it is")
        return await self._remove("archive", volume, timeout, still)

    async def _remove(
        self, hook: str, volume: Volume, timeout: float | None, still: Callable[[], bool] | None
    ) -> Removed:
        await self._limiter.acquire()
        word = Word()
        what = f"{hook} of {self.owner.title}"

        def call() -> Removed:
            word.begin()
            # Here, after every wait: somebody may have decided otherwise meanwhile.
            if still is not None and not still():
                raise Withdrawn(f"{hook} of {volume.name} is not wanted any more")
            try:
                answer = getattr(self._hooks, hook)(volume=private_copy(volume))
            except Ignored:
                if word.error is not None:
                    raise word.error  # noqa: B904  whatever a wrapper made of it
                raise
            if answer is None and not word.returned:
                raise word.error or DeleteError(f"{what} was not asked, and nobody says that it is done")
            if answer is None:
                return Removed()
            if not isinstance(answer, Removed):
                raise PluginError(f"it returned {_kind(answer)}; it must return a prov_host.Removed or None")
            return _checked(answer, Removed)

        try:
            return await self._pool.run(volume.name, hook, call, limit=_smaller(timeout, self.limits.delete))
        except (HookTimeout, Withdrawn):
            raise
        except _FROM_DELETE as error:
            _raise_anew(error, _FROM_DELETE)
        except Outcome as error:
            raise DeleteError(words_of(error, kind=False)) from error
        except Exception as error:
            raise DeleteError(self._complaint(hook, volume.name, error)) from error
        finally:
            word.error = None

    async def should_provision(self, claim: Claim, storage_class: StorageClass) -> bool:
        """See :meth:`prov_host.controller.backend.Backend.should_provision`."""
        if not self._provision_voters:
            return True

        def ask(plugin: Plugin) -> Any:
            return plugin.own.should_provision(
                claim=private_copy(claim),
                storage_class=private_copy(storage_class),
                selected_node=claim.selected_node,
            )

        return await self._vote("should_provision", claim.key, self._provision_voters, ask, ProvisionError)

    async def should_delete(self, volume: Volume) -> bool:
        """See :meth:`prov_host.controller.backend.Backend.should_delete`."""
        if not self._delete_voters:
            return True

        def ask(plugin: Plugin) -> Any:
            return plugin.own.should_delete(volume=private_copy(volume))

        return await self._vote("should_delete", volume.name, self._delete_voters, ask, DeleteError)

    async def _vote(
        self,
        hook: str,
        subject: str,
        voters: Sequence[Plugin],
        ask: Callable[[Plugin], Any],
        failure: type[ProvisionError | DeleteError],
    ) -> bool:
        def call() -> bool:
            for plugin in voters:
                try:
                    answers = ask(plugin)
                except VolumeInUse:
                    raise
                except Ignored:
                    return False
                except Outcome as error:
                    raise failure(words_of(error, kind=False)) from error
                except BaseException as error:
                    text = self._complaint(hook, subject, error, plugin)
                    raise failure(text) from error
                if not isinstance(answers, list) or not all(isinstance(answer, bool) for answer in answers):
                    raise failure(f"{plugin.title}: {hook} returned {_kind(answers)}; it must return True or False")
                if not all(answers):
                    logger.debug("%s said no to %s of %s", plugin.title, hook, subject)
                    return False
            return True

        try:
            return await self._pool.run(f"{hook} {subject}", hook, call, limit=self.limits.vote)
        except VolumeInUse as error:
            if failure is DeleteError:
                raise
            raise failure(words_of(error, kind=False)) from error

    async def supports_block(self) -> bool:
        """See :meth:`prov_host.controller.backend.Backend.supports_block`."""
        if "supports_block" not in self.owner.hooks:
            return False
        try:
            hook = self.owner.own.supports_block
            answer = await self._pool.run("supports_block", "supports_block", hook, limit=self.limits.vote)
        except HookTimeout:
            raise
        except Exception as error:
            raise ProvisionError(self._complaint("supports_block", "", error)) from error
        if not isinstance(answer, bool):
            raise ProvisionError(
                f"{self.owner.title}: supports_block returned {_kind(answer)}; it must return True or False"
            )
        return answer

    def observe(self, record: Record) -> None:
        """See :meth:`prov_host.controller.backend.Backend.observe`."""
        self._observers.tell(record)

    def on_return(self, wake: Callable[[str], None]) -> None:
        """See :meth:`prov_host.controller.backend.Backend.on_return`."""
        # Votes have keys of their own, with a space in them, which no volume's name has.
        self._pool.on_return(lambda key: None if " " in key else wake(key))

    def late(self) -> tuple[Late, ...]:
        """Hooks that were given up and have not returned."""
        return self._pool.late()

    @property
    def active(self) -> int:
        """Hooks that wait or run now."""
        return self._pool.active

    def close(self) -> None:
        """Let idle threads end. Idempotent."""
        self._pool.close()

    def _complaint(self, hook: str, subject: str, error: BaseException, plugin: Plugin | None = None) -> str:
        """Log what a plugin did that it must not do; returns the words for the event."""
        words = str(error) if isinstance(error, PluginError) else words_of(error)
        text = f"{(plugin or self._culprit(error)).title}: {hook} failed: {words}"
        logger.warning("%s (%s)", text, subject, exc_info=error)
        return text

    def _culprit(self, error: BaseException) -> Plugin:
        """The plugin whose code raised: a wrapper of another one may have been in the way."""
        found = self.owner
        chain: BaseException | None = error if not isinstance(error, PluginError) else error.__cause__
        frame = chain.__traceback__ if chain is not None else None
        while frame is not None:
            package = str(frame.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
            found = self._packages.get(package, found)
            frame = frame.tb_next
        return found


def _smaller(timeout: float | None, limit: float) -> float | None:
    given = [seconds for seconds in (timeout, limit) if seconds]
    return min(given) if given else None


def _kind(answer: object) -> str:
    return "nothing" if answer is None else f"a {type(answer).__name__}"


def _raise_anew(error: Outcome, kinds: Sequence[type[Outcome]], *, owner_asked: bool = True) -> NoReturn:
    """Raise the plain outcome: a plugin may keep, share or subclass its exception object."""
    kind = next(kind for kind in kinds if isinstance(error, kind))
    plain = kind(words_of(error, kind=False))
    plain.owner_asked = owner_asked
    raise plain from error


def _plain_mapping(value: Any) -> Any:
    """Any mapping is promised to do, not only a dict."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a value of type {type(value).__name__} is nothing the API could store")


def _checked(answer: T, kind: type[T]) -> T:
    """A copy that shares nothing with the plugin's object, with every field of its declared type."""
    try:
        return msgspec.convert(msgspec.to_builtins(answer, enc_hook=_plain_mapping), kind)
    except (msgspec.ValidationError, TypeError, ValueError, RecursionError, OverflowError) as error:
        raise PluginError(f"the {kind.__name__} it returned is wrong: {words_of(error, kind=False)}") from error


def describe_late(late: Iterable[Late]) -> list[str]:
    """One sentence for each hook that hangs. Callable from any thread. Since 0.1."""
    return [f"{one.what} of {one.key} has not returned for {seconds_text(one.seconds)}" for one in late]
