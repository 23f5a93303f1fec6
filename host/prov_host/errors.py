"""Every error the host raises on purpose, and the outcomes a plugin may answer with.

::

    ProvHostError
    ├── ConfigurationError           settings, options or plugins that cannot work (exit code 2)
    ├── NotSynced                    (to a plugin) the host does not know yet what exists in the cluster
    ├── PluginError                  a plugin broke its contract (the message names plugin and promise)
    ├── Outcome                      what a hook may raise instead of returning
    │   ├── ProvisionError           failed for good this time; nothing runs behind; retried with backoff
    │   ├── Infeasible               the parameters cannot work; retried slowly, at once when the class changes
    │   ├── InBackground             something still runs behind; call again with the same arguments
    │   │   └── HookTimeout          (raised by the host) the hook is past its deadline and may still be running
    │   ├── NoChange                 could not find out; keep the previous answer
    │   ├── Reschedule               this node cannot; ask the scheduler for another (nothing runs behind)
    │   ├── Ignored                  not this plugin's business; say nothing
    │   ├── VolumeInUse              (delete, archive) still attached; try again later
    │   └── DeleteError              (delete, archive) failed; retried with backoff
    └── ApiError                     the API server answered with an error, or could not be reached
        ├── ApiUnavailable           no answer: connection refused, reset, timed out (status 0)
        ├── NotFound                 404
        ├── Conflict                 409 with reason Conflict (resourceVersion or precondition)
        ├── AlreadyExists            409 with reason AlreadyExists
        ├── Gone                     410: the resourceVersion is too old
        ├── Invalid                  422
        ├── Forbidden                401, 403
        └── TooManyRequests          429; `retry_after` seconds if the server said so

Any other exception out of a hook, :exc:`BaseException` included, means "may still be running" (as
:exc:`InBackground`) from ``provision`` and an ordinary failure from everything else: only a plugin knows that it is
done for good, and it says so with one of the names above.
"""

from __future__ import annotations

__all__ = [
    "AlreadyExists",
    "ApiError",
    "ApiUnavailable",
    "ConfigurationError",
    "Conflict",
    "DeleteError",
    "Forbidden",
    "Gone",
    "HookTimeout",
    "Ignored",
    "InBackground",
    "Infeasible",
    "Invalid",
    "NoChange",
    "NotFound",
    "NotSynced",
    "Outcome",
    "PluginError",
    "ProvHostError",
    "ProvisionError",
    "Reschedule",
    "TooManyRequests",
    "VolumeInUse",
]


class ProvHostError(Exception):
    """Base of all errors of this project. Since 0.1."""


class ConfigurationError(ProvHostError):
    """Settings, options or plugins that cannot work.

    Args:
        problems: one sentence each: what is wrong, where it was said (option, variable, file and key), what to do.
            All problems found are given together, so that a user mends them in one go.

    Since 0.1.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems: tuple[str, ...] = problems


class PluginError(ProvHostError):
    """A plugin broke its contract: wrong type returned, wrong signature, duplicate name. Since 0.1."""


class NotSynced(ProvHostError):
    """The host's caches are not filled yet: what exists in the cluster is not known.

    Raised to a plugin that asks for volumes, claims or classes too early, because "not known" must never be taken for
    "there is none": a share would be begun anew, or an archive in use would be removed. Since 0.1.
    """


class Outcome(ProvHostError):
    """Base of what a hook may raise on purpose; the message goes to the user in an event.

    Attributes:
        owner_asked: (set by the host) False if a wrapper spoke and the backend was not asked: this says nothing about
            what exists.

    Since 0.1.
    """

    owner_asked: bool = True


class ProvisionError(Outcome):
    """Provisioning failed for good this time and nothing is running behind; retried with backoff.

    The reference controller's state ``Finished`` with an error. Since 0.1.
    """


class Infeasible(Outcome):
    """The class's parameters or the claim cannot work as they are, and nothing is left behind.

    Also not by an earlier call with the same ``pv_name``, whose answer was lost: that is taken back first, or the
    answer is :exc:`InBackground`. Retried after ``retry-interval-max`` (5 min), or at once when the class changes or is
    re-created. The reference controller's ``InvalidArgument``. Since 0.1.
    """


class InBackground(Outcome):
    """Something may still be running: call again with the same arguments, even if the claim vanishes. Since 0.1."""


class HookTimeout(InBackground):
    """The host gave up waiting for a hook; its thread may still be running. Raised by the host only. Since 0.1."""


class NoChange(Outcome):
    """Could not find out; keep whatever the previous answer was (a first answer counts as final). Since 0.1."""


class Reschedule(Outcome):
    """The selected node cannot hold the volume; ask the scheduler for another.

    Only legal when nothing is running behind. Since 0.1.
    """


class Ignored(Outcome):
    """Not this plugin's business: no event, no retry (provision); success without an API delete (delete). Since 0.1."""


class VolumeInUse(Outcome):
    """The volume is still attached somewhere; a Normal event, retried with backoff, no failure metric. Since 0.1."""


class DeleteError(Outcome):
    """Deleting or archiving failed; a Warning event with this message, retried with backoff. Since 0.1."""


class ApiError(ProvHostError):
    """The API server answered with an error, or could not be reached.

    Args:
        message: the server's words, or what went wrong on the way.
        status: the HTTP status code; 0 if there was no answer.
        reason: the Status object's ``reason`` (for example ``"NotFound"``), or "".
        retry_after: seconds the server asked to wait, or None.

    Since 0.1.
    """

    def __init__(self, message: str, *, status: int = 0, reason: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after


class ApiUnavailable(ApiError):
    """There was no answer: connection refused or reset, name not resolved, timed out. Since 0.1."""


class NotFound(ApiError):
    """404. Since 0.1."""


class Conflict(ApiError):
    """409 because a resourceVersion or a precondition did not match. Since 0.1."""


class AlreadyExists(ApiError):
    """409 because an object of that name exists. Since 0.1."""


class Gone(ApiError):
    """410: the resourceVersion asked for is too old; list again. Since 0.1."""


class Invalid(ApiError):
    """422: the object was refused. Since 0.1."""


class Forbidden(ApiError):
    """401 or 403. Since 0.1."""


class TooManyRequests(ApiError):
    """429. Since 0.1."""
