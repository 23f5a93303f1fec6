"""What a key in a queue stands for: the fields of log lines, and words for people."""

from __future__ import annotations

from collections.abc import Mapping

from prov_host.controller.parts import Parts
from prov_host.model import Claim, Volume

__all__ = ["claim_subject", "subject_words", "volume_subject"]


def claim_subject(parts: Parts, uid: str, claim: Claim | None) -> Mapping[str, str]:
    """Log fields of a claim.

    Args:
        parts: the controller's surroundings.
        uid: the key in the queue.
        claim: the claim, if it is known.

    Belongs to the event loop. Since 0.1.
    """
    known = {"claim": claim.key, "class": claim.class_name, "volume": parts.volume_name(claim)} if claim else {}
    return {**known, "claim_uid": uid, "plugin": parts.backend.plugin, "provisioner": parts.name}


def volume_subject(parts: Parts, name: str, volume: Volume | None) -> Mapping[str, str]:
    """Log fields of a volume.

    Args:
        parts: the controller's surroundings.
        name: the key in the queue.
        volume: the volume, if it is known.

    Belongs to the event loop. Since 0.1.
    """
    known = (
        {
            "claim": volume.claim_key,
            "claim_uid": volume.claim_uid,
            "class": volume.spec.storage_class_name or "",
        }
        if volume
        else {}
    )
    return {**known, "volume": name, "plugin": parts.backend.plugin, "provisioner": parts.name}


def subject_words(fields: Mapping[str, str], key: str) -> str:
    """Whose key it is, in parentheses, or "" if nothing is known. Since 0.1."""
    claim, storage_class = fields.get("claim", ""), fields.get("class", "")
    named = [f"claim {claim}" if claim else "", f"class {storage_class}" if storage_class else ""]
    volume = fields.get("volume", "")
    if volume and volume != key:
        named.append(f"volume {volume}")
    words = ", ".join(name for name in named if name)
    return f" ({words})" if words else ""
