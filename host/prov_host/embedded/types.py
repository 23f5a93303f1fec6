"""The kinds of object that the embedded cluster serves: their fields, and where they live.

Fields of kinds that matter here are typed in full; volume sources other than nfs, hostPath, local and csi, and most of
pods and nodes, are taken as they come.
"""

from __future__ import annotations

from typing import Any

import msgspec

from prov_host.embedded.schema import Type, listing, mapping, obj, primitive

__all__ = ["DELETE_OPTIONS", "RESOURCES", "ResourceType", "by_plural"]

_S = primitive("string")
_S_KEEP = primitive("string", keep=True)
_S_ALWAYS = primitive("string", always=True)
_S_OR_NULL = primitive("string", always=True, keep=True)
_I32 = primitive("int32")
_I32_KEEP = primitive("int32", keep=True)
_I64 = primitive("int64")
_I64_KEEP = primitive("int64", keep=True)
_B = primitive("bool")
_B_KEEP = primitive("bool", keep=True)
_TIME = primitive("time")
_TIME_ALWAYS = primitive("time", always=True)
_MICRO = primitive("microtime")
_MICRO_ALWAYS = primitive("microtime", always=True)
_RAW = primitive("raw")
_RAW_KEEP = primitive("raw", keep=True)
_STRINGS = listing(_S)
_STRING_SET = listing(_S, merge=True)
_STRING_MAP = mapping(_S)
_QUANTITIES = mapping(primitive("quantity"))

_OWNER = obj(
    "OwnerReference",
    apiVersion=_S_ALWAYS,
    kind=_S_ALWAYS,
    name=_S_ALWAYS,
    uid=_S_ALWAYS,
    controller=_B_KEEP,
    blockOwnerDeletion=_B_KEEP,
)
_MANAGED = obj(
    "ManagedFieldsEntry",
    manager=_S,
    operation=_S,
    apiVersion=_S,
    time=_TIME,
    fieldsType=_S,
    fieldsV1=_RAW_KEEP,
    subresource=_S,
)
_META = obj(
    "ObjectMeta",
    always=True,
    name=_S,
    generateName=_S,
    namespace=_S,
    selfLink=_S,
    uid=_S,
    resourceVersion=_S,
    generation=_I64,
    creationTimestamp=_TIME,
    deletionTimestamp=_TIME,
    deletionGracePeriodSeconds=_I64_KEEP,
    labels=_STRING_MAP,
    annotations=_STRING_MAP,
    ownerReferences=listing(_OWNER, merge_key="uid"),
    finalizers=_STRING_SET,
    managedFields=listing(_MANAGED),
)
_OBJECT_REFERENCE = obj(
    "ObjectReference", kind=_S, namespace=_S, name=_S, uid=_S, apiVersion=_S, resourceVersion=_S, fieldPath=_S
)
_EVENT_REFERENCE = msgspec.structs.replace(_OBJECT_REFERENCE, always=True)
_LABEL_REQUIREMENT = obj("LabelSelectorRequirement", key=_S_ALWAYS, operator=_S_ALWAYS, values=_STRINGS)
_LABEL_SELECTOR = obj("LabelSelector", matchLabels=_STRING_MAP, matchExpressions=listing(_LABEL_REQUIREMENT))
_NODE_REQUIREMENT = obj("NodeSelectorRequirement", key=_S_ALWAYS, operator=_S_ALWAYS, values=_STRINGS)
_NODE_TERM = obj(
    "NodeSelectorTerm", matchExpressions=listing(_NODE_REQUIREMENT), matchFields=listing(_NODE_REQUIREMENT)
)
_NODE_SELECTOR = obj("NodeSelector", nodeSelectorTerms=Type("list", item=_NODE_TERM, always=True))
_CONDITION = obj(
    "Condition",
    type=_S_ALWAYS,
    status=_S_ALWAYS,
    lastProbeTime=_TIME_ALWAYS,
    lastHeartbeatTime=_TIME,
    lastTransitionTime=_TIME_ALWAYS,
    reason=_S,
    message=_S,
)

