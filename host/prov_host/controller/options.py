"""Every option of the controller, typed, with the defaults in one place and the checks that make no sense to repeat.

The names follow the command line (``worker_threads`` is ``--worker-threads``); the texts of the checks name the
reference library's options, which its users search for. The options are frozen: the reference's "any option after
Run fails" holds by construction.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from prov_host.errors import ConfigurationError

__all__ = ["Backoff", "ControllerOptions", "ExponentialLimit"]


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule of attempts, as client-go's ``wait.Backoff``.

    Attributes:
        duration: seconds before the second attempt.
        factor: what each wait is multiplied with for the next.
        jitter: up to this fraction of a wait is added to it at random.
        steps: attempts at most, 1 or more.
        cap: seconds; the schedule *ends* when a wait would exceed it (so a small cap cuts attempts off). 0 means none.

    Since 0.1.
    """

    duration: float = 10.0
    factor: float = 1.0
    jitter: float = 0.0
    steps: int = 5
    cap: float = 0.0

    def problems(self, name: str) -> list[str]:
        """What cannot work about it, a sentence each; ``name`` is the option's."""
        found = []
        if self.steps < 1:
            found.append(
                f"{name}: steps is {self.steps}, so a volume would never be saved and its asset leaked; use 1 or more"
            )
        if self.duration < 0 or self.factor < 0 or self.jitter < 0 or self.cap < 0:
            found.append(f"{name}: duration, factor, jitter and cap must not be negative")
        return found


