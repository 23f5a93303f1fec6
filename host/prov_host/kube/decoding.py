"""Objects off the wire: the fast way for nearly all, and a patient way for the odd one.

msgspec refuses a whole object because of one field of a wrong type. A list must not fail because of one object, and an
object must not vanish because of one field (a volume that is not seen is a volume that is made twice). So an object
that the fast way refuses is read again, field by field: a number where text belongs becomes that number's text (so
that a field that is set stays set), anything else of a wrong type is left out, down to the single list element or
map entry. Each such object is logged once.
"""

from __future__ import annotations

import json
import logging
from typing import Any, Generic, TypeVar, cast

import msgspec
from msgspec import inspect

from prov_host.kube.api import Resource
from prov_host.kube.failures import garbled
from prov_host.model import ObjectMeta

__all__ = ["Decoder", "encode", "metadata_of"]

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=msgspec.Struct)
_MAX_REPORTED = 1000
_LEFT_OUT = object()
# Too deep, not JSON, not UTF-8, or (msgspec) not the type.
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)


def metadata_of(obj: msgspec.Struct) -> ObjectMeta:
    """The metadata of a Struct that has :class:`~prov_host.model.ObjectMeta`. Callable from any thread. Since 0.1."""
    return cast("ObjectMeta", obj.metadata)  # type: ignore[attr-defined]


def encode(body: Any) -> bytes:
    """JSON of a request's body. Text that is not Unicode (file names can be such) gets replacement characters.

    Raises:
        ValueError, TypeError: something that has no JSON form.

    Callable from any thread. Since 0.1.
    """
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return msgspec.json.encode(_unicode(msgspec.to_builtins(body)))


class Decoder(Generic[T]):
    """Decodes objects of one resource. Callable from any thread. Since 0.1.

    Args:
        resource: what to decode.
    """

    def __init__(self, resource: Resource[T]) -> None:
        self._resource = resource
        self._fast = msgspec.json.Decoder(resource.type)
        self._info = inspect.type_info(resource.type)
        self._reported: set[tuple[str, ...]] = set()

    def decode(self, data: bytes | msgspec.Raw) -> T:
        """Decode one object.

        Args:
            data: its JSON.

        Returns:
            The Struct, without what could not be read.

        Raises:
            ApiError: not JSON at all, or not an object.
        """
        try:
            return self._fast.decode(data)
        except _UNREADABLE as error:
            return self._patiently(bytes(data), error)

    def _patiently(self, data: bytes, cause: BaseException) -> T:
        what = f"a {self._resource.kind}"
        try:
            # The standard library's parser takes what msgspec does not: half of a surrogate pair, control characters.
            raw = _unicode(json.loads(data.decode(errors="replace"), strict=False))
        except _UNREADABLE as error:
            raise garbled(what, error) from cause
        if not isinstance(raw, dict):
            raise garbled(what, cause) from cause
        problems: list[str] = []
        try:
            kept = _prune(raw, self._info, "", problems)
            found = msgspec.convert(kept, self._resource.type)
        except _UNREADABLE as error:
            raise garbled(what, error) from cause
        self._report(raw, problems or [str(cause)])
        return found

    def _report(self, raw: dict[str, Any], problems: list[str]) -> None:
        meta = raw.get("metadata")
        meta = meta if isinstance(meta, dict) else {}
        name = "/".join(str(meta[part])[:253] for part in ("namespace", "name") if meta.get(part))
        key = (name, str(meta.get("uid")), *problems)
        if key in self._reported or len(self._reported) >= _MAX_REPORTED:
            return
        self._reported.add(key)
        logger.warning(
            "%s %s is odd, and read as far as it makes sense: %s",
            self._resource.kind,
            name or "without a name",
            "; ".join(problems[:5]) + ("; and more" if len(problems) > 5 else ""),
        )


def _prune(value: Any, info: inspect.Type, path: str, problems: list[str]) -> Any:
    """``value`` without what does not fit ``info``, or ``_LEFT_OUT``."""
    if isinstance(info, inspect.UnionType):
        if value is None and info.includes_none:
            return None
        others = [one for one in info.types if not isinstance(one, inspect.NoneType)]
        fits = [one for one in others if _fits(value, one)]
        return _prune(value, (fits or others)[0], path, problems)
    if isinstance(info, inspect.StructType) and isinstance(value, dict):
        kept = {}
        for field in info.fields:
            if field.encode_name in value:
                one = _prune(value[field.encode_name], field.type, f"{path}.{field.encode_name}", problems)
                if one is not _LEFT_OUT:
                    kept[field.encode_name] = one
        return kept
    if isinstance(info, inspect.DictType) and isinstance(value, dict):
        pruned = {key: _prune(one, info.value_type, f"{path}[{key[:63]!r}]", problems) for key, one in value.items()}
        return {key: one for key, one in pruned.items() if one is not _LEFT_OUT}
    if isinstance(info, (inspect.VarTupleType, inspect.ListType)) and isinstance(value, list):
        items = [_prune(one, info.item_type, f"{path}[{i}]", problems) for i, one in enumerate(value)]
        return [one for one in items if one is not _LEFT_OUT]
    if isinstance(info, inspect.AnyType) or _fits(value, info):
        return value
    if isinstance(info, inspect.StrType) and isinstance(value, (bool, int, float)):
        problems.append(f"{path.lstrip('.')} is {json.dumps(value)}, taken as text")
        return json.dumps(value)
    problems.append(f"{path.lstrip('.') or 'it'} is {_shape(value)}, left out")
    return _LEFT_OUT


def _fits(value: Any, info: inspect.Type) -> bool:
    """Whether a value is of a scalar type, or of a container's kind."""
    match info:
        case inspect.StrType():
            return isinstance(value, str)
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.IntType():
            return isinstance(value, int) and not isinstance(value, bool)
        case inspect.FloatType():
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case inspect.StructType() | inspect.DictType():
            return isinstance(value, dict)
        case inspect.VarTupleType() | inspect.ListType():
            return isinstance(value, list)
        case _:
            return False


def _shape(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else json.dumps(value)[:80]


def _unicode(value: Any) -> Any:
    """A copy with text that can be encoded."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_unicode(key): _unicode(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_unicode(one) for one in value]
    return value
