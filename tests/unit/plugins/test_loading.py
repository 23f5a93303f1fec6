from __future__ import annotations

import importlib
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import prov_host
from prov_host.errors import ConfigurationError
from prov_host.hookspecs import hookimpl
from prov_host.plugins import ALL, Candidate, Plugin, Plugins, configure, discover, load
from prov_host.testing.context import FakeHost

MakeCandidate = Callable[..., Candidate]


@pytest.fixture
def good(make_candidate: MakeCandidate, backend_class: Any) -> Candidate:
    return make_candidate("good", backend_class)


def problem(plugins: Plugins, name: str) -> str:
    (failure,) = [failure for failure in plugins.failures if failure.name == name]
    return failure.problem


def configured(plugins: Plugins, settings: Callable[..., Any] = lambda plugin, kind: None, **options: Any) -> Plugins:
    return configure(plugins.working, settings, lambda plugin: FakeHost(plugin.name), **options)


def test_the_built_in_plugins_are_found_like_anyones() -> None:
    found = {candidate.name: candidate for candidate in discover()}
    assert {"nfs_subdir", "hostpath"} <= set(found)
    assert found["nfs_subdir"].distribution == "prov-host"
    assert found["nfs_subdir"].value == "prov_host_nfs_subdir:NfsSubdirPlugin"


def test_only_selected_plugins_are_imported(good: Candidate, make_candidate: MakeCandidate) -> None:
    imported: list[str] = []
    other = Candidate("other", "other", "1", "other:P", lambda: imported.append("other"))
    loaded = load(["good"], [good, other])
    assert [plugin.name for plugin in loaded.working] == ["good"]
    assert imported == []


def test_plugins_are_loaded_one_at_a_time_sorted_by_name(make_candidate: MakeCandidate, backend_class: Any) -> None:
    order: list[str] = []

    def importing(name: str) -> Candidate:
        def do() -> Any:
            order.append(name)
            return backend_class

        return Candidate(name, name, "1", "x:y", do)

    load([ALL], [importing("c"), importing("a"), importing("b")])
    assert order == ["a", "b", "c"]


def test_a_class_is_instantiated_and_a_module_used_as_it_is(make_candidate: MakeCandidate, backend_class: Any) -> None:
    module = types.ModuleType("auditor")
    module.observe = hookimpl(lambda record: None)  # type: ignore[attr-defined]
    module.observe.__name__ = "observe"
    loaded = load(["a", "b"], [make_candidate("a", backend_class), make_candidate("b", module)])
    assert loaded.failures == ()
    a, b = loaded.working
    assert isinstance(a.instance, backend_class)
    assert b.instance is module
    assert a.hooks == ("delete", "provision", "provisioners")
    assert not b.is_backend


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ImportError("No module named 'boto3'"), "ImportError: No module named 'boto3'"),
        (SyntaxError("invalid syntax", ("/x/plugin.py", 3, 1, "def")), "SyntaxError: invalid syntax (/x/plugin.py, li"),
        (SystemExit(1), "import raised SystemExit: 1"),
        (KeyboardInterrupt(), "import raised KeyboardInterrupt"),
        (RecursionError("deep"), "RecursionError: deep"),
    ],
)
def test_a_plugin_that_fails_to_import_is_named_and_leaves_the_others_working(
    good: Candidate, make_candidate: MakeCandidate, error: BaseException, cause: str
) -> None:
    loaded = load([ALL], [good, make_candidate("bad", error, distribution="bad-dist", version="2.1")])
    assert [plugin.name for plugin in loaded.working] == ["good"]
    assert problem(loaded, "bad").startswith(f"plugin bad (bad-dist 2.1) cannot be loaded: {cause}")
    loaded.raise_if_asked()


def test_a_broken_plugin_that_was_asked_for_stops_the_start(good: Candidate, make_candidate: MakeCandidate) -> None:
    loaded = load(["good", "bad"], [good, make_candidate("bad", ImportError("gone"))])
    with pytest.raises(ConfigurationError, match=r"plugin bad .* cannot be loaded: ImportError: gone"):
        loaded.raise_if_asked()


def test_a_hanging_import_is_given_up(good: Candidate) -> None:
    gate = threading.Event()
    slow = Candidate("slow", "slow-dist", "1", "slow:P", gate.wait)
    loaded = load(["good", "slow"], [good, slow], limit=0.05)
    gate.set()
    assert [plugin.name for plugin in loaded.working] == ["good"]
    assert "plugin slow (slow-dist 1) cannot be loaded: import has not returned within 0.05 s" in problem(
        loaded, "slow"
    )


def test_a_wrong_signature_is_refused_with_the_right_one(good: Candidate, make_candidate: MakeCandidate) -> None:
    class Wrong:
        @hookimpl
        def check(self) -> None: ...

        @hookimpl
        def observe(self, recrod: object) -> None: ...

    loaded = load(["wrong"], [good, make_candidate("wrong", Wrong)])
    text = problem(loaded, "wrong")
    assert "hook 'observe'" in text
    assert "recrod" in text
    assert text.endswith("the arguments of observe are: record")