class ExponentialLimit(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds between attempts, doubling from ``base`` to ``maximum``. Since 0.1."""

    base: float = 1.0
    maximum: float = 300.0


def _option(description: str) -> msgspec.Meta:
    return msgspec.Meta(description=description)


class ControllerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What can be chosen about provisioning and deleting. Durations are seconds. Since 0.1.

    Raises:
        ConfigurationError: from :meth:`check`, with all problems at once.
    """

    worker_threads: Annotated[int, _option("Claims, and volumes, worked on at once per provisioner name.")] = 4
    resync_period: Annotated[
        float, _option("Every cached claim and volume is looked at again this often; 0 is never, less than 1 s is 1 s.")
    ] = 900.0
    retry_interval_start: Annotated[
        float, _option("Wait after the first failure of a claim or volume; it doubles with each failure.")
    ] = 15.0
    retry_interval_max: Annotated[
        float | None,
        _option(
            "Longest wait between tries, for failures and for claims that cannot work as they are. "
            "Unset: 1000 s for failures, 5 min for claims that cannot work."
        ),
    ] = None
    exponential_backoff_on_error: Annotated[
        bool, _option("Double the wait with each failure; off: always wait retry-interval-start.")
    ] = True
    retry_rate: Annotated[float, _option("Retries per second of all claims and volumes together; 0 is no limit.")] = (
        10.0
    )
    retry_burst: Annotated[int, _option("Retries that may come at once before retry-rate counts.")] = 100
    failed_provision_threshold: Annotated[
        int, _option("Give a claim up after this many retries until it changes; 0 retries for ever.")
    ] = 0
    failed_delete_threshold: Annotated[
        int, _option("Give a volume up after this many retries until it changes; 0 retries for ever.")
    ] = 0
    pv_create_retry_count: Annotated[
        int | None,
        _option("Try this often to save a volume, then delete its asset. Unset, with the next two: try for ever."),
    ] = None
    pv_create_interval: Annotated[float | None, _option("Wait between the tries of pv-create-retry-count.")] = None
    pv_create_backoff: Annotated[
        Backoff | None, _option("The same as a growing schedule; not together with the previous two.")
    ] = None
    pv_create_limiter: Annotated[
        ExponentialLimit | None,
        _option("Waits between the tries to save a volume when trying for ever (1 s doubling to 5 min)."),
    ] = None
    additional_provisioner_names: Annotated[
        tuple[str, ...], _option("Further provisioner names to treat as the controller's own (migration).")
    ] = ()
    add_finalizer: Annotated[
        bool, _option("Keep volumes from vanishing before their asset was handled (a finalizer on the volume).")
    ] = True
    persist_intent: Annotated[
        bool, _option("Mark claims while a volume is made for them, so that a restarted host finds them again.")
    ] = True
    live_reads: Annotated[bool, _option("Read claims and volumes from the API again before acting on them.")] = True
    provision_timeout: Annotated[
        float, _option("Wait at most this long for a plugin to provision; 0: only the plugin's own limit.")
    ] = 0.0
    deletion_timeout: Annotated[
        float, _option("Wait at most this long for a plugin to delete or archive; 0: only the plugin's own limit.")
    ] = 0.0

    @property
    def limiter_maximum(self) -> float:
        """Seconds at which the doubling of failures stops."""
        if not self.exponential_backoff_on_error:
            return self.retry_interval_start
        return 1000.0 if self.retry_interval_max is None else self.retry_interval_max

    @property
    def infeasible_retention(self) -> float:
        """Seconds for which a claim that cannot work is not tried again."""
        return 300.0 if self.retry_interval_max is None else self.retry_interval_max

    @property
    def save_schedule(self) -> Backoff | None:
        """The bounded schedule of saving a volume, None for trying for ever."""
        if self.pv_create_backoff is not None:
            return self.pv_create_backoff
        if self.pv_create_retry_count is None and self.pv_create_interval is None:
            return None
        return Backoff(
            duration=10.0 if self.pv_create_interval is None else self.pv_create_interval,
            steps=5 if self.pv_create_retry_count is None else self.pv_create_retry_count,
        )

    def problems(self) -> list[str]:
        """What cannot work, a sentence each. The "cannot be used together" texts are the reference's."""
        found = []
        single = {
            "CreateProvisionedPVRetryCount": self.pv_create_retry_count,
            "CreateProvisionedPVInterval": self.pv_create_interval,
        }
        for name, value in single.items():
            if value is None:
                continue
            if self.pv_create_backoff is not None:
                found.append(f"CreateProvisionedPVBackoff cannot be used together with {name}")
            if self.pv_create_limiter is not None:
                found.append(f"CreateProvisionedPVLimiter cannot be used together with {name}")
        if self.pv_create_backoff is not None and self.pv_create_limiter is not None:
            found.append("CreateProvisionedPVLimiter cannot be used together with CreateProvisionedPVBackoff")
        if (schedule := self.save_schedule) is not None:
            found += schedule.problems("pv-create-backoff" if self.pv_create_backoff else "pv-create-retry-count")
        limit = self.pv_create_limiter
        if limit is not None and not 0 < limit.base <= limit.maximum:
            found.append("pv-create-limiter: base must be above 0 and not above maximum")
        if self.worker_threads < 1:
            found.append(f"worker-threads is {self.worker_threads}; at least 1 is needed")
        if self.resync_period < 0:
            found.append("resync-period must not be negative; 0 turns it off")
        if self.retry_interval_start <= 0:
            found.append("retry-interval-start must be above 0, or failing claims would be tried without a pause")
        if self.retry_interval_max is not None and self.retry_interval_max < self.retry_interval_start:
            found.append(
                f"retry-interval-max ({self.retry_interval_max:g} s) is below retry-interval-start "
                f"({self.retry_interval_start:g} s)"
            )
        if self.retry_rate < 0 or self.retry_burst < 1:
            found.append("retry-rate must not be negative and retry-burst must be at least 1")
        found += [
            f"{option} must not be negative; 0 means no limit"
            for option, value in (
                ("failed-provision-threshold", self.failed_provision_threshold),
                ("failed-delete-threshold", self.failed_delete_threshold),
                ("provision-timeout", self.provision_timeout),
                ("deletion-timeout", self.deletion_timeout),
            )
            if value < 0
        ]
        return found

    def check(self) -> None:
        """Refuse what cannot work.

        Raises:
            ConfigurationError: with every problem.
        """
        if found := self.problems():
            raise ConfigurationError(*found)
