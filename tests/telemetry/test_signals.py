"""Who is told what, and what a listener may do to a job: nothing."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.worker.bench import Bench, Virtually
from tidemill import JobFailed as JobFailedError
from tidemill import Tidemill
from tidemill.errors import ConfigurationError
from tidemill.telemetry.events import (
    CATALOGUE,
    Event,
    JobDone,
    JobEvent,
    JobStarted,
    ListenerFailed,
    StoreBack,
    WorkerEvent,
)
from tidemill.telemetry.signals import Signals

BACK = StoreBack(worker="w", seconds=1.0)


def test_a_listener_hears_what_it_asked_for_a_family_or_everything() -> None:
    signals, one, family, all_ = Signals(), list[Event](), list[Event](), list[Event]()
    signals.subscribe(one.append, JobDone)
    signals.subscribe(family.append, WorkerEvent)
    signals.subscribe(all_.append)
    signals.emit(BACK)
    assert (one, family, all_) == ([], [BACK], [BACK])


def test_who_listens_twice_hears_once() -> None:
    signals, told = Signals(), list[Event]()
    signals.subscribe(told.append)
    signals.subscribe(told.append, StoreBack, WorkerEvent)
    signals.emit(BACK)
    assert told == [BACK]


def test_who_subscribes_again_hears_from_the_last_level_on() -> None:
    signals, told = Signals(), list[Event]()
    signals.subscribe(told.append, level="debug")
    signals.subscribe(told.append, level="error")
    signals.emit(BACK)
    assert told == []
    signals.subscribe(told.append, level="info")
    signals.emit(BACK)
    assert told == [BACK]


def test_whoever_subscribes_at_the_same_time_is_heard() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(50):
            signals, at_once = Signals(), threading.Barrier(8, timeout=60)
            told = [list[Event]() for _ in range(8)]
            threads = [threading.Thread(target=_subscribe, args=(signals, one, at_once)) for one in told]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            signals.emit(BACK)
            assert told == [[BACK]] * 8
    finally:
        sys.setswitchinterval(before)


def _subscribe(signals: Signals, told: list[Event], at_once: threading.Barrier) -> None:
    at_once.wait()
    signals.subscribe(told.append, StoreBack)


def test_nothing_is_wanted_that_nobody_listens_to() -> None:
    signals = Signals()
    assert not any(signals.wants(kind) for kind in CATALOGUE)
    signals.subscribe(print, JobEvent)
    assert signals.wants(JobDone)
    assert not signals.wants(StoreBack)
    signals.subscribe(print, StoreBack)
    assert signals.wants(StoreBack)


def test_an_application_at_its_usual_log_level_builds_no_event_per_job() -> None:
    signals = Tidemill("memory://").signals
    assert not signals.wants(JobStarted)
    assert not signals.wants(JobDone)
    assert signals.wants(StoreBack)


def test_a_listener_that_raises_is_told_once_and_the_others_still_hear() -> None:
    signals, told, failures = Signals(), list[Event](), list[ListenerFailed]()

    def broken(event: Event) -> None:
        raise SystemExit("out of here")

    signals.subscribe(broken)
    signals.subscribe(told.append, StoreBack)
    signals.subscribe(failures.append, ListenerFailed)
    for _ in range(3):
        signals.emit(BACK)
    assert told == [BACK] * 3
    [failure] = failures
    assert (failure.about, failure.error, failure.message) == ("StoreBack", "SystemExit", "out of here")
    assert failure.listener.endswith("broken")
    assert "in broken" in failure.traceback


class Unspeakable(Exception):
    def __init__(self, raised: type[BaseException]) -> None:
        self.raised = raised

    def __str__(self) -> str:
        raise self.raised


@pytest.mark.parametrize("raised", [RuntimeError, BaseException, KeyboardInterrupt, SystemExit])
def test_not_even_an_error_that_cannot_be_shown_gets_out_of_a_listener(raised: type[BaseException]) -> None:
    signals, failures = Signals(), list[ListenerFailed]()

    def broken(event: Event) -> None:
        raise Unspeakable(raised)

    signals.subscribe(broken, StoreBack)
    signals.subscribe(failures.append, ListenerFailed)
    signals.emit(BACK)
    assert [failure.error for failure in failures] == ["Unspeakable"]


def test_a_listener_that_raises_hurts_no_job(virtually: Virtually) -> None:
    async def noop() -> None: ...

    def broken(event: Event) -> None:
        raise RuntimeError("listener")

    async def scenario(bench: Bench) -> None:
        bench.task(noop)
        bench.signals.subscribe(broken)
        for _ in range(20):
            await bench.enqueue("noop")
        worker = await bench.run_until_idle()
        assert worker.stats.done == 20
        assert len(bench.told(ListenerFailed)) == 1

    virtually(scenario)


async def _async(event: Event) -> None: ...


class _Async:
    async def __call__(self, event: Event) -> None: ...


@pytest.mark.parametrize("listener", [_async, functools.partial(_async), _Async()])
def test_an_async_listener_is_refused(listener: Callable[..., Any]) -> None:
    with pytest.raises(ConfigurationError, match="is async"):
        Tidemill("memory://").on(JobDone)(listener)


@pytest.mark.parametrize("listener", [lambda: None, lambda event, more: None])
def test_a_listener_that_cannot_take_the_event_is_refused(listener: Callable[..., Any]) -> None:
    with pytest.raises(ConfigurationError, match="called with the event; take exactly one argument"):
        Tidemill("memory://").on(JobDone)(listener)


def test_a_function_in_place_of_an_event_is_told_where_events_go() -> None:
    with pytest.raises(
        ConfigurationError, match=r"events go into the parentheses, as `@app\.on\(JobFailed\)`"
    ):

        @Tidemill("memory://").on  # type: ignore[arg-type]
        def listener(event: Event) -> None: ...


@pytest.mark.parametrize("wrong", [JobFailedError, print, "JobFailed"])
def test_what_is_not_an_event_is_refused_and_the_remedy_named(wrong: Any) -> None:
    """`tidemill.JobFailed` is the error a caller of `result()` gets; the event is another."""
    with pytest.raises(ConfigurationError, match=r"is not an event; .*tidemill\.telemetry\.events"):
        Tidemill("memory://").on(wrong)


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="cannot be called"):
        Signals().subscribe("print")  # type: ignore[arg-type]


def test_on_leaves_the_function_as_it_was() -> None:
    app, told = Tidemill("memory://"), list[str]()

    @app.on(StoreBack)
    def hear(event: StoreBack) -> None:
        told.append(event.worker)

    app.signals.emit(BACK)
    hear(BACK)
    assert told == ["w", "w"]
