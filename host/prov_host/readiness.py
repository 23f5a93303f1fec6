"""Asks each plugin's ``check`` again and again, and knows the latest answer.

Each plugin has one thread for that, apart from its hooks' pool, and a time limit: a share that hangs makes this plugin
not ready, with words that say since when, and disturbs no other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from prov_host.clock import Clock
from prov_host.errors import HookTimeout, PluginError
from prov_host.output import words_of
from prov_host.plugins import Plugin
from prov_host.pool import HookPool, seconds_text
from prov_host.starting import NoThread

__all__ = ["Readiness"]

logger = logging.getLogger(__name__)

INTERVAL = 5.0
"""Seconds between two checks of one plugin."""


class Readiness:
    """The readiness of one plugin.

    Args:
        plugin: whose.
        clock: the host's clock.
        limit: seconds that ``check`` may take.
        interval: seconds between two checks.
        changed: called with the plugin and whether it is ready, after each check.

    All methods are called on the event loop. Since 0.1.
    """

    def __init__(
        self,
        plugin: Plugin,
        clock: Clock,
        *,
        limit: float = 5.0,
        interval: float = INTERVAL,
        changed: Callable[[Plugin, bool], None] = lambda plugin, ready: None,
    ) -> None:
        self.plugin = plugin
        self._clock = clock
        self._limit = limit
        self._interval = interval
        self._changed = changed
        self._pool = HookPool(plugin.name, size=1, clock=clock, queue_wait=limit)
        self._has_hook = "check" in plugin.hooks
        self.checked = not self._has_hook
        self.problems: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether the latest check found nothing wrong."""
        return self.checked and not self.problems

    async def run(self) -> None:
        """Check for ever, until cancelled."""
        if not self._has_hook:
            self._changed(self.plugin, True)
            return
        while True:
            await self.check()
            await self._clock.sleep(self._interval)

    async def check(self) -> tuple[str, ...]:
        """Check once; returns what is wrong, a sentence each."""
        problems = await self._ask()
        if problems != self.problems or not self.checked:
            if problems:
                logger.warning("%s is not ready: %s", self.plugin.title, "; ".join(problems))
            else:
                logger.info("%s is ready", self.plugin.title)
        self.problems, self.checked = problems, True
        self._changed(self.plugin, not problems)
        return problems

    async def _ask(self) -> tuple[str, ...]:
        try:
            return await self._pool.run("check", "check", self._call, limit=self._limit)
        except HookTimeout as error:
            if isinstance(error.__cause__, NoThread):
                return (f"check was not begun: {error.__cause__}",)
            late = self._pool.late()
            age = seconds_text(late[0].seconds) if late else seconds_text(self._limit)
            return (f"check has not returned for {age}: its storage may hang",)
        except PluginError as error:
            return (str(error),)
        except Exception as error:  # noqa: BLE001  an exception counts as wrong
            return (f"check failed: {words_of(error)}",)

    def _call(self) -> tuple[str, ...]:
        found = self.plugin.own.check()
        if found is None:
            return ()
        if isinstance(found, str):
            return (found,) if found else ()
        if isinstance(found, bool) or not hasattr(found, "__iter__"):
            raise PluginError(f"check returned {found!r}; it must return sentences, or nothing when all is well")
        return tuple(str(sentence) for sentence in found)

    def close(self) -> None:
        """Let its thread end. Idempotent."""
        self._pool.close()
