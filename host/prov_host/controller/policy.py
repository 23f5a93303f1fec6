"""What becomes of an asset when its volume is released: delete, archive or retain.

The StorageClass says it (``onDelete``, ``archiveOnDelete``), the decision is made once, when a claim is provisioned,
and frozen on the volume. A misspelt word is refused then and there: found out at delete time it could only be guessed
at, or block the volume for ever. Volumes made by another program carry no frozen decision; for them the live class
decides, and if it is gone or says nonsense, the choice that loses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from prov_host.errors import DeleteError, Infeasible
from prov_host.model import ANN_ON_DELETE, POLICIES, StorageClass, Volume

__all__ = ["Decision", "class_policy", "volume_policy"]

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


class Decision(msgspec.Struct, frozen=True):
    """A policy, and why if that is not what the volume itself says.

    Attributes:
        policy: one of :data:`prov_host.model.POLICIES`.
        reason: for an event, "" if there is nothing to explain.
    """

    policy: str
    reason: str = ""


def class_policy(parameters: Mapping[str, str], *, default: str, supports_archive: bool, plugin: str) -> str:
    """The policy that a class chooses.

    Args:
        parameters: the class's; hostile.
        default: the backend's, for a class that chooses none.
        supports_archive: whether the backend can archive.
        plugin: its name, for messages.

    Returns:
        One of :data:`prov_host.model.POLICIES`.

    Raises:
        Infeasible: a wrong word, naming parameter, value and what is allowed; or archiving is asked of a backend
            that cannot.

    ``onDelete`` wins over ``archiveOnDelete``, whose value must be a Go bool even then. Since 0.1. Source:
    nfs-subdir-external-provisioner's documented parameters.
    """
    on_delete = parameters.get("onDelete")
    archive = parameters.get("archiveOnDelete")
    if on_delete is not None and on_delete not in POLICIES:
        raise Infeasible(
            f"storage class parameter onDelete is {on_delete[:64]!r}; allowed are {', '.join(POLICIES)} (lower case)"
        )
    if archive is not None and archive not in _TRUE | _FALSE:
        raise Infeasible(f"storage class parameter archiveOnDelete is {archive[:64]!r}; allowed are true and false")
    if on_delete is not None:
        policy = on_delete
    elif archive is not None:
        policy = "archive" if archive in _TRUE else "delete"
    else:
        policy = default
    if policy == "archive" and not supports_archive:
        said = "onDelete" if on_delete is not None else "archiveOnDelete" if archive is not None else "the default"
        raise Infeasible(
            f"storage class asks to archive ({said}), but plugin {plugin} cannot; use onDelete: delete or retain"
        )
    return policy


def volume_policy(
    volume: Volume, storage_class: StorageClass | None, *, default: str, supports_archive: bool, plugin: str
) -> Decision:
    """The policy of a released volume.

    Args:
        volume: the volume.
        storage_class: the live class of that name with one of our provisioner names, or None.
        default: the backend's default policy.
        supports_archive: whether the backend can archive.
        plugin: its name, for messages.

    Returns:
        The frozen policy; or, for a volume that carries none, the live class's; or, if that is gone or unusable,
        ``archive`` if the backend can, else ``delete``, which is what the volume's own reclaim policy says.

    Raises:
        DeleteError: the frozen policy is unreadable, or cannot be carried out any more; nothing may be done then.

    Since 0.1.
    """
    frozen = volume.annotations.get(ANN_ON_DELETE)
    if frozen is not None:
        if frozen not in POLICIES:
            raise DeleteError(
                f"annotation {ANN_ON_DELETE} of volume {volume.name} is {frozen[:64]!r}; its asset is left alone "
                f"until it is one of {', '.join(POLICIES)}"
            )
        if frozen == "archive" and not supports_archive:
            raise DeleteError(
                f"volume {volume.name} is to be archived, but plugin {plugin} does not support it any more; use a "
                f"version that does, or set annotation {ANN_ON_DELETE} to delete or retain"
            )
        return Decision(frozen)
    name = volume.spec.storage_class_name or ""
    why = f'class "{name}" is gone'
    if storage_class is not None:
        parameters = storage_class.parameters or {}
        try:
            policy = class_policy(parameters, default=default, supports_archive=True, plugin=plugin)
        except Infeasible as error:
            why = str(error)
        else:
            if policy == "archive" and not supports_archive:
                raise DeleteError(
                    f'class "{name}" asks to archive volume {volume.name}, but plugin {plugin} cannot; set annotation '
                    f"{ANN_ON_DELETE} on the volume to delete or retain"
                )
            return Decision(policy, f'volume {volume.name} carries no policy; its class "{name}" says {policy}')
    policy = "archive" if supports_archive else "delete"
    choice = "the choice that loses nothing" if supports_archive else "as its reclaim policy says"
    return Decision(policy, f"volume {volume.name} carries no policy and {why}: {policy}, {choice}")