def test_an_unknown_hook_is_refused_with_a_suggestion(make_candidate: MakeCandidate) -> None:
    class Typo:
        @hookimpl
        def shuold_delete(self, volume: object) -> bool:
            return True

    assert "shuold_delete is not a hook; did you mean should_delete?" in problem(
        load(["typo"], [make_candidate("typo", Typo)]), "typo"
    )


def test_a_plugin_without_any_marked_hook_is_refused_with_a_hint(make_candidate: MakeCandidate) -> None:
    class Unmarked:
        def provision(self, request: object) -> None: ...

        def delete(self, volume: object) -> None: ...

    text = problem(load(["u"], [make_candidate("u", Unmarked)]), "u")
    assert "u:Plugin implements no hook; mark provision, delete with @prov_host.hookimpl" in text


def test_half_a_backend_is_refused(make_candidate: MakeCandidate) -> None:
    class Half:
        @hookimpl
        def provision(self, request: object) -> None: ...

        def delete(self, volume: object) -> None: ...

    text = problem(load(["half"], [make_candidate("half", Half)]), "half")
    assert "this one lacks provisioners, delete (delete is there but not marked with @prov_host.hookimpl)" in text


def test_an_async_hook_is_refused(make_candidate: MakeCandidate) -> None:
    class Async:
        @hookimpl
        async def check(self) -> None: ...

    assert "check is an async function" in problem(load(["a"], [make_candidate("a", Async)]), "a")


def test_a_generator_that_is_no_wrapper_is_refused(make_candidate: MakeCandidate, backend_class: Any) -> None:
    class Generator(backend_class):  # type: ignore[misc]
        @hookimpl
        def archive(self, volume: object) -> Iterator[None]:
            yield

    text = problem(load(["g"], [make_candidate("g", Generator)]), "g")
    assert "archive is a generator; return the answer, or mark it hookimpl(wrapper=True)" in text


@pytest.mark.parametrize(
    ("version", "cause"),
    [
        (99, "written for API 99, this prov-host offers 1: upgrade prov-host"),
        (0, "written for API 0, this prov-host offers 1: upgrade the plugin"),
        ("1", "PROV_HOST_API is '1'; it must be a number"),
    ],
)
def test_another_api_version_is_refused(
    make_candidate: MakeCandidate, backend_class: Any, version: object, cause: str
) -> None:
    other = type("Other", (backend_class,), {"PROV_HOST_API": version})
    assert cause in problem(load(["o"], [make_candidate("o", other)]), "o")


def test_this_api_version_is_accepted(make_candidate: MakeCandidate, backend_class: Any) -> None:
    same = type("Same", (backend_class,), {"PROV_HOST_API": prov_host.API_VERSION})
    assert load(["s"], [make_candidate("s", same)]).failures == ()


def test_one_name_from_two_distributions_is_an_error_that_names_both(
    make_candidate: MakeCandidate, backend_class: Any, good: Candidate
) -> None:
    rivals = [make_candidate("twin", backend_class, distribution=name) for name in ("dist-a", "dist-b")]
    loaded = load([ALL], [good, *rivals])
    assert [plugin.name for plugin in loaded.working] == ["good"]
    assert "dist-a 1.0 (twin:Plugin) and dist-b 1.0 (twin:Plugin)" in problem(loaded, "twin")
    with pytest.raises(ConfigurationError, match="more than one distribution"):
        load(["twin"], rivals).raise_if_asked()


def test_a_mistyped_plugin_name_gets_a_suggestion(good: Candidate) -> None:
    loaded = load(["god"], [good])
    with pytest.raises(ConfigurationError, match=r"plugin god is not installed; did you mean good\? \(installed: good"):
        loaded.raise_if_asked()


def test_a_plugin_whose_constructor_fails_is_named(make_candidate: MakeCandidate) -> None:
    class NeedsArguments:
        def __init__(self, root: str) -> None: ...

    assert "TypeError" in problem(load(["n"], [make_candidate("n", NeedsArguments)]), "n")


def test_an_exception_without_readable_text_is_survived(make_candidate: MakeCandidate) -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert "its text could not be read" in problem(load(["n"], [make_candidate("n", Unspeakable())]), "n")


