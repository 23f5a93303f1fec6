from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from types import MappingProxyType
from typing import Any

import pytest

from prov_host import errors
from prov_host.about import what_about
from prov_host.clock import SystemClock
from prov_host.hookspecs import hookimpl
from prov_host.model import Claim, Note, Provisioned, ProvisionRequest, Record, Removed, Volume
from prov_host.plugins import Plugin
from prov_host.routing import Limits, Observers, PluginBackend
from prov_host.testing.clock import FakeClock

MakePlugin = Callable[..., Plugin]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def make_backend(make_plugin: MakePlugin, clock: FakeClock) -> Iterator[Callable[..., PluginBackend]]:
    made: list[PluginBackend] = []

    def make(target: Any, *others: Any, **limits: Any) -> PluginBackend:
        owner = make_plugin("owner", target)
        everyone = [owner, *(make_plugin(f"other{n}", other) for n, other in enumerate(others))]
        observers = Observers(everyone)
        made.append(PluginBackend(owner, everyone, observers=observers, clock=clock, limits=Limits(**limits)))
        return made[-1]

    yield make
    for backend in made:
        backend.close()


def answering(backend_class: Any, hook: str, answer: Any) -> Any:
    """A backend whose hook returns, raises or calls `answer`."""

    def run(self: object, *, given: Any) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer(given) if callable(answer) else answer

    if hook == "provision":
        body = hookimpl(lambda self, request: run(self, given=request))
    else:
        body = hookimpl(lambda self, volume: run(self, given=volume))
    body.__name__ = hook
    return type("Answering", (backend_class,), {hook: body})


async def test_an_operation_runs_the_owners_hook_and_nobody_elses(
    make_backend: Any, backend_class: Any, request_: ProvisionRequest, volume: Volume
) -> None:
    class Other(backend_class):  # type: ignore[misc]
        @hookimpl(tryfirst=True)
        def provision(self, request: ProvisionRequest) -> Provisioned:
            raise AssertionError("asked for a volume that is not its own")

        @hookimpl(tryfirst=True)
        def delete(self, volume: Volume) -> None:
            raise AssertionError("asked for a volume that is not its own")

    backend = make_backend(backend_class, Other)
    assert (await backend.provision(request_)).source == {"nfs": {"server": "s", "path": "/pvc-u-1"}}
    assert await backend.delete(volume) == Removed()


async def test_wrappers_of_other_plugins_run_around_the_operation(
    make_backend: Any, backend_class: Any, request_: ProvisionRequest, volume: Volume
) -> None:
    seen: list[str] = []

    class Wrapper:
        @hookimpl(wrapper=True)
        def provision(self, request: ProvisionRequest) -> Generator[None, Provisioned, Provisioned]:
            seen.append(f"before {request.pv_name}")
            made = yield
            seen.append("after")
            return Provisioned(source=made.source, labels={"audited": "yes"})

        @hookimpl(wrapper=True)
        def delete(self, volume: Volume) -> Generator[None, Any, Any]:
            raise errors.VolumeInUse("the quota guard says no")
            yield

    backend = make_backend(backend_class, Wrapper)
    assert (await backend.provision(request_)).labels == {"audited": "yes"}
    assert seen == ["before pvc-u-1", "after"]
    with pytest.raises(errors.VolumeInUse, match="quota guard"):
        await backend.delete(volume)


async def test_a_wrapper_can_refuse_before_the_owner_is_asked(
    make_backend: Any, backend_class: Any, request_: ProvisionRequest
) -> None:
    class Guard:
        @hookimpl(wrapper=True)
        def provision(self) -> Generator[None, Any, Any]:
            raise errors.ProvisionError("over budget")
            yield

    refuse = answering(backend_class, "provision", AssertionError("asked"))
    with pytest.raises(errors.ProvisionError, match="over budget"):
        await make_backend(refuse, Guard).provision(request_)


