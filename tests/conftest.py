"""What every kind of test may use: the real control plane and NFS server, each started when a test first asks for it.

A part that is not on the machine skips the tests that need it, with a message that says how to get it. In CI
(`CI=true`) nothing may be skipped, so there a skip fails the run.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from harness import MissingPart
from harness.controlplane import Authorization, ControlPlane
from harness.nfs import NfsServer

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

_IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}
_skipped = pytest.StashKey[list[str]]()
_parts = pytest.StashKey[list[ControlPlane]]()


# A benchmark is not a timed test: how long an example takes depends on what else the machine does.
settings.register_profile("no deadline", deadline=None, print_blob=True)
settings.load_profile("no deadline")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_skipped] = []
    config.stash[_parts] = []


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Quick tests first: a mistake shows before the servers have started."""
    order = {"unit": 0, "fuzz": 1, "conformance": 2, "integration": 3, "controlplane": 4, "e2e": 5}
    tests = os.path.dirname(__file__)
    items.sort(key=lambda item: order.get(os.path.relpath(item.path, tests).split(os.sep)[0], 2))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        item.config.stash[_skipped].append(f"{item.nodeid}: {report.longrepr}")
    if report.failed:
        for plane in item.config.stash[_parts]:
            report.sections.append(("control plane", plane.log_tails()))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped:
        collector.config.stash[_skipped].append(f"{collector.nodeid}: {report.longrepr}")
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """CI must not stay green because a part was missing."""
    green = session.exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}
    if _IN_CI and session.config.stash[_skipped] and green:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if _IN_CI and config.stash[_skipped]:
        terminalreporter.section("CI=true: a skipped test is a failure", red=True)


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A real control plane that allows everybody everything; shared, so tests use names of their own."""
    yield from _control_plane(request.config, tmp_path_factory, "AlwaysAllow")


@pytest.fixture(scope="session")
def rbac_control_plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A real control plane with RBAC, where only what deploy/ grants is allowed."""
    yield from _control_plane(request.config, tmp_path_factory, "RBAC")


def _control_plane(
    config: pytest.Config, tmp_path_factory: pytest.TempPathFactory, authorization: Authorization
) -> Iterator[ControlPlane]:
    try:
        plane = ControlPlane(tmp_path_factory.mktemp(f"control-plane-{authorization}"), authorization=authorization)
    except MissingPart as error:
        pytest.skip(str(error))
    with plane:
        config.stash[_parts].append(plane)
        try:
            yield plane
        finally:
            config.stash[_parts].remove(plane)


@pytest.fixture(scope="session")
def nfs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NfsServer]:
    """A real NFS server that exports one empty directory; tests work in subdirectories of their own."""
    try:
        server = NfsServer(tmp_path_factory.mktemp("nfs-server"), tmp_path_factory.mktemp("export"))
    except MissingPart as error:
        pytest.skip(str(error))
    with server:
        yield server
