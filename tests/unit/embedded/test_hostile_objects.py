"""Objects with one or two things wrong, in every kind and through every verb: refused or taken, never an accident.

Whatever was taken must not harm what comes after it: lists, tables, and the volume controllers.
"""

from __future__ import annotations

import copy
import json
import logging
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from prov_host.embedded import Cluster
from prov_host.testing.clock import FakeClock

_SPEC = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
CORE = "/api/v1/namespaces/default"
STORED: dict[str, tuple[str, str, dict[str, Any]]] = {
    f"{CORE}/persistentvolumeclaims": (
        "v1",
        "PersistentVolumeClaim",
        {"metadata": {"name": "o"}, "spec": {**_SPEC, "resources": {"requests": {"storage": "1"}}}},
    ),
    "/api/v1/persistentvolumes": (
        "v1",
        "PersistentVolume",
        {
            "metadata": {"name": "o"},
            "spec": {**_SPEC, "capacity": {"storage": "1"}, "nfs": {"server": "s", "path": "/"}},
        },
    ),
    "/apis/storage.k8s.io/v1/storageclasses": (
        "storage.k8s.io/v1",
        "StorageClass",
        {"metadata": {"name": "o"}, "provisioner": "a/b"},
    ),
    f"{CORE}/events": (
        "v1",
        "Event",
        {"metadata": {"name": "o"}, "involvedObject": {"namespace": "default", "name": "x"}},
    ),
    "/apis/coordination.k8s.io/v1/namespaces/default/leases": (
        "coordination.k8s.io/v1",
        "Lease",
        {"metadata": {"name": "o"}, "spec": {"leaseDurationSeconds": 5}},
    ),
    "/api/v1/nodes": ("v1", "Node", {"metadata": {"name": "o"}}),
    f"{CORE}/pods": (
        "v1",
        "Pod",
        {
            "metadata": {"name": "o"},
            "spec": {"nodeName": "n", "volumes": [{"persistentVolumeClaim": {"claimName": "o"}}]},
        },
    ),
    f"{CORE}/endpoints": (
        "v1",
        "Endpoints",
        {"metadata": {"name": "o"}, "subsets": [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 1}]}]},
    ),
}
NAMES = [
    *(
        "metadata",
        "spec",
        "status",
        "name",
        "namespace",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "uid",
    ),
    *("managedFields", "fieldsV1", "resourceVersion", "deletionTimestamp", "conditions", "type", "phase", "volumeMode"),
    *(
        "resources",
        "requests",
        "storage",
        "capacity",
        "volumeName",
        "claimRef",
        "nfs",
        "path",
        "selector",
        "matchLabels",
    ),
    *("matchExpressions", "key", "operator", "values", "nodeAffinity", "required", "nodeSelectorTerms", "dataSource"),
    *("allowedTopologies", "matchLabelExpressions", "op", "value", "$patch", "$retainKeys", "preconditions"),
    *("$setElementOrder/finalizers", "$deleteFromPrimitiveList/finalizers", "persistentVolumeReclaimPolicy", "-", "0"),
]
SCALARS = [None, True, 0, -1, 10**30, 1.5, "", "a", "o", "x/y", "1Gi", "2026-01-01T00:00:00Z", "In", "Block", "delete"]
PATCHES = ["merge-patch+json", "json-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"]


def anything(source: random.Random, depth: int = 0) -> Any:
    dice = source.random()
    if depth > 4 or dice < 0.4:
        return source.choice(SCALARS)
    if dice < 0.8:
        return {source.choice(NAMES): anything(source, depth + 1) for _ in range(source.randint(0, 4))}
    return [anything(source, depth + 1) for _ in range(source.randint(0, 3))]


def spoiled(source: random.Random, obj: dict[str, Any]) -> dict[str, Any]:
    obj = copy.deepcopy(obj)
    for _ in range(source.randint(1, 3)):
        node: Any = obj
        while node and source.random() < 0.65:
            inner = node[source.choice(list(node))] if isinstance(node, dict) else node[0]
            if not isinstance(inner, (dict, list)):
                break
            node = inner
        if isinstance(node, dict):
            node[source.choice([*NAMES, *node])] = anything(source, 2)
    return obj


def request(source: random.Random, path: str) -> tuple[str, str, str, Any]:
    version, kind, obj = STORED[path]
    method = source.choice(["POST", "PUT", "PATCH", "PATCH", "DELETE"])
    where = path if method == "POST" else f"{path}/o"
    if method in {"PUT", "PATCH"} and source.random() < 0.2:
        where += "/status"
    body: Any = spoiled(source, obj) if source.random() < 0.8 else anything(source)
    if method == "DELETE":
        body = {"preconditions": anything(source), "propagationPolicy": anything(source)}
    content_type = "application/" + (source.choice(PATCHES) if method == "PATCH" else "json")
    if content_type.endswith("json-patch+json"):
        steps = source.choices(NAMES[:10], k=source.randint(0, 4))
        operations = ["add", "remove", "replace", "test", "move", "copy"]
        body = [{"op": source.choice(operations), "path": "/".join(["", *steps]), "from": "/spec", "value": body}]
    elif content_type.endswith("yaml") and isinstance(body, dict):
        body = {"apiVersion": version, "kind": kind, **body}
    return method, where, content_type, body


@settings(deadline=None)
@given(st.integers(0, 2**32))
async def test_nothing_that_is_sent_is_an_accident(seed: int) -> None:
    source, records = random.Random(seed), logging.Handler()
    accidents: list[logging.LogRecord] = []
    records.emit = accidents.append  # type: ignore[method-assign]
    logger = logging.getLogger("prov_host.embedded")
    logger.addHandler(records)
    cluster = Cluster(FakeClock(), random.Random(1))
    try:
        for path, (_, _, obj) in STORED.items():
            made = await cluster.handle("POST", path, body=json.dumps(obj).encode())
            assert made.status == 201
        for _ in range(5):
            method, path, content_type, body = request(source, source.choice(list(STORED)))
            query = {"fieldManager": source.choice(["m", "n"]), "force": "true"}
            headers = {"content-type": content_type}
            await cluster.handle(method, path, query=query, headers=headers, body=json.dumps(body).encode())
            await cluster.clock.settle()
        for path in STORED:
            for accept in ("application/json", "application/json;as=Table;v=v1;g=meta.k8s.io"):
                assert (await cluster.handle("GET", path, headers={"accept": accept})).status == 200
        assert [record.exc_info for record in accidents] == []
    finally:
        logger.removeHandler(records)
        await cluster.close()