@pytest.mark.parametrize(
    "kind",
    [
        errors.ProvisionError,
        errors.Infeasible,
        errors.InBackground,
        errors.NoChange,
        errors.Reschedule,
        errors.Ignored,
    ],
)
async def test_an_outcome_of_provision_comes_out_as_it_is(
    make_backend: Any, backend_class: Any, request_: ProvisionRequest, kind: type[errors.Outcome]
) -> None:
    shared = type("Sub", (kind,), {})("why")
    backend = make_backend(answering(backend_class, "provision", shared))
    with pytest.raises(kind, match="why") as caught:
        await backend.provision(request_)
    assert type(caught.value) is kind
    assert caught.value is not shared


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "it returned nothing; it must return a prov_host.Provisioned"),
        ({"source": {}}, "it returned a dict"),
        (ValueError("odd"), "ValueError: odd"),
        (SystemExit(2), "SystemExit: 2"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (GeneratorExit(), "GeneratorExit"),
        (StopIteration(1), "StopIteration"),
        (errors.DeleteError("x"), "DeleteError: x"),
        (errors.ConfigurationError("x"), "ConfigurationError: x"),
        (lambda request: Provisioned(source={"nfs": {}}, capacity="1Gi"), "Expected `int | null`, got `str`"),  # type: ignore[arg-type]
        (lambda request: Provisioned(source={"nfs": {}}, notes=("x",)), "Expected `object`, got `str`"),  # type: ignore[arg-type]
        (lambda request: Provisioned(source={"nfs": object()}), "a value of type object is nothing"),
        (lambda request: Provisioned(source={"nfs": {}}, record={"size": 5}), "Expected `str`, got `int`"),  # type: ignore[dict-item]
        (lambda request: Provisioned(source=None), "Expected `object`, got `null`"),  # type: ignore[arg-type]
        (lambda request: Provisioned(source={1: {}}), "wrong"),  # type: ignore[dict-item]
    ],
)
async def test_a_broken_promise_of_provision_may_still_be_running(
    make_backend: Any, backend_class: Any, request_: ProvisionRequest, answer: Any, words: str
) -> None:
    backend = make_backend(answering(backend_class, "provision", answer))
    with pytest.raises(errors.InBackground) as caught:
        await backend.provision(request_)
    text = str(caught.value)
    assert text.startswith("plugin owner (owner-package 1.0): provision failed: ")
    assert words in text
    assert text.endswith("it may have made something, and will be asked again")


async def test_a_cycle_in_what_is_returned_is_survived(
    make_backend: Any, backend_class: Any, request_: ProvisionRequest
) -> None:
    loop: dict[str, Any] = {}
    loop["nfs"] = loop
    backend = make_backend(answering(backend_class, "provision", lambda request: Provisioned(source=loop)))
    with pytest.raises(errors.InBackground, match="is wrong"):
        await backend.provision(request_)


async def test_changing_the_input_changes_nothing(
    make_backend: Any, backend_class: Any, request_: ProvisionRequest, volume: Volume
) -> None:
    def vandal(request: ProvisionRequest) -> Provisioned:
        assert request.claim.metadata.labels is not None
        assert request.storage_class.parameters is not None
        request.claim.metadata.labels.clear()
        request.storage_class.parameters["a"] = "hacked"
        return Provisioned(source={"nfs": {}})

    await make_backend(answering(backend_class, "provision", vandal)).provision(request_)
    assert request_.claim.labels == {"app": "db"}
    assert request_.parameters == {"a": "b"}

    def spoil(volume: Volume) -> None:
        assert volume.metadata.annotations is not None
        volume.metadata.annotations.clear()

    await make_backend(answering(backend_class, "delete", spoil)).delete(volume)
    assert volume.annotations == {"x": "y"}


async def test_one_shared_object_returned_twice_is_two_objects(
    make_backend: Any, backend_class: Any, request_: ProvisionRequest
) -> None:
    shared = Provisioned(source={"nfs": {"server": "s"}}, notes=(Note("R", "m"),))
    backend = make_backend(answering(backend_class, "provision", shared))
    first, second = await backend.provision(request_), await backend.provision(request_)
    assert first == second == shared
    first.source["nfs"]["server"] = "changed"
    assert second.source["nfs"]["server"] == shared.source["nfs"]["server"] == "s"


async def test_any_mapping_will_do(make_backend: Any, backend_class: Any, request_: ProvisionRequest) -> None:
    source = MappingProxyType({"nfs": MappingProxyType({"server": "s"})})
    backend = make_backend(answering(backend_class, "provision", lambda request: Provisioned(source=source)))
    assert (await backend.provision(request_)).source == {"nfs": {"server": "s"}}


