"""What is written beside a volume's directory, so that nobody has to be believed whose it is."""

from __future__ import annotations

import hashlib

import msgspec

from prov_host.safedir import UnsafeName, check_name

__all__ = ["Owner", "StorageError", "UnusedError", "decoded", "key_of"]


class StorageError(Exception):
    """Something about the directory is not as it must be; the message is for the user. Since 0.1."""


class UnusedError(StorageError):
    """The directory has no identity yet: no volume was ever made on it, or it is not the one it was. Since 0.1."""


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """Whose a directory is, as written beside it. Since 0.1.

    Attributes:
        pv_name: the volume.
        name: its directory's name.
        claim: ``namespace/name`` it was made for.
        claim_uid: that claim's uid.
        provisioner: the provisioner name it was made under.
        size: bytes asked for.
        made: when, for people.
    """

    pv_name: str
    name: str
    claim: str = ""
    claim_uid: str = ""
    provisioner: str = ""
    size: int = 0
    made: str = ""


def key_of(pv_name: str) -> str:
    """The name of a volume's files in the private area. Callable from any thread. Since 0.1."""
    return hashlib.sha256(pv_name.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def decoded(data: bytes, where: str) -> Owner:
    """Read a record.

    Args:
        data: what is in its file.
        where: the file, for messages.

    Returns:
        The record; the name in it is one that can be used.

    Raises:
        StorageError: it is damaged.

    Callable from any thread. Since 0.1.
    """
    try:
        owner = msgspec.json.decode(data, type=Owner)
        check_name(owner.name)
    except (msgspec.DecodeError, UnsafeName) as error:
        raise StorageError(f"the record {where} is damaged: {error}") from error
    return owner