_CLAIM = obj(
    "PersistentVolumeClaim",
    metadata=_META,
    spec=obj(
        "PersistentVolumeClaimSpec",
        always=True,
        accessModes=_STRINGS,
        selector=_LABEL_SELECTOR,
        resources=obj("VolumeResourceRequirements", always=True, limits=_QUANTITIES, requests=_QUANTITIES),
        volumeName=_S,
        storageClassName=_S_KEEP,
        volumeMode=_S_KEEP,
        dataSource=obj("TypedLocalObjectReference", apiGroup=_S_OR_NULL, kind=_S_ALWAYS, name=_S_ALWAYS),
        dataSourceRef=obj(
            "TypedObjectReference", apiGroup=_S_OR_NULL, kind=_S_ALWAYS, name=_S_ALWAYS, namespace=_S_KEEP
        ),
        volumeAttributesClassName=_S_KEEP,
    ),
    status=obj(
        "PersistentVolumeClaimStatus",
        always=True,
        phase=_S,
        accessModes=_STRINGS,
        capacity=_QUANTITIES,
        conditions=listing(_CONDITION, merge_key="type"),
        allocatedResources=_QUANTITIES,
        allocatedResourceStatuses=_STRING_MAP,
        currentVolumeAttributesClassName=_S_KEEP,
        modifyVolumeStatus=_RAW,
    ),
)
_LOOSE_SOURCES = (
    *("gcePersistentDisk", "awsElasticBlockStore", "glusterfs", "rbd", "iscsi", "cinder", "cephfs", "fc", "flocker"),
    *("flexVolume", "azureFile", "vsphereVolume", "quobyte", "azureDisk", "photonPersistentDisk", "portworxVolume"),
    *("scaleIO", "storageos"),
)
_LOOSE_FIELDS: dict[str, Any] = dict.fromkeys(_LOOSE_SOURCES, _RAW_KEEP)
SOURCES = ("nfs", "hostPath", "local", "csi", *_LOOSE_SOURCES)
"""The fields of a volume's spec of which exactly one must be set."""
_VOLUME = obj(
    "PersistentVolume",
    metadata=_META,
    spec=obj(
        "PersistentVolumeSpec",
        always=True,
        capacity=_QUANTITIES,
        nfs=obj("NFSVolumeSource", server=_S_ALWAYS, path=_S_ALWAYS, readOnly=_B),
        hostPath=obj("HostPathVolumeSource", path=_S_ALWAYS, type=_S_KEEP),
        local=obj("LocalVolumeSource", path=_S_ALWAYS, fsType=_S_KEEP),
        csi=obj(
            "CSIPersistentVolumeSource",
            driver=_S_ALWAYS,
            volumeHandle=_S_ALWAYS,
            readOnly=_B,
            fsType=_S,
            volumeAttributes=_STRING_MAP,
            controllerPublishSecretRef=_RAW,
            nodeStageSecretRef=_RAW,
            nodePublishSecretRef=_RAW,
            controllerExpandSecretRef=_RAW,
            nodeExpandSecretRef=_RAW,
        ),
        **_LOOSE_FIELDS,
        accessModes=_STRINGS,
        claimRef=_OBJECT_REFERENCE,
        persistentVolumeReclaimPolicy=_S,
        storageClassName=_S,
        mountOptions=_STRINGS,
        volumeMode=_S_KEEP,
        nodeAffinity=obj("VolumeNodeAffinity", required=_NODE_SELECTOR),
        volumeAttributesClassName=_S_KEEP,
    ),
    status=obj("PersistentVolumeStatus", always=True, phase=_S, message=_S, reason=_S, lastPhaseTransitionTime=_TIME),
)
_STORAGE_CLASS = obj(
    "StorageClass",
    metadata=_META,
    provisioner=_S_ALWAYS,
    parameters=_STRING_MAP,
    reclaimPolicy=_S_KEEP,
    mountOptions=_STRINGS,
    allowVolumeExpansion=_B_KEEP,
    volumeBindingMode=_S_KEEP,
    allowedTopologies=listing(
        obj(
            "TopologySelectorTerm",
            matchLabelExpressions=listing(
                obj("TopologySelectorLabelRequirement", key=_S_ALWAYS, values=Type("list", item=_S, always=True))
            ),
        )
    ),
)
_EVENT = obj(
    "Event",
    metadata=_META,
    involvedObject=_EVENT_REFERENCE,
    reason=_S,
    message=_S,
    source=obj("EventSource", always=True, component=_S, host=_S),
    firstTimestamp=_TIME_ALWAYS,
    lastTimestamp=_TIME_ALWAYS,
    count=_I32,
    type=_S,
    eventTime=_MICRO_ALWAYS,
    series=obj("EventSeries", count=_I32, lastObservedTime=_MICRO),
    action=_S,
    related=_OBJECT_REFERENCE,
    reportingComponent=_S_ALWAYS,
    reportingInstance=_S_ALWAYS,
)
_LEASE = obj(
    "Lease",
    metadata=_META,
    spec=obj(
        "LeaseSpec",
        always=True,
        holderIdentity=_S_KEEP,
        leaseDurationSeconds=_I32_KEEP,
        acquireTime=_MICRO,
        renewTime=_MICRO,
        leaseTransitions=_I32_KEEP,
        strategy=_S_KEEP,
        preferredHolder=_S_KEEP,
    ),
)
_ENDPOINT_ADDRESS = obj("EndpointAddress", ip=_S_ALWAYS, hostname=_S, nodeName=_S_KEEP, targetRef=_OBJECT_REFERENCE)
_ENDPOINTS = obj(
    "Endpoints",
    metadata=_META,
    subsets=listing(
        obj(
            "EndpointSubset",
            addresses=listing(_ENDPOINT_ADDRESS),
            notReadyAddresses=listing(_ENDPOINT_ADDRESS),
            ports=listing(
                obj("EndpointPort", name=_S, port=primitive("int32", always=True), protocol=_S, appProtocol=_S_KEEP)
            ),
        )
    ),
)
_NAMESPACE = obj(
    "Namespace",
    metadata=_META,
    spec=obj("NamespaceSpec", always=True, finalizers=_STRINGS),
    status=obj("NamespaceStatus", always=True, phase=_S, conditions=listing(_CONDITION, merge_key="type")),
)
_NODE = obj(
    "Node",
    metadata=_META,
    spec=obj(
        "NodeSpec",
        always=True,
        podCIDR=_S,
        podCIDRs=_STRING_SET,
        providerID=_S,
        unschedulable=_B,
        taints=listing(obj("Taint", key=_S_ALWAYS, value=_S, effect=_S_ALWAYS, timeAdded=_TIME)),
    ),
    status=obj(
        "NodeStatus",
        always=True,
        capacity=_QUANTITIES,
        allocatable=_QUANTITIES,
        phase=_S,
        conditions=listing(_CONDITION, merge_key="type"),
        addresses=listing(obj("NodeAddress", type=_S_ALWAYS, address=_S_ALWAYS), merge_key="type"),
        daemonEndpoints=_RAW,
        nodeInfo=obj("NodeSystemInfo", open=True),
        images=_RAW,
        volumesInUse=_STRINGS,
        volumesAttached=_RAW,
    ),
)
_POD = obj(
    "Pod",
    metadata=_META,
    spec=obj(
        "PodSpec",
        always=True,
        open=True,
        nodeName=_S,
        schedulerName=_S,
        containers=listing(obj("Container", open=True, name=_S_ALWAYS), merge_key="name"),
        volumes=listing(
            obj(
                "Volume",
                open=True,
                name=_S_ALWAYS,
                persistentVolumeClaim=obj("PersistentVolumeClaimVolumeSource", claimName=_S_ALWAYS, readOnly=_B),
            ),
            merge_key="name",
        ),
    ),
    status=obj("PodStatus", always=True, open=True, phase=_S),
)