async def test_a_wrapper_that_fails_is_named_and_not_the_owner(
    make_plugin: MakePlugin, clock: FakeClock, backend_class: Any, request_: ProvisionRequest
) -> None:
    namespace: dict[str, Any] = {"__name__": "audit_package", "hookimpl": hookimpl}
    exec(
        "class Audit:\n"
        "    @hookimpl(wrapper=True)\n"
        "    def provision(self):\n"
        "        made = yield\n"
        "        raise KeyError('a bug of the audit')\n",
        namespace,
    )
    owner, audit = make_plugin("owner", backend_class), make_plugin("audit", namespace["Audit"])
    backend = PluginBackend(owner, [owner, audit], observers=Observers([]), clock=clock)
    with pytest.raises(errors.InBackground, match=r"plugin audit \(audit-package 1\.0\): provision failed: KeyError"):
        await backend.provision(request_)
    backend.close()


@pytest.mark.parametrize("kind", [errors.Ignored, errors.VolumeInUse, errors.DeleteError])
async def test_an_outcome_of_delete_comes_out_as_it_is(
    make_backend: Any, backend_class: Any, volume: Volume, kind: type[errors.Outcome]
) -> None:
    with pytest.raises(kind, match="why"):
        await make_backend(answering(backend_class, "delete", kind("why"))).delete(volume)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (True, "it returned a bool; it must return a prov_host.Removed or None"),
        (OSError(5, "Input/output error"), "Input/output error"),
        (SystemExit(), "SystemExit"),
        (errors.ProvisionError("odd"), "odd"),
        (errors.InBackground("odd"), "odd"),
    ],
)
async def test_anything_else_from_delete_is_a_delete_error(
    make_backend: Any, backend_class: Any, volume: Volume, answer: Any, words: str
) -> None:
    with pytest.raises(errors.DeleteError) as caught:
        await make_backend(answering(backend_class, "delete", answer)).delete(volume)
    assert words in str(caught.value)


async def test_archiving_without_the_hook_leaves_the_volume_alone(
    make_backend: Any, backend_class: Any, volume: Volume
) -> None:
    backend = make_backend(backend_class)
    assert not backend.supports_archive
    with pytest.raises(errors.DeleteError, match="cannot archive volumes; pvc-u-1 is left as it is"):
        await backend.archive(volume)


async def test_archive_runs_the_hook(make_backend: Any, backend_class: Any, volume: Volume) -> None:
    backend = make_backend(answering(backend_class, "archive", Removed(message="put aside")))
    assert backend.supports_archive
    assert (await backend.archive(volume)).message == "put aside"


async def test_the_smaller_limit_counts(
    make_backend: Any, backend_class: Any, request_: ProvisionRequest, clock: FakeClock
) -> None:
    import asyncio

    gate = threading.Event()
    backend = make_backend(answering(backend_class, "provision", lambda request: gate.wait()), provision=60)
    woken: list[str] = []
    backend.on_return(woken.append)
    for timeout, expected in ((5.0, "5 s"), (None, "still running")):
        call = asyncio.ensure_future(backend.provision(request_, timeout=timeout))
        await clock.run_until(call.done)
        with pytest.raises(errors.HookTimeout, match=expected):
            await call
    assert len(backend.late()) == 1
    gate.set()
    await clock.run_until(lambda: woken)
    assert woken == ["pvc-u-1"]


class Voter:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def _say(self) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    @hookimpl
    def should_provision(self, claim: Claim) -> Any:
        return self._say()

    @hookimpl
    def should_delete(self, volume: Volume) -> Any:
        return self._say()


@pytest.mark.parametrize(
    ("answers", "verdict"),
    [((), True), ((True,), True), ((True, False), False), ((False, True), False), ((errors.Ignored("x"),), False)],
)
async def test_all_plugins_must_agree(
    make_backend: Any,
    backend_class: Any,
    request_: ProvisionRequest,
    volume: Volume,
    *,
    answers: tuple[Any, ...],
    verdict: bool,
) -> None:
    backend = make_backend(backend_class, *(Voter(answer) for answer in answers))
    assert await backend.should_provision(request_.claim, request_.storage_class) is verdict
    assert await backend.should_delete(volume) is verdict


@pytest.mark.parametrize("answer", ["no", 1, ValueError("x"), SystemExit(), errors.InBackground("x")])
async def test_a_vote_that_fails_is_named(
    make_backend: Any, backend_class: Any, request_: ProvisionRequest, volume: Volume, answer: Any
) -> None:
    backend = make_backend(backend_class, Voter(True), Voter(answer))
    with pytest.raises(errors.ProvisionError):
        await backend.should_provision(request_.claim, request_.storage_class)
    with pytest.raises(errors.DeleteError) as caught:
        await backend.should_delete(volume)
    assert isinstance(answer, errors.Outcome) or "plugin other1 (other1-package 1.0): should_delete" in str(
        caught.value
    )


