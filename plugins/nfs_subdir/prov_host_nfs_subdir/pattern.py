"""The class parameter ``pathPattern``: from text and a claim to the names of the directories below the export.

A pattern is text with tokens::

    ${.PVC.namespace}/${.PVC.labels.app.kubernetes.io/name:-${.PVC.name}}/data

It is parsed once (:func:`parse`), which finds every mistake its author made, and rendered per claim
(:meth:`Pattern.render`), where every value is hostile: whoever may write a claim, its labels and its annotations is
not who wrote the class. The result is a tuple of names, each checked; it can be empty only if the pattern says so, and
then the caller uses its default name.

Segments that the *pattern* leaves empty or writes as ``.`` collapse, as in the Go provisioner. A segment that became
so because a value was empty is refused: ``${.PVC.labels.team}/${.PVC.name}`` must not put the claims of people without
a team into the root. A default (``:-``), also an empty one, says that its author thought of it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prov_host import Claim, Infeasible
from prov_host.safedir import UnsafeName, check_new_name

__all__ = ["RESERVED_PREFIX", "Pattern", "check_names", "is_servers_own", "parse"]

RESERVED_PREFIX = ".prov-host"
"""Names that begin so are ours, in any case and at any depth."""

# Directories that file servers or this kernel's NFS client put into a share: snapshots hold everyone's data.
_SERVERS_OWN = frozenset(
    {".snapshot", ".snapshots", "~snapshot", "#snapshot", ".zfs", "lost+found", "#recycle", "@recycle", "@eadir"}
)
_MAX_PATTERN = 4096
_MAX_NESTING = 4
_TOKENS = "${.PVC.namespace}, ${.PVC.name}, ${.PVC.labels.KEY}, ${.PVC.annotations.KEY} and ${.PV.name}"


@dataclass(frozen=True, slots=True)
class _Token:
    """One ``${...}``.

    Attributes:
        text: as written, for messages.
        source: ``namespace``, ``name``, ``pv``, ``labels`` or ``annotations``.
        key: the label's or annotation's.
        default: what to use instead of an empty value, or None.
    """

    text: str
    source: str
    key: str = ""
    default: str | _Token | None = None


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rendered text.

    Attributes:
        text: the text.
        token: the token it is the value of, None for the pattern's own text.
        splits: whether slashes in it separate segments.
        may_be_empty: whether the author allowed it to be empty.
    """

    text: str
    token: _Token | None = None
    splits: bool = True
    may_be_empty: bool = False


@dataclass(frozen=True, slots=True)
class Pattern:
    """A parsed pattern. Immutable; for any thread. Since 0.1."""

    text: str
    parts: tuple[str | _Token, ...]

    def render(self, claim: Claim, pv_name: str, *, allow_slash: bool = False) -> tuple[str, ...]:
        """Put a claim's values in.

        Args:
            claim: the claim; hostile.
            pv_name: the volume's name.
            allow_slash: whether labels and annotations may hold slashes (``allowSlashInValues``).

        Returns:
            The names from the root to the volume's directory; empty if nothing is left, then the default name is
            meant.

        Raises:
            Infeasible: a value cannot be used; the message names the claim and the token.
        """
        values = _Values(claim, pv_name, allow_slash=allow_slash)
        segments = _segments(piece for part in self.parts for piece in values.pieces(part))
        names: list[str] = []
        if not any(segment.text for segment in segments):
            return ()
        for segment in segments:
            if segment.text not in {"", "."}:
                names.append(segment.text)
            elif segment.token is not None:
                what = "is empty" if not segment.text else "is '.'"
                raise Infeasible(
                    f"claim {claim.key}: the path segment made by {segment.token.text} {what}; set the value on the "
                    "claim, or give the token a default in the class's pathPattern, like "
                    f"{segment.token.text[:-1].split(':-')[0]}:-none}}"
                )
        check_names(names, f"claim {claim.key}")
        return tuple(names)


def check_names(names: list[str] | tuple[str, ...], who: str) -> None:
    """Refuse names that must not be made on a share.

    Args:
        names: path segments.
        who: whose, for the message.

    Raises:
        Infeasible: the first bad one, and why.
    """
    for name in names:
        try:
            check_new_name(name)
        except UnsafeName as error:
            raise Infeasible(f"{who}: {error}; nothing was created") from error
        folded = unicodedata.normalize("NFKC", name).casefold()
        if folded.startswith(RESERVED_PREFIX):
            raise Infeasible(
                f"{who}: names that begin with {RESERVED_PREFIX!r} are reserved, but the path has {name!r}"
            )
        if is_servers_own(name):
            raise Infeasible(f"{who}: the name {name!r} belongs to the file server, choose another")


