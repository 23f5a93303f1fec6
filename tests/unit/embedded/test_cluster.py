"""The cluster as an object: reproducible, robust against whatever is sent, watched by its own tests."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prov_host.embedded import Cluster
from prov_host.kube.transport import Reply
from prov_host.testing.clock import FakeClock

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"


async def test_a_seeded_cluster_is_reproducible() -> None:
    answers = []
    for _ in range(2):
        cluster = Cluster(FakeClock(), random.Random(3))
        body = json.dumps({"metadata": {"generateName": "x-"}, "spec": {}}).encode()
        path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
        reply = await cluster.handle("POST", path, headers={"content-type": "application/json"}, body=body)
        answers.append(reply.body)
        await cluster.close()
    assert answers[0] == answers[1]


async def test_requests_are_counted_by_verb_and_resource(bare) -> None:
    await bare("GET", CLAIMS)
    await bare("GET", f"{CLAIMS}/none")
    counted = bare.cluster.requests
    assert counted.total(resource="persistentvolumeclaims") == 2
    assert counted.total(verb="LIST") == counted.total(code=404) == 1
    assert 'resource="persistentvolumeclaims",scope="namespace",subresource="",verb="LIST"' in counted.expose()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ["metadata", "spec", "status", "name", "labels", "annotations", "finalizers", "accessModes", "resources"]
FIELDS += ["requests", "storage", "storageClassName", "volumeName", "capacity", "nfs", "claimRef", "nodeAffinity"]
FIELDS += ["ownerReferences", "managedFields", "selector", "matchExpressions", "provisioner", "allowedTopologies"]
hostile = st.recursive(
    json_values, lambda inner: st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5) | st.lists(inner, max_size=2)
)
TYPES = [
    "application/json",
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
]
PATHS = [CLAIMS, f"{CLAIMS}/c", f"{CLAIMS}/c/status", "/api/v1/persistentvolumes", "/api/v1/persistentvolumes/v"]
PATHS += ["/apis/storage.k8s.io/v1/storageclasses", "/api/v1/namespaces/default/events", "/api/v1/namespaces/default"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    method=st.sampled_from(["POST", "PUT", "PATCH", "DELETE"]),
    path=st.sampled_from(PATHS),
    content_type=st.sampled_from(TYPES),
    body=hostile.map(json.dumps) | st.text(max_size=20),
    dry_run=st.booleans(),
)
async def test_no_body_breaks_the_server(method, path, content_type, body, dry_run) -> None:
    """In particular none is answered with an internal error, which is what an exception becomes."""
    cluster = Cluster(FakeClock(), random.Random(1))
    common = {"accessModes": ["ReadWriteOnce"]}
    claim = {"metadata": {"name": "c"}, "spec": {**common, "resources": {"requests": {"storage": "1"}}}}
    source = {"capacity": {"storage": "1"}, "nfs": {"server": "s", "path": "/"}}
    volume = {"metadata": {"name": "v"}, "spec": {**common, **source}}
    for where, existing in ((CLAIMS, claim), ("/api/v1/persistentvolumes", volume)):
        made = await cluster.handle("POST", where, body=json.dumps(existing).encode())
        assert made.status == 201
    query = {"fieldManager": "m", "force": "true"} | ({"dryRun": "All"} if dry_run else {})
    reply = await cluster.handle(method, path, query=query, headers={"content-type": content_type}, body=body.encode())
    assert isinstance(reply, Reply)
    answer = json.loads(reply.body)
    if reply.status >= 400:
        assert (answer["kind"], answer["code"]) == ("Status", reply.status)
        assert answer.get("reason") != "InternalError"
    await cluster.close()


@pytest.mark.parametrize(
    "path", ["", "/", "//", "/api/v1/", "/api/v1/namespaces//persistentvolumeclaims", "/%2e%2e", "/api/v1/watch"]
)
async def test_no_path_breaks_the_server(bare, path) -> None:
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"):
        reply = await bare.cluster.handle(method, path, body=b"{}")
        assert isinstance(reply, Reply)
        assert 200 <= reply.status < 600


@settings(deadline=None)
@given(
    st.text(max_size=30), st.sampled_from(["labelSelector", "fieldSelector", "continue", "resourceVersion", "limit"])
)
async def test_no_query_breaks_the_server(text, option) -> None:
    cluster = Cluster(FakeClock(), random.Random(1), controllers=False)
    reply = await cluster.handle("GET", CLAIMS, query={option: text})
    assert reply.status in {200, 400, 410, 422, 504}
    await cluster.close()
