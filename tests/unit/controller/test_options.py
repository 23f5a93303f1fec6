"""Options that cannot work are refused, all of them at once."""

from __future__ import annotations

import pytest

from prov_host.controller.options import Backoff, ControllerOptions, ExponentialLimit
from prov_host.errors import ConfigurationError


def test_the_defaults_work_and_never_give_up() -> None:
    options = ControllerOptions()
    options.check()
    assert options.failed_provision_threshold == options.failed_delete_threshold == 0
    assert options.save_schedule is None
    assert (options.retry_interval_start, options.limiter_maximum, options.infeasible_retention) == (15, 1000, 300)


def test_the_longest_interval_counts_for_failures_and_for_infeasible_claims() -> None:
    options = ControllerOptions(retry_interval_max=60)
    assert (options.limiter_maximum, options.infeasible_retention) == (60, 60)


def test_without_doubling_the_first_interval_stays() -> None:
    assert ControllerOptions(exponential_backoff_on_error=False).limiter_maximum == 15


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            ControllerOptions(pv_create_backoff=Backoff(), pv_create_retry_count=5),
            "CreateProvisionedPVBackoff cannot be used together with CreateProvisionedPVRetryCount",
        ),
        (
            ControllerOptions(pv_create_backoff=Backoff(), pv_create_interval=5),
            "CreateProvisionedPVBackoff cannot be used together with CreateProvisionedPVInterval",
        ),
        (
            ControllerOptions(pv_create_limiter=ExponentialLimit(), pv_create_retry_count=5),
            "CreateProvisionedPVLimiter cannot be used together with CreateProvisionedPVRetryCount",
        ),
        (
            ControllerOptions(pv_create_limiter=ExponentialLimit(), pv_create_interval=5),
            "CreateProvisionedPVLimiter cannot be used together with CreateProvisionedPVInterval",
        ),
        (
            ControllerOptions(pv_create_limiter=ExponentialLimit(), pv_create_backoff=Backoff()),
            "CreateProvisionedPVLimiter cannot be used together with CreateProvisionedPVBackoff",
        ),
        (ControllerOptions(pv_create_backoff=Backoff(steps=0)), "asset leaked"),
        (ControllerOptions(pv_create_retry_count=0), "asset leaked"),
        (ControllerOptions(worker_threads=0), "at least 1"),
        (ControllerOptions(retry_interval_start=0), "above 0"),
        (ControllerOptions(retry_interval_start=10, retry_interval_max=5), "below retry-interval-start"),
        (ControllerOptions(failed_provision_threshold=-1), "failed-provision-threshold"),
        (ControllerOptions(deletion_timeout=-1), "deletion-timeout"),
        (ControllerOptions(resync_period=-1), "resync-period"),
        (ControllerOptions(pv_create_limiter=ExponentialLimit(base=0)), "pv-create-limiter"),
        (ControllerOptions(retry_burst=0), "retry-burst"),
    ],
)
def test_what_cannot_work_is_refused(options: ControllerOptions, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        options.check()


def test_all_problems_are_told_together() -> None:
    with pytest.raises(ConfigurationError) as caught:
        ControllerOptions(worker_threads=0, resync_period=-1, retry_interval_start=0).check()
    assert len(caught.value.problems) == 3


def test_options_cannot_be_changed_once_made() -> None:
    with pytest.raises(AttributeError):
        ControllerOptions().worker_threads = 3  # type: ignore[misc]