DELETE_OPTIONS = obj(
    "DeleteOptions",
    kind=_S,
    apiVersion=_S,
    gracePeriodSeconds=_I64_KEEP,
    preconditions=obj("Preconditions", uid=_S_KEEP, resourceVersion=_S_KEEP),
    orphanDependents=_B_KEEP,
    propagationPolicy=_S,
    dryRun=_STRINGS,
)
"""The body of a delete."""


class ResourceType(msgspec.Struct, frozen=True):
    """A kind of object and where it lives.

    Attributes:
        group: "" for the core.
        plural: as in paths.
        kind: as in objects.
        namespaced: False for cluster-scoped kinds.
        schema: its fields.
        short_names: for kubectl.
        status: whether it has the status subresource.
        returns_deleted: a delete answers with the object; otherwise with a Status.
        create_on_update: a PUT to a free name creates.
        label_names: names follow the stricter rule of labels.
        selectable: field selectors besides metadata.name and metadata.namespace, as paths.
        singular: the plural without its s by default.
        categories: for kubectl.
    """

    group: str
    plural: str
    kind: str
    namespaced: bool
    schema: Type
    short_names: tuple[str, ...] = ()
    status: bool = False
    returns_deleted: bool = False
    create_on_update: bool = False
    label_names: bool = False
    selectable: tuple[str, ...] = ()
    singular: str = ""
    categories: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """``v1`` or ``group/v1``; every kind here is at version 1."""
        return f"{self.group}/v1" if self.group else "v1"

    @property
    def id(self) -> str:
        """Unique: ``persistentvolumeclaims`` or ``leases.coordination.k8s.io``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def singular_name(self) -> str:
        """For discovery."""
        return self.singular or self.kind.lower()


_EVENT_FIELDS = (
    *(f"involvedObject.{name}" for name in _OBJECT_REFERENCE.fields),
    *("reason", "reportingComponent", "source", "type"),
)
RESOURCES: tuple[ResourceType, ...] = (
    ResourceType("", "endpoints", "Endpoints", True, _ENDPOINTS, ("ep",), create_on_update=True),
    ResourceType("", "events", "Event", True, _EVENT, ("ev",), create_on_update=True, selectable=_EVENT_FIELDS),
    ResourceType(
        "", "namespaces", "Namespace", False, _NAMESPACE, ("ns",), True, True, label_names=True,
        selectable=("status.phase",),
    ),
    ResourceType("", "nodes", "Node", False, _NODE, ("no",), True, selectable=("spec.unschedulable",)),
    ResourceType("", "persistentvolumeclaims", "PersistentVolumeClaim", True, _CLAIM, ("pvc",), True, True),
    ResourceType("", "persistentvolumes", "PersistentVolume", False, _VOLUME, ("pv",), True, True),
    ResourceType(
        "", "pods", "Pod", True, _POD, ("po",), True, True, categories=("all",),
        selectable=("spec.nodeName", "spec.schedulerName", "status.phase"),
    ),
    ResourceType("coordination.k8s.io", "leases", "Lease", True, _LEASE, create_on_update=True),
    ResourceType(
        "storage.k8s.io", "storageclasses", "StorageClass", False, _STORAGE_CLASS, ("sc",), returns_deleted=True,
    ),
)  # fmt: skip


def by_plural(group: str, plural: str) -> ResourceType | None:
    """The resource of that group and plural, or None."""
    return _INDEX.get((group, plural))


_INDEX = {(resource.group, resource.plural): resource for resource in RESOURCES}
