import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prov_host.embedded.protobuf import decode_namespace

# What `kubectl create namespace kn` of version 1.37 sends.
WRAPPER = b"k8s\x00\n\x0f\n\x02v1\x12\tNamespace\x12\x14\n\x10\n\x02kn\x12\x00\x1a\x00"


def message(number: int, value: bytes) -> bytes:
    assert len(value) < 128
    return bytes([number << 3 | 2, len(value)]) + value


def namespace(metadata: bytes, kind: bytes = b"Namespace") -> bytes:
    wrapper = message(1, message(1, b"v1") + message(2, kind)) + message(2, message(1, metadata) + b"\x12\x00")
    return b"k8s\x00" + wrapper


def test_the_name_is_read() -> None:
    assert decode_namespace(namespace(message(1, b"kn") + message(3, b"") + b"\x38\x00"))["metadata"] == {"name": "kn"}


def test_labels_annotations_and_finalizers_are_read() -> None:
    metadata = message(1, b"n") + message(11, message(1, b"k") + message(2, b"v")) + message(14, b"x/y")
    assert decode_namespace(namespace(metadata))["metadata"] == {
        "name": "n",
        "labels": {"k": "v"},
        "finalizers": ["x/y"],
    }


def test_other_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="only Namespaces"):
        decode_namespace(namespace(b"", kind=b"Pod"))


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_damaged_bodies_are_refused_or_read_but_never_crash(body: bytes) -> None:
    for damaged in (body, b"k8s\x00" + body, WRAPPER[: len(body)]):
        try:
            decoded = decode_namespace(damaged)
        except ValueError:
            continue
        assert decoded["kind"] == "Namespace"