async def test_block_volumes_need_the_hook(make_backend: Any, backend_class: Any) -> None:
    assert await make_backend(backend_class).supports_block() is False

    def with_hook(answer: Any) -> Any:
        hook = hookimpl(lambda self: answer())
        hook.__name__ = "supports_block"
        return type("Block", (backend_class,), {"supports_block": hook})

    assert await make_backend(with_hook(lambda: True)).supports_block() is True
    with pytest.raises(errors.ProvisionError, match="must return True or False"):
        await make_backend(with_hook(lambda: "yes")).supports_block()
    with pytest.raises(errors.ProvisionError, match="ZeroDivisionError"):
        await make_backend(with_hook(lambda: 1 / 0)).supports_block()


RECORD = Record(
    operation="delete", plugin="owner", provisioner="p", outcome="ok", volume="pv", claim="default/data", class_name="c"
)


async def test_every_observer_is_told_whatever_the_others_do(make_plugin: MakePlugin) -> None:
    told = threading.Event()
    gate = threading.Event()

    class Broken:
        @hookimpl
        def observe(self, record: Record) -> None:
            raise SystemExit("bye")

    class Hanging:
        @hookimpl
        def observe(self, record: Record) -> None:
            gate.wait()

    class Good:
        @hookimpl
        def observe(self, record: Record) -> None:
            assert record == RECORD
            assert record is not RECORD
            assert what_about() == {"claim": "default/data", "class": "c", "volume": "pv", "provisioner": "p"}
            told.set()

    observers = Observers([make_plugin(kind.__name__, kind) for kind in (Broken, Hanging, Good)])
    observers.tell(RECORD)
    assert told.wait(5)
    gate.set()
    observers.close()


async def test_an_observer_that_does_not_keep_up_loses_records_and_they_are_counted(make_plugin: MakePlugin) -> None:
    gate = threading.Event()
    begun = threading.Event()

    class Slow:
        @hookimpl
        def observe(self, record: Record) -> None:
            begun.set()
            gate.wait()

    dropped: list[str] = []
    observers = Observers([make_plugin("slow", Slow)], size=2, dropped=dropped.append)
    observers.tell(RECORD)
    assert begun.wait(5)
    for _ in range(5):
        observers.tell(RECORD)
    gate.set()
    assert dropped == ["slow"] * 3


