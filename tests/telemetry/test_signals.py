"""Listeners receive the events they subscribed to, and cannot affect jobs."""

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
    StoreRecovered,
    WorkerEvent,
)
from tidemill.telemetry.listeners import Signals

BACK = StoreRecovered(worker="w", seconds=1.0)


def test_a_listener_subscribes_to_an_event_a_base_class_or_all() -> None:
    signals, one, family, all_ = Signals(), list[Event](), list[Event](), list[Event]()
    signals.subscribe(one.append, JobDone)
    signals.subscribe(family.append, WorkerEvent)
    signals.subscribe(all_.append)
    signals.emit(BACK)
    assert (one, family, all_) == ([], [BACK], [BACK])


def test_a_listener_subscribed_twice_is_called_once() -> None:
    signals, events = Signals(), list[Event]()
    signals.subscribe(events.append)
    signals.subscribe(events.append, StoreRecovered, WorkerEvent)
    signals.emit(BACK)
    assert events == [BACK]


def test_a_new_subscription_of_a_listener_replaces_its_level() -> None:
    signals, events = Signals(), list[Event]()
    signals.subscribe(events.append, level="debug")
    signals.subscribe(events.append, level="error")
    signals.emit(BACK)
    assert events == []
    signals.subscribe(events.append, level="info")
    signals.emit(BACK)
    assert events == [BACK]


def test_concurrent_subscriptions_are_all_kept() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(50):
            signals, at_once = Signals(), threading.Barrier(8, timeout=60)
            received = [list[Event]() for _ in range(8)]
            threads = [threading.Thread(target=_subscribe, args=(signals, one, at_once)) for one in received]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            signals.emit(BACK)
            assert received == [[BACK]] * 8
    finally:
        sys.setswitchinterval(before)


def _subscribe(signals: Signals, received: list[Event], at_once: threading.Barrier) -> None:
    at_once.wait()
    signals.subscribe(received.append, StoreRecovered)


def test_an_event_without_listener_is_not_wanted() -> None:
    signals = Signals()
    assert not any(signals.wants(kind) for kind in CATALOGUE)
    signals.subscribe(print, JobEvent)
    assert signals.wants(JobDone)
    assert not signals.wants(StoreRecovered)
    signals.subscribe(print, StoreRecovered)
    assert signals.wants(StoreRecovered)


def test_an_application_at_its_usual_log_level_builds_no_event_per_job() -> None:
    signals = Tidemill("memory://").signals
    assert not signals.wants(JobStarted)
    assert not signals.wants(JobDone)
    assert signals.wants(StoreRecovered)


def test_a_raising_listener_is_reported_once_and_the_others_are_called() -> None:
    signals, events, failures = Signals(), list[Event](), list[ListenerFailed]()

    def broken(event: Event) -> None:
        raise SystemExit("out of here")

    signals.subscribe(broken)
    signals.subscribe(events.append, StoreRecovered)
    signals.subscribe(failures.append, ListenerFailed)
    for _ in range(3):
        signals.emit(BACK)
    assert events == [BACK] * 3
    [failure] = failures
    assert (failure.about, failure.error, failure.message) == ("StoreRecovered", "SystemExit", "out of here")
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

    signals.subscribe(broken, StoreRecovered)
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
        assert len(bench.events_of(ListenerFailed)) == 1

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


def test_app_on_without_parentheses_is_refused_with_an_example() -> None:
    with pytest.raises(
        ConfigurationError, match=r"events go into the parentheses, as `@app\.on\(JobFailed\)`"
    ):

        @Tidemill("memory://").on  # type: ignore[arg-type]
        def listener(event: Event) -> None: ...


@pytest.mark.parametrize("wrong", [JobFailedError, print, "JobFailed"])
def test_app_on_refuses_a_class_that_is_no_event(wrong: Any) -> None:
    """`tidemill.JobFailed` is the error that `result()` raises; the event is a different class."""
    with pytest.raises(ConfigurationError, match=r"is not an event; .*tidemill\.telemetry\.events"):
        Tidemill("memory://").on(wrong)


def test_a_listener_that_is_not_callable_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="cannot be called"):
        Signals().subscribe("print")  # type: ignore[arg-type]


def test_on_leaves_the_function_as_it_was() -> None:
    app, received = Tidemill("memory://"), list[str]()

    @app.on(StoreRecovered)
    def hear(event: StoreRecovered) -> None:
        received.append(event.worker)

    app.signals.emit(BACK)
    hear(BACK)
    assert received == ["w", "w"]
