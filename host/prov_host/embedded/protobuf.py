"""The one protobuf body that matters: ``kubectl create namespace`` sends its Namespace so, and nothing else.

Kubernetes wraps an object as the bytes ``k8s`` and zero, then a message with the kind and the object's own message.
Only metadata is decoded, which is all that a new namespace has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["MEDIA_TYPE", "decode_namespace"]

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_TEXT_FIELDS = {1: "name", 2: "generateName", 3: "namespace", 5: "uid", 6: "resourceVersion"}
_MAP_FIELDS = {11: "labels", 12: "annotations"}
_FINALIZERS = 14


def decode_namespace(body: bytes) -> dict[str, Any]:
    """Decode a Namespace.

    Raises:
        ValueError: it is something else, or damaged.
    """
    if not body.startswith(_MAGIC):
        raise ValueError("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    wrapper = _last_of_each(body[len(_MAGIC) :])
    kind = {number: value.decode() for number, value in _last_of_each(wrapper.get(1, b"")).items()}
    if kind.get(1, "v1") != "v1" or kind.get(2, "Namespace") != "Namespace":
        raise ValueError(f"only Namespaces are decoded from protobuf, this is a {kind.get(2)} of {kind.get(1)}")
    metadata: dict[str, Any] = {}
    for number, value in _fields(_last_of_each(wrapper.get(2, b"")).get(1, b"")):
        if number in _TEXT_FIELDS and value:
            metadata[_TEXT_FIELDS[number]] = value.decode()
        elif number in _MAP_FIELDS:
            entry = _last_of_each(value)
            metadata.setdefault(_MAP_FIELDS[number], {})[entry.get(1, b"").decode()] = entry.get(2, b"").decode()
        elif number == _FINALIZERS:
            metadata.setdefault("finalizers", []).append(value.decode())
    return {"kind": "Namespace", "apiVersion": "v1", "metadata": metadata}


def _last_of_each(message: bytes) -> dict[int, bytes]:
    return dict(_fields(message))


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The length-delimited fields of a message; numbers are passed over."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == 0:
            _, position = _varint(message, position)
        elif wire_type == 2:
            length, position = _varint(message, position)
            if position + length > len(message):
                raise ValueError("unexpected EOF")
            yield number, message[position : position + length]
            position += length
        else:
            raise ValueError(f"proto: illegal wireType {wire_type}")


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(message) or shift > 63:
            raise ValueError("unexpected EOF")
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