def test_a_broken_installed_package_is_reported_with_its_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "brk_plugin.py").write_text("def provision(:\n")
    info = tmp_path / "brk_plugin-0.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: brk-plugin\nVersion: 0.3\n")
    (info / "entry_points.txt").write_text("[prov_host]\nbrk = brk_plugin:Plugin\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    loaded = load(["brk"])
    text = problem(loaded, "brk")
    assert text.startswith("plugin brk (brk-plugin 0.3) cannot be loaded: SyntaxError:")
    assert "brk_plugin.py, line 1" in text


class Settings(msgspec.Struct):
    root: str


def test_configure_gives_settings_and_learns_the_names(make_candidate: MakeCandidate, backend_class: Any) -> None:
    got: list[Any] = []

    class Configured(backend_class):  # type: ignore[misc]
        @hookimpl
        def settings_type(self) -> type[Settings]:
            return Settings

        @hookimpl
        def configure(self, settings: Settings, host: prov_host.HostContext) -> None:
            got.extend([settings, host.plugin])

        @hookimpl
        def archive(self, volume: object) -> None: ...

    done = configured(load(["c"], [make_candidate("c", Configured)]), lambda plugin, kind: kind(root=plugin.name))
    assert done.failures == ()
    assert got == [Settings(root="c"), "c"]
    assert done.working[0].provisioners == ("test.org/backend",)
    assert done.working[0].default_policy == "archive"


def test_all_problems_of_all_plugins_are_known_at_once(make_candidate: MakeCandidate, backend_class: Any) -> None:
    class Picky(backend_class):  # type: ignore[misc]
        @hookimpl
        def configure(self, settings: object) -> None:
            raise ConfigurationError("mount is missing: set it", "server is missing: set it")

    class Typed(backend_class):  # type: ignore[misc]
        names = ("test.org/other",)

        @hookimpl
        def settings_type(self) -> type[Settings]:
            return Settings

    def read(plugin: Plugin, kind: type[Any] | None) -> None:
        if kind:
            raise ConfigurationError("root is required")

    done = configured(load(["p", "t"], [make_candidate("p", Picky), make_candidate("t", Typed)]), read)
    with pytest.raises(ConfigurationError) as caught:
        done.raise_if_asked()
    assert sorted(caught.value.problems) == [
        "plugin p (p-package 1.0): mount is missing: set it",
        "plugin p (p-package 1.0): server is missing: set it",
        "plugin t (t-package 1.0): root is required",
    ]


def test_a_slow_configure_is_given_up_and_leaves_the_others_working(
    make_candidate: MakeCandidate, backend_class: Any, good: Candidate
) -> None:
    gate = threading.Event()

    class Slow(backend_class):  # type: ignore[misc]
        @hookimpl
        def configure(self) -> None:
            gate.wait()

    done = configured(load([ALL], [good, make_candidate("slow", Slow)]), limit=0.05)
    gate.set()
    assert [plugin.name for plugin in done.working] == ["good"]
    assert "configure has not returned within 0.05 s" in problem(done, "slow")


@pytest.mark.parametrize("names", ["test.org/x", [], [1], None, ["a", "a"], [""]])
def test_wrong_provisioner_names_are_refused(make_candidate: MakeCandidate, backend_class: Any, names: object) -> None:
    wrong = type("Wrong", (backend_class,), {"names": names})
    assert "provisioners returned" in problem(configured(load(["w"], [make_candidate("w", wrong)])), "w")


@pytest.mark.parametrize(
    "name",
    [
        "bad name",
        "a/b/c",
        "/a",
        "a/",
        "-a",
        "a-",
        "ä/b",
        "a..b/c",
        "x" * 64,
        "a/" + "x" * 64,
        "x" * 254 + "/a",
        "a\n",
        "_/a",
    ],
)
def test_a_name_that_no_class_can_have_is_refused(make_candidate: MakeCandidate, backend_class: Any, name: str) -> None:
    wrong = type("Wrong", (backend_class,), {"names": [name]})
    words = problem(configured(load(["w"], [make_candidate("w", wrong)])), "w")
    assert "is none that a StorageClass can have: write it like example.com/nfs" in words


@pytest.mark.parametrize(
    "name", ["nfs", "example.com/nfs", "Example.com/NFS_1.x", "fuseim.pri/ifs", "x" * 63, "a/" + "x" * 63]
)
def test_a_name_that_a_class_can_have_is_taken(make_candidate: MakeCandidate, backend_class: Any, name: str) -> None:
    fine = type("Fine", (backend_class,), {"names": [name]})
    assert configured(load(["w"], [make_candidate("w", fine)])).working[0].provisioners == (name,)


@pytest.mark.parametrize(("policy", "cause"), [("shred", "must be one of"), ("archive", "has no archive hook")])
def test_a_wrong_default_policy_is_refused(
    make_candidate: MakeCandidate, backend_class: Any, policy: str, cause: str
) -> None:
    wrong = type("Wrong", (backend_class,), {"default_policy": hookimpl(lambda self: policy)})
    wrong.default_policy.__name__ = "default_policy"  # type: ignore[attr-defined]
    assert cause in problem(configured(load(["w"], [make_candidate("w", wrong)])), "w")


@pytest.mark.parametrize(
    ("asked", "working", "stops"),
    [(["a", "b"], [], True), ([ALL, "a"], ["a"], False), ([ALL], [], False)],
)
def test_a_provisioner_name_has_one_owner(
    make_candidate: MakeCandidate, backend_class: Any, asked: list[str], working: list[str], stops: bool
) -> None:
    rivals = [make_candidate(name, backend_class, distribution=f"dist-{name}") for name in "ab"]
    done = configured(load(asked, rivals))
    assert [plugin.name for plugin in done.working] == working
    (failure,) = done.failures
    assert "test.org/backend is owned by plugin a (dist-a 1.0) and by plugin b (dist-b 1.0)" in failure.problem
    assert failure.asked == stops