def is_servers_own(name: str) -> bool:
    """Whether a name is one that file servers, or NFS clients, make for themselves."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return folded in _SERVERS_OWN or folded.startswith(".nfs0")


class _Values:
    """A claim's values, looked at with suspicion."""

    def __init__(self, claim: Claim, pv_name: str, *, allow_slash: bool) -> None:
        self._claim = claim
        self._simple = {"namespace": claim.namespace, "name": claim.name, "pv": pv_name}
        self._maps: Mapping[str, Mapping[str, str]] = {"labels": claim.labels, "annotations": claim.annotations}
        self._allow_slash = allow_slash

    def pieces(self, part: str | _Token) -> list[_Piece]:
        if isinstance(part, str):
            return [_Piece(part)]
        value = self._value(part)
        if value:
            return [_Piece(value, part, splits=part.key != "")]
        if isinstance(part.default, _Token):
            return self.pieces(part.default)
        if part.default is not None:
            return [_Piece(part.default, part, may_be_empty=True)]
        return [_Piece("", part)]

    def _value(self, token: _Token) -> str:
        values = self._maps[token.source] if token.key else self._simple
        value = values.get(token.key or token.source) or ""
        if "/" in value and not (token.key and self._allow_slash):
            hint = '; the class may allow it with allowSlashInValues: "true"' if token.key else ""
            raise Infeasible(
                f"claim {self._claim.key}: the value of {token.text} has a slash in it{hint}; nothing was created"
            )
        return value


@dataclass(slots=True)
class _Segment:
    """One name in the making; `token` is what made it end up empty, if anything did."""

    text: str = ""
    token: _Token | None = None


def _segments(pieces: Iterable[_Piece]) -> list[_Segment]:
    segments = [_Segment()]
    for piece in pieces:
        texts = piece.text.split("/") if piece.splits else [piece.text]
        for index, text in enumerate(texts):
            if index:
                segments.append(_Segment())
            segments[-1].text += text
            if piece.token is not None and not piece.may_be_empty:
                segments[-1].token = piece.token
    return segments


def parse(text: str) -> Pattern:
    """Read a pattern and find every mistake in it.

    Args:
        text: the parameter's value.

    Returns:
        The pattern.

    Raises:
        Infeasible: unknown or unterminated tokens, wrong case, ``..`` or names that are never allowed.

    Callable from any thread. Since 0.1.
    """
    if len(text) > _MAX_PATTERN:
        raise Infeasible(f"pathPattern is {len(text)} characters long, more than {_MAX_PATTERN}")
    parts: list[str | _Token] = []
    position = 0
    while position < len(text):
        start = text.find("${", position)
        if start < 0:
            parts.append(text[position:])
            break
        if start > position:
            parts.append(text[position:start])
        token, position = _token(text, start, 0)
        parts.append(token)
    _check_written(text, parts)
    return Pattern(text, tuple(parts))


def _check_written(text: str, parts: list[str | _Token]) -> None:
    """What is wrong whatever the claim is, so that a class's author learns of it from the first claim."""
    plain = "".join(part if isinstance(part, str) else "\x01" for part in parts)
    for segment in plain.split("/"):
        if "\x01" in segment or segment in {"", "."}:
            continue
        if segment == "..":
            raise Infeasible(f"pathPattern {text!r}: '..' is not allowed in it")
        check_names([segment], f"pathPattern {text!r}")


def _token(text: str, start: int, nesting: int) -> tuple[_Token, int]:
    """Parse the token at `start`; returns it and the position after it."""
    if nesting > _MAX_NESTING:
        raise Infeasible(f"pathPattern {text!r}: defaults are nested more than {_MAX_NESTING} deep")
    end = text.find("}", start)
    default_at = text.find(":-", start)
    default: str | _Token | None = None
    if end < 0:
        raise Infeasible(f"pathPattern {text!r}: the token at {text[start : start + 40]!r} has no closing '}}'")
    if 0 <= default_at < end:
        name = text[start + 2 : default_at]
        if text.startswith("${", default_at + 2):
            default, after = _token(text, default_at + 2, nesting + 1)
            if not text.startswith("}", after):
                raise Infeasible(
                    f"pathPattern {text!r}: the default of ${{{name}}} must be plain text or exactly one token, "
                    "and be closed with '}'"
                )
            end = after
        else:
            default = text[default_at + 2 : end]
            if "${" in default or "\0" in default:
                raise Infeasible(
                    f"pathPattern {text!r}: the default of ${{{name}}} must be plain text or exactly one token"
                )
    else:
        name = text[start + 2 : end]
    written = text[start : end + 1]
    for prefix, source in ((".PVC.labels.", "labels"), (".PVC.annotations.", "annotations")):
        if name.startswith(prefix) and len(name) > len(prefix) and "$" not in name and "{" not in name:
            return _Token(written, source, name[len(prefix) :], default), end + 1
    simple = {".PVC.namespace": "namespace", ".PVC.name": "name", ".PV.name": "pv"}.get(name)
    if simple is None:
        near = next((known for known in _KNOWN if known.casefold() == name.casefold()), None)
        hint = f"; did you mean ${{{near}}}? Case matters" if near else f"; known are {_TOKENS}"
        raise Infeasible(f"pathPattern {text!r}: unknown token {written!r}{hint}")
    return _Token(written, simple, "", default), end + 1


_KNOWN = (".PVC.namespace", ".PVC.name", ".PV.name")
