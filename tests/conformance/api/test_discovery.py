"""What a client learns before it knows anything."""

from __future__ import annotations

import pytest

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
SERVED = {
    "v1": {"endpoints", "events", "namespaces", "nodes", "persistentvolumeclaims", "persistentvolumes", "pods"},
    "coordination.k8s.io/v1": {"leases"},
    "events.k8s.io/v1": {"events"},
    "storage.k8s.io/v1": {"storageclasses"},
}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez"])
def test_it_is_healthy(api, path) -> None:
    answer = api("GET", path)
    assert (answer.status, answer.body) == (200, "ok")


def test_the_version_is_that_of_the_reference(api) -> None:
    version = api.ok("GET", "/version")
    assert (version["major"], version["minor"]) == ("1", "37")
    assert version["gitVersion"].startswith("v1.37.2")


def test_groups_and_versions_are_listed(api) -> None:
    assert api.ok("GET", "/api")["versions"] == ["v1"]
    groups = {group["name"]: group["preferredVersion"]["groupVersion"] for group in api.ok("GET", "/apis")["groups"]}
    for version in SERVED:
        assert version == "v1" or version in groups.values()
    assert api.ok("GET", "/apis/storage.k8s.io")["preferredVersion"] == {
        "groupVersion": "storage.k8s.io/v1",
        "version": "v1",
    }


def described(resource: dict) -> dict:
    return {key: value for key, value in resource.items() if key != "storageVersionHash"}


@pytest.mark.parametrize("version", SERVED)
def test_resources_are_described(api, version) -> None:
    path = "/api/v1" if version == "v1" else f"/apis/{version}"
    listed = api.ok("GET", path)
    assert (listed["kind"], listed["groupVersion"]) == ("APIResourceList", version)
    resources = {resource["name"]: described(resource) for resource in listed["resources"]}
    assert set(resources) >= SERVED[version]
    if version == "v1":
        assert resources["persistentvolumeclaims"] == {
            "name": "persistentvolumeclaims",
            "singularName": "persistentvolumeclaim",
            "namespaced": True,
            "kind": "PersistentVolumeClaim",
            "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
            "shortNames": ["pvc"],
        }
        assert resources["persistentvolumes/status"]["verbs"] == ["get", "patch", "update"]
        assert resources["endpoints"]["singularName"] == "endpoints"
        assert "deletecollection" not in resources["namespaces"]["verbs"]


def test_everything_can_be_discovered_at_once(api) -> None:
    found = {}
    for path in ("/api", "/apis"):
        answer = api("GET", path, accept=AGGREGATED)
        assert answer.headers["content-type"] == AGGREGATED
        assert answer.body["kind"] == "APIGroupDiscoveryList"
        for group in answer.body["items"]:
            version = group["versions"][0]
            name = group["metadata"].get("name", "")
            found[f"{name}/v1" if name else "v1"] = {r["resource"]: r for r in version["resources"]}
    for version, resources in SERVED.items():
        assert set(found[version]) >= resources
    claims = found["v1"]["persistentvolumeclaims"]
    assert (claims["scope"], claims["singularResource"]) == ("Namespaced", "persistentvolumeclaim")
    assert [sub["subresource"] for sub in claims["subresources"]] == ["status"]


def test_openapi_describes_fields_and_parameters(api) -> None:
    index = api.ok("GET", "/openapi/v3")["paths"]
    assert {"api/v1", "apis/storage.k8s.io/v1"} <= set(index)
    document = api.ok("GET", "/openapi/v3/api/v1")
    claim = document["components"]["schemas"]["io.k8s.api.core.v1.PersistentVolumeClaim"]
    assert claim["x-kubernetes-group-version-kind"] == [{"group": "", "kind": "PersistentVolumeClaim", "version": "v1"}]
    assert {"apiVersion", "kind", "metadata", "spec", "status"} == set(claim["properties"])
    patch = document["paths"]["/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"]["patch"]
    assert {"dryRun", "fieldManager", "fieldValidation"} <= {parameter["name"] for parameter in patch["parameters"]}


def test_requests_are_counted(api) -> None:
    def count() -> int:
        text = api("GET", "/metrics").body
        wanted = ('code="201"', 'group="coordination.k8s.io"', 'resource="leases"', 'verb="POST"', 'version="v1"')
        lines = [line for line in text.splitlines() if line.startswith("apiserver_request_total{")]
        return sum(int(float(line.split()[-1])) for line in lines if all(label in line for label in wanted))

    before = count()
    api.ok("POST", api.leases, api.lease("a"))
    api.ok("POST", api.leases, api.lease("b"))
    assert count() == before + 2


# ------------------------------------------------------------------------------------------------ tables


def cells(api, path: str, **query: str) -> list[dict]:
    table = api.ok("GET", path, accept=TABLE, **query)
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    names = [column["name"] for column in table["columnDefinitions"]]
    return [dict(zip(names, row["cells"], strict=True)) for row in table["rows"]]


def test_claims_have_the_usual_columns(api) -> None:
    api.ok("POST", api.claims, api.claim("c"))
    (row,) = cells(api, api.claims)
    assert row.pop("Age").endswith("s")
    assert row == {
        "Name": "c",
        "Status": "Pending",
        "Volume": "",
        "Capacity": "",
        "Access Modes": "",
        "StorageClass": api.name("none"),
        "VolumeAttributesClass": "<unset>",
        "VolumeMode": "Filesystem",
    }


def test_bound_claims_and_volumes_show_each_other(api) -> None:
    api.ok("POST", api.volumes, api.volume("v", accessModes=["ReadWriteOnce", "ReadWriteMany"]))
    volume = f"metadata.name={api.name('v')}"
    api.until(lambda: cells(api, api.volumes, fieldSelector=volume)[0]["Status"] == "Available")
    api.ok("POST", api.claims, api.claim("c"))
    row = api.until(lambda: (rows := cells(api, api.claims))[0]["Status"] == "Bound" and rows[0])
    assert (row["Volume"], row["Capacity"], row["Access Modes"]) == (api.name("v"), "1Gi", "RWO,RWX")
    (row,) = cells(api, api.volumes, fieldSelector=volume)
    assert (row["Claim"], row["Reclaim Policy"]) == (f"{api.namespace}/c", "Retain")


@pytest.mark.parametrize("kind", ["classes", "leases", "events", "namespaces", "nodes", "endpoints"])
def test_other_kinds_have_the_same_columns_on_both_servers(api, kind) -> None:
    expected = {
        "classes": "Name Provisioner ReclaimPolicy VolumeBindingMode AllowVolumeExpansion Age",
        "leases": "Name Holder Age",
        "events": "Last_Seen Type Reason Object Subobject Source Message First_Seen Count Name",
        "namespaces": "Name Status Age",
        "nodes": "Name Status Roles Age Version Internal-IP External-IP OS-Image Kernel-Version Container-Runtime",
        "endpoints": "Name Endpoints Age",
    }
    table = api.ok("GET", getattr(api, kind), accept=TABLE)
    assert [c["name"].replace(" ", "_") for c in table["columnDefinitions"]] == expected[kind].split()


def test_a_watch_of_tables_describes_its_columns_once(api) -> None:
    for name in ("a", "b"):
        api.ok("POST", api.leases, api.lease(name))
    query = {"watch": "true", "timeoutSeconds": "1"}
    answer = api("GET", api.leases, accept=TABLE, **query)
    assert '"columnDefinitions":[{"name":"Name"' in answer.body
    assert answer.body.count('"columnDefinitions":null') == 1
    assert [line.count('"type":"ADDED"') for line in answer.body.splitlines()] == [1, 1]
