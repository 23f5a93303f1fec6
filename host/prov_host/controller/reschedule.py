"""Handing a claim back to the scheduler: its chosen node is taken off, and another will be chosen.

Only after the plugin said that this node cannot hold the volume *and* that nothing is running for it. The node and
our mark go with one patch: were it two, another node's host could find a mark without a volume in between.
"""

from __future__ import annotations

import logging

from prov_host.controller.parts import Parts
from prov_host.errors import ApiError, Conflict
from prov_host.kube.api import CLAIMS
from prov_host.model import ANN_SELECTED_NODE, INTENT_FINALIZER, Claim

__all__ = ["give_node_back"]

logger = logging.getLogger(__name__)

_PAUSES = (0.01, 0.05, 0.25, None)


async def give_node_back(parts: Parts, claim: Claim) -> Claim | None:
    """Remove the selected node, and our mark with it, from a claim.

    Args:
        parts: the controller's surroundings.
        claim: as it was when the plugin was asked.

    Returns:
        The claim as it is now, without the node or with another; None if that could not be done.

    Since 0.1. Source: reference controller, "Reschedule removal": 4 attempts on conflicts, and none after any other
    error; unlike there, a claim re-created under the name is not touched.
    """
    node = claim.annotations.get(ANN_SELECTED_NODE)
    live = claim
    for pause in _PAUSES:
        if live.annotations.get(ANN_SELECTED_NODE) != node:
            return live
        metadata = {
            "uid": claim.uid,
            "resourceVersion": live.metadata.resource_version,
            "annotations": {ANN_SELECTED_NODE: None},
            "$deleteFromPrimitiveList/finalizers": [INTENT_FINALIZER],
        }
        try:
            patched = await parts.api.patch(CLAIMS, claim.name, {"metadata": metadata}, namespace=claim.namespace)
        except Conflict as error:
            logger.info("Claim %s changed while node %s was taken off: %s", claim.key, node, error)
            if pause is None:
                return None
            await parts.clock.sleep(pause * (1.0 + 0.1 * parts.rng.random()))
            try:
                live = await parts.api.get(CLAIMS, claim.name, namespace=claim.namespace)
            except ApiError:
                return None
            if live.uid != claim.uid:
                return None
        except ApiError as error:
            logger.warning("Node %s could not be taken off claim %s: %s", node, claim.key, error)
            return None
        else:
            # The next look at the cache must not find the old node again.
            cached = parts.claims.by_uid(claim.uid)
            if cached is not None:
                parts.claims.replace_if_unchanged(cached, patched)
            return patched
    return None
