"""Plugins in a test's hands: candidates and loaded plugins from plain classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from prov_host.hookspecs import hookimpl
from prov_host.model import Claim, ClaimSpec, ObjectMeta, Provisioned, ProvisionRequest, StorageClass, Volume
from prov_host.plugins import Candidate, Plugin


def candidate(name: str, target: Any, *, distribution: str = "", version: str = "1.0") -> Candidate:
    def load() -> Any:
        if isinstance(target, BaseException):
            raise target
        return target

    return Candidate(name, distribution or f"{name}-package", version, f"{name}:Plugin", load)


@pytest.fixture
def make_candidate() -> Callable[..., Candidate]:
    return candidate


@pytest.fixture
def make_plugin() -> Callable[..., Plugin]:
    def make(name: str, target: Any, *, asked: bool = True) -> Plugin:
        return Plugin(candidate(name, target), target() if isinstance(target, type) else target, asked=asked)

    return make


class Backend:
    """A minimal backend that works."""

    names = ("test.org/backend",)

    @hookimpl
    def provisioners(self) -> Any:
        return self.names

    @hookimpl
    def provision(self, request: ProvisionRequest) -> Provisioned:
        return Provisioned(source={"nfs": {"server": "s", "path": f"/{request.pv_name}"}})

    @hookimpl
    def delete(self, volume: Volume) -> None:
        return None


@pytest.fixture
def backend_class() -> type[Backend]:
    return Backend


@pytest.fixture
def request_() -> ProvisionRequest:
    claim = Claim(
        metadata=ObjectMeta(name="data", namespace="default", uid="u-1", labels={"app": "db"}),
        spec=ClaimSpec(storage_class_name="c"),
    )
    storage_class = StorageClass(metadata=ObjectMeta(name="c"), provisioner="test.org/backend", parameters={"a": "b"})
    return ProvisionRequest(pv_name="pvc-u-1", claim=claim, storage_class=storage_class, provisioner="test.org/backend")


@pytest.fixture
def volume() -> Volume:
    return Volume(metadata=ObjectMeta(name="pvc-u-1", uid="v-1", annotations={"x": "y"}))
