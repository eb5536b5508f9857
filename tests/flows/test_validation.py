"""A flow that could never run is refused when it is built, naming the step (V10)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.flows.support import Studio
from tidemill import (
    ConfigurationError,
    Flow,
    InvalidPayload,
    PayloadTooLarge,
    Tidemill,
    TidemillError,
    Unique,
    unmapped,
)
from tidemill.core.flow_graph import FanOut, OnFailure
from tidemill.testing.kit import AsyncKit

Builds = Callable[[Flow, Studio], object]


def two(flow: Flow, studio: Studio) -> None:
    first = flow.add(studio.notify)
    second = flow.add(studio.notify).after(first)
    first.after(second)


def of_another(flow: Flow, studio: Studio) -> None:
    other = Flow(studio.extract.client, "other")
    flow.add(studio.transcribe, audio=other.add(studio.extract, video="v"))


REFUSED: list[tuple[Builds, type[TidemillError], str]] = [
    (two, ConfigurationError, "step 'notify.*wait for itself"),
    (of_another, ConfigurationError, "step 'transcribe': audio: step 'extract' is of another flow, 'other'"),
    (lambda f, s: f.add(print), ConfigurationError, "print.* is no task"),  # type: ignore[arg-type]
    (lambda f, s: f.add(s.transcribe), InvalidPayload, "step 'transcribe': missing.*'audio'"),
    (
        lambda f, s: f.add(s.extract, video=7),
        InvalidPayload,
        "step 'extract': Expected `str`, got `int` - at `video`",
    ),
    (lambda f, s: f.add(s.extract, "v", film="v"), InvalidPayload, "step 'extract': .*film"),
    (
        lambda f, s: f.add(s.transcribe, audio=f.add(s.notify)),
        ConfigurationError,
        "step 'transcribe': argument 'audio' is the result of step 'notify'.*returns None",
    ),
    (
        lambda f, s: f.map(s.speak, line=f.add(s.extract, video="v")),
        ConfigurationError,
        "step 'speak': argument 'line' is mapped over .* 'extract', whose task returns str: that is no list",
    ),
    (
        lambda f, s: f.map(s.speak, line="abc"),
        InvalidPayload,
        r"step 'speak': flow.map maps one argument.*0 \(none\)",
    ),
    (
        lambda f, s: f.map(s.speak, line=f.add(s.transcribe, audio="a"), voice=f.add(s.extract, video="v")),
        InvalidPayload,
        r"2 \(line, voice\).*unmapped",
    ),
    (lambda f, s: f.map(s.speak, line=["a", 7]), InvalidPayload, "step 'speak': element 1: .*line"),
    (
        lambda f, s: f.add(s.mux, video="v", speech=[f.add(s.extract, video="v")]),
        ConfigurationError,
        "step 'mux': argument 'speech': holds a step inside",
    ),
    (
        lambda f, s: f.add(s.extract.using(unique=Unique("x")), video="v"),
        ConfigurationError,
        "step 'extract': unique: a step cannot have it",
    ),
    (
        lambda f, s: f.add(s.extract.using(id="x"), video="v"),
        ConfigurationError,
        "step 'extract': id: a step cannot have it",
    ),
    (
        lambda f, s: f.add(s.extract.using(connection=object()), video="v"),
        ConfigurationError,
        "step 'extract': connection: a step cannot have it",
    ),
    (
        lambda f, s: f.add(Studio(Tidemill("memory://")).extract, video="v"),
        ConfigurationError,
        "step 'extract': the task .* is of another application",
    ),
    (
        lambda f, s: f.add(s.extract, video="v").on_failure(compensate=s.notify),  # type: ignore[arg-type]
        ConfigurationError,
        "step 'extract': on_failure: the task .* must take one argument, a StepFailure",
    ),
    (
        lambda f, s: f.add(s.extract, video="v").on_failure("ignore"),  # type: ignore[call-overload]
        ConfigurationError,
        'step \'extract\': on_failure: must be "fail", "continue"',
    ),
    (lambda f, s: f.add(s.notify).named("a/b"), ConfigurationError, "step 'notify': name: .*slash"),
    (
        lambda f, s: (f.add(s.notify).named("x"), f.add(s.notify).named("x")),
        ConfigurationError,
        "another step is called 'x'",
    ),
    (lambda f, s: f.add(s.notify).after("x"), ConfigurationError, "step 'notify': after: must be a step"),  # type: ignore[arg-type]
    (lambda f, s: f.add(s.extract, video="v" * 2**20), PayloadTooLarge, "step 'extract': .*1048576"),
]


@pytest.mark.parametrize(("build", "kind", "words"), REFUSED)
def test_refused(app: Tidemill, studio: Studio, build: Builds, kind: type[TidemillError], words: str) -> None:
    with pytest.raises(kind, match=words):
        build(app.flow("dub"), studio)


def test_a_refused_cycle_is_not_added(app: Tidemill, studio: Studio) -> None:
    flow = app.flow("dub")
    first = flow.add(studio.transcribe, audio="a")
    speech = flow.map(studio.speak, line=first)
    with pytest.raises(ConfigurationError, match=r"\((transcribe|speak) after .*\)"):
        first.after(flow.add(studio.notify), speech)
    assert (first.parents, speech.parents) == ((), (first,))
    flow.check()


def test_a_task_without_a_return_type_is_refused(app: Tidemill, studio: Studio) -> None:
    @app.task
    async def silent(video: str):  # type: ignore[no-untyped-def]
        return video

    flow = app.flow("dub")
    with pytest.raises(
        ConfigurationError, match=r"step 'transcribe': .*'silent', whose task .* does not say"
    ):
        flow.add(studio.transcribe, audio=flow.add(silent, video="v"))


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("a/b", {}, "name: must not hold a slash"),
        ("", {}, "name: must have 1 to 200"),
        ("dub", {"key": ""}, "key: must not be empty"),
        ("dub", {"key": 7}, "key: must be a string, is 7"),
        ("dub", {"key": "x" * 200}, "key: must have 1 to 200 characters, has 204"),
        ("dub", {"priority": 1.5}, "priority: must be a whole number"),
        ("dub", {"priority": 99_999}, "priority: must lie between"),
        ("dub", {"timeout": 0}, "timeout: must be a number of seconds above 0"),
        ("dub", {"keep": -1}, "keep: must be a number of seconds 0 or more"),
    ],
)
def test_invalid_flows_are_refused(app: Tidemill, name: str, options: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        app.flow(name, **options)


async def test_ids_that_are_too_long_are_refused(app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
    flow = app.flow("dub", key="x" * 190)
    flow.add(studio.notify)
    with pytest.raises(ConfigurationError, match="step 'notify': the ids of its jobs would have 20"):
        await flow.enqueue()


async def test_a_flow_without_steps(app: Tidemill, kit: AsyncKit) -> None:
    with pytest.raises(ConfigurationError, match="at least one step"):
        await app.flow("dub").enqueue()
    assert await app.store.counts() == {}


@pytest.mark.parametrize(
    "change",
    [
        lambda flow, step, studio: flow.add(studio.notify),
        lambda flow, step, studio: flow.map(studio.extract, video=["v"]),
        lambda flow, step, studio: step.after(),
        lambda flow, step, studio: step.named("x"),
        lambda flow, step, studio: step.on_failure("continue"),
    ],
)
async def test_a_sent_flow_cannot_be_changed(
    app: Tidemill, studio: Studio, kit: AsyncKit, change: Callable[..., object]
) -> None:
    flow = app.flow("dub")
    step = flow.add(studio.notify)
    await flow.enqueue()
    with pytest.raises(ConfigurationError, match=r"flow 'dub': was sent.*begin another"):
        change(flow, step, studio)
    await flow.enqueue()


def test_names_and_options_of_steps(app: Tidemill, studio: Studio) -> None:
    flow = app.flow("dub", key="v", priority=3, timeout=timedelta(minutes=1))
    first = flow.add(studio.extract, "v")
    second = flow.add(studio.extract.using(delay=5, cost=None), "w")
    speech = flow.map(studio.speak, line=["a"], voice=unmapped(second)).named("voices").on_failure("continue")
    assert [step.name for step in flow.steps] == ["extract", "extract-2", "voices"]
    node = speech.after(first).node()
    assert node.fan_out == FanOut(argument="line", items=node.fan_out.items if node.fan_out else ())
    assert (node.reads, node.after, node.on_failure) == (
        {"voice": "extract-2"},
        ("extract",),
        OnFailure.CONTINUE,
    )
    assert (second.node().work.delay, second.node().work.priority) == (5, 3)
    assert repr(flow) == "<Flow dub/v with 3 steps>"


def test_without_a_loop(app: Tidemill, studio: Studio) -> None:
    flow = app.flow("dub", key="v")
    flow.add(studio.extract, video="v")
    handle = flow.enqueue_sync()
    try:
        assert not handle.existing
        assert handle.status_sync().state == "running"
        assert handle.cancel_sync()
        assert handle.retry_sync()
    finally:
        app.close_sync()
