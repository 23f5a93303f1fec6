"""Every operation leaves a line before it and a line after it, or does not happen."""

import json

import pytest
from prov_host_audit import AuditPlugin, AuditSettings

from prov_host import ConfigurationError, Provisioned, ProvisionError, Record, hookimpl
from prov_host.testing import FakeHost, hooks_of, make_request, make_volume


class Backend:
    def __init__(self):
        self.calls = []

    @hookimpl
    def provision(self, request):
        self.calls.append("provision")
        return Provisioned(source={"hostPath": {"path": "/x"}})

    @hookimpl
    def delete(self, volume):
        self.calls.append("delete")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "audit.log"


@pytest.fixture
def plugin(path):
    plugin = AuditPlugin()
    plugin.configure(AuditSettings(path=str(path)), FakeHost("audit"))
    return plugin


@pytest.fixture
def backend():
    return Backend()


@pytest.fixture
def hooks(plugin, backend):
    """The backend's hooks with the audit's wrappers around them, as the host calls them."""
    return hooks_of(backend, plugin)


def lines(path):
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def test_the_line_before_is_there_when_the_operation_begins(hooks, path, backend):
    request = make_request()
    hooks.provision(request=request)
    (line,) = lines(path)
    assert line == {
        "at": "2026-01-01T00:00:00+00:00",
        "event": "begin",
        "operation": "provision",
        "volume": request.pv_name,
        "claim": "default/data",
    }
    assert backend.calls == ["provision"]


def test_an_operation_that_cannot_be_written_down_does_not_happen(hooks, path, backend):
    path.mkdir()
    with pytest.raises(ProvisionError, match="Is a directory"):
        hooks.provision(request=make_request())
    assert backend.calls == []


def test_deleting_leaves_a_line(hooks, path):
    request = make_request()
    volume = make_volume(request, Provisioned(source={"hostPath": {"path": "/x"}}))
    hooks.delete(volume=volume)
    assert [(line["operation"], line["volume"]) for line in lines(path)] == [("delete", request.pv_name)]


def test_the_line_after_tells_what_became_of_it(plugin, path):
    plugin.observe(
        Record(operation="delete", plugin="x", provisioner="y", outcome="delete_error", message="\n'\"\u2028")
    )
    (line,) = lines(path)
    assert (line["event"], line["outcome"], line["message"]) == ("end", "delete_error", "\n'\"\u2028")


def test_a_missing_setting_says_what_to_do():
    with pytest.raises(ConfigurationError, match="PROV_HOST_AUDIT_PATH is not set"):
        AuditPlugin().configure(AuditSettings(), FakeHost("audit"))


def test_a_directory_that_cannot_be_written_to_is_not_ready(tmp_path):
    plugin = AuditPlugin()
    plugin.configure(AuditSettings(path=str(tmp_path / "missing" / "audit.log")), FakeHost("audit"))
    assert plugin.check()