def test_an_observer_without_a_thread_is_told_later(
    make_plugin: MakePlugin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told = threading.Semaphore(0)

    class Watching:
        @hookimpl
        def observe(self, record: Record) -> None:
            told.release()

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def uncounted(record: Record) -> None:
        raise ValueError("no such metric")

    observers = Observers([make_plugin("watching", Watching)], also=uncounted)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        observers.tell(RECORD)
        observers.tell(RECORD)
    assert [record.levelname for record in caplog.records].count("WARNING") == 1
    assert "is told of operations later: could not start the thread" in caplog.text
    observers.tell(RECORD)
    for _ in range(3):
        assert told.acquire(timeout=5)
    observers.close()


async def test_operations_start_no_faster_than_the_rate_limit(
    make_plugin: MakePlugin, backend_class: Any, request_: ProvisionRequest
) -> None:
    import asyncio

    owner = make_plugin("owner", backend_class)
    clock = SystemClock()
    backend = PluginBackend(owner, [owner], observers=Observers([]), clock=clock, limits=Limits(qps=100.0, burst=1))
    begun = clock.monotonic()
    await asyncio.gather(*(backend.provision(request_) for _ in range(4)))
    backend.close()
    assert clock.monotonic() - begun >= 0.03


def _wrapping(hook: str, before: Any = None, after: Any = None) -> Any:
    """A wrapper that raises `before` the owner is asked, or lets `after` answer for what came of asking it."""

    def run() -> Generator[None, Any, Any]:
        if before is not None:
            raise before
        answer: Any = None
        try:
            answer = yield
        except BaseException as error:
            if after is None:
                raise
            answer = error
        return after(answer) if after else answer

    run.__name__ = hook
    body = hookimpl(wrapper=True)(lambda self: (yield from run()))
    return type("Wrapping", (), {hook: body})


def _raising(error: BaseException) -> Callable[[Any], Any]:
    def after(answer: Any) -> Any:
        raise error

    return after


FINAL = [errors.ProvisionError, errors.Infeasible, errors.Reschedule, errors.Ignored]


@pytest.mark.parametrize("kind", FINAL)
async def test_a_wrapper_that_refuses_before_the_owner_was_asked_does_not_speak_for_it(
    make_backend: Any, backend_class: Any, request_: ProvisionRequest, kind: type[errors.Outcome]
) -> None:
    with pytest.raises(kind, match="no budget") as caught:
        await make_backend(backend_class, _wrapping("provision", kind("no budget"))).provision(request_)
    assert not caught.value.owner_asked
    with pytest.raises(kind, match="full") as caught:
        await make_backend(answering(backend_class, "provision", kind("full"))).provision(request_)
    assert caught.value.owner_asked


@pytest.mark.parametrize("kind", [*FINAL, errors.NoChange])
async def test_what_a_wrapper_raises_after_the_asset_was_made_is_not_final(
    make_backend: Any, backend_class: Any, request_: ProvisionRequest, kind: type[errors.Outcome]
) -> None:
    wrapper = _wrapping("provision", after=_raising(kind("no audit line")))
    with pytest.raises(errors.InBackground, match=r"no audit line \(its asset was made"):
        await make_backend(backend_class, wrapper).provision(request_)


@pytest.mark.parametrize("said", [errors.InBackground("copying"), OSError("copying"), errors.NoChange("copying")])
@pytest.mark.parametrize("kind", FINAL)
async def test_a_wrapper_cannot_make_final_what_the_owner_left_open(
    make_backend: Any, backend_class: Any, request_: ProvisionRequest, said: Exception, kind: type[errors.Outcome]
) -> None:
    backend = make_backend(
        answering(backend_class, "provision", said), _wrapping("provision", after=_raising(kind("sorry")))
    )
    with pytest.raises((errors.InBackground, errors.NoChange), match="copying") as caught:
        await backend.provision(request_)
    assert isinstance(caught.value, errors.NoChange) == isinstance(said, errors.NoChange)


async def test_a_wrapper_may_say_it_in_other_words_or_keep_it_open(
    make_backend: Any, backend_class: Any, request_: ProvisionRequest
) -> None:
    refusing = answering(backend_class, "provision", errors.ProvisionError("ENOSPC"))
    for kind in (errors.Infeasible, errors.InBackground):
        backend = make_backend(refusing, _wrapping("provision", after=_raising(kind("buy a disk"))))
        with pytest.raises(kind, match="buy a disk"):
            await backend.provision(request_)
    copying = answering(backend_class, "provision", errors.InBackground("copying"))
    wrapper = _wrapping("provision", after=_raising(errors.InBackground("copying 3 TB, be patient")))
    with pytest.raises(errors.InBackground, match="be patient"):
        await make_backend(copying, wrapper).provision(request_)


@pytest.mark.parametrize("hook", ["delete", "archive"])
@pytest.mark.parametrize("after", [lambda answer: None, _raising(errors.Ignored("never mind"))])
async def test_a_failed_removal_is_no_success_because_a_wrapper_swallows_it(
    make_backend: Any, backend_class: Any, volume: Volume, hook: str, after: Any
) -> None:
    for said in (errors.DeleteError("not mounted"), OSError("not mounted")):
        backend = make_backend(answering(backend_class, hook, said), _wrapping(hook, after=after))
        with pytest.raises(errors.DeleteError, match="not mounted"):
            await getattr(backend, hook)(volume)


async def test_a_wrapper_may_vouch_for_a_removal_in_so_many_words(
    make_backend: Any, backend_class: Any, volume: Volume
) -> None:
    failing = answering(backend_class, "delete", errors.DeleteError("not mounted"))
    vouching = _wrapping("delete", after=lambda answer: Removed(message="put into the archive of the site"))
    assert (await make_backend(failing, vouching).delete(volume)).message == "put into the archive of the site"


async def test_a_removal_of_which_the_owner_never_heard_is_not_done(
    make_backend: Any, backend_class: Any, volume: Volume
) -> None:
    refusing = _wrapping("delete", errors.DeleteError("not now"))
    swallowing = _wrapping("delete", after=lambda answer: None)
    with pytest.raises(errors.DeleteError, match=r"delete of plugin owner .* was not asked"):
        await make_backend(backend_class, refusing, swallowing).delete(volume)


async def test_what_the_owner_ignores_stays_ignored(make_backend: Any, backend_class: Any, volume: Volume) -> None:
    ignoring = answering(backend_class, "delete", errors.Ignored("not mine"))
    with pytest.raises(errors.Ignored, match="not mine"):
        await make_backend(ignoring, _wrapping("delete", after=lambda answer: None)).delete(volume)
