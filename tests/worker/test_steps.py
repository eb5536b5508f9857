"""Steps of a handler: called once per job on every runner, and their failures."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import pytest

from tests.worker.bench import Bench, Virtually
from tests.worker.fake_provider import Refused
from tidemill.clock import SystemClock
from tidemill.core.checkpoints import OnUnknown, StepAttempt, StepKey, StepStart
from tidemill.core.filters import Filter
from tidemill.core.operator_changes import CancelJobs
from tidemill.core.outcomes import WriteAnswer
from tidemill.core.retry import Retry
from tidemill.core.states import State
from tidemill.errors import StoreUnavailable
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.context import Context
from tidemill.telemetry.events import CheckpointReused, CheckpointSaved, StepOutcomeUnknown
from tidemill.testing.clocks import SeededEntropy

T = TypeVar("T")
SOON = Retry(attempts=4, first=1, factor=1, jitter=0)


class Calls:
    """A paid function that records its calls; `then` decides the result of each call."""

    def __init__(self, *then: Exception | None) -> None:
        self.made: list[Any] = []
        self._then = list(then)

    def __call__(self, number: int) -> int:
        self.made.append(number)
        if self._then and (error := self._then.pop(0)) is not None:
            raise error
        return number + 1


def test_a_step_is_called_once_for_its_job(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        ask, look = Calls(), Calls()

        async def work(ctx: Context) -> list[int]:
            found = [
                await ctx.step("ask", ask, 1, paid=True),
                await ctx.step("ask", ask, 2, paid=True),
                await ctx.step("look", look, 1),
                await ctx.step("look", look, number=2),
            ]
            if ctx.attempt < 3:
                raise ValueError("again")
            return found

        bench.task(work, retry=SOON)
        job = await bench.enqueue("work")
        bench.start(bench.worker())
        await bench.ended(job)
        assert (await bench.job(job)).result == b"[2,3,2,3]"
        assert (ask.made, look.made) == ([1, 2], [1, 2])
        assert [(event.step, event.paid) for event in bench.events_of(CheckpointSaved)] == [
            *[("ask", True)] * 2,
            *[("look", False)] * 2,
        ]
        assert len(bench.events_of(CheckpointReused)) == 8
        assert [mark.unknown for mark in await bench.store.checkpoints(job)] == [0] * 4

    virtually(scenario)


@pytest.mark.parametrize("on_unknown", ["retry", "park"])
@pytest.mark.parametrize(
    ("error", "known"),
    [
        (Refused(429, {"retry-after": "1"}), True),
        (Refused(400), True),
        (Refused(500), True),
        (ConnectionRefusedError("nobody listens"), True),
        (Refused(504), False),
        (ConnectionResetError("cut"), False),
        (TimeoutError(), False),
        (KeyError("in my own code"), False),
    ],
    ids=repr,
)
def test_k4_calls_known_to_be_unpaid_are_repeated(
    virtually: Virtually, error: Exception, known: bool, on_unknown: OnUnknown
) -> None:
    async def scenario(bench: Bench) -> None:
        ask = Calls(error)

        async def work(ctx: Context) -> int:
            return await ctx.step("ask", ask, 1, paid=True, on_unknown=on_unknown)

        bench.task(work, retry=SOON)
        job = await bench.enqueue("work")
        bench.start(bench.worker())
        await bench.ended(job)
        ended = await bench.job(job)
        if known or on_unknown == "retry":
            assert (ended.state, len(ask.made)) == (State.DONE, 2)
        else:
            assert (ended.state, ended.reason, len(ask.made)) == (State.FAILED, "unknown outcome", 1)
        assert bool(bench.events_of(StepOutcomeUnknown)) is not known

    virtually(scenario)


def test_a_clients_own_earlier_try_may_have_been_paid_for(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        refused = Refused(429)
        refused.retries_taken = 1  # type: ignore[attr-defined]  # as client libraries say it
        ask = Calls(refused)

        async def work(ctx: Context) -> int:
            return await ctx.step("ask", ask, 1, paid=True, on_unknown="park")

        bench.task(work, retry=SOON)
        job = await bench.enqueue("work")
        bench.start(bench.worker())
        await bench.ended(job)
        assert (await bench.job(job)).reason == "unknown outcome"

    virtually(scenario)


def test_a_step_caught_and_called_again_in_the_same_attempt_is_unknown_too(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        ask = Calls(TimeoutError())

        async def work(ctx: Context) -> int:
            try:
                return await ctx.step("ask", ask, 1, paid=True, on_unknown="park")
            except TimeoutError:
                return await ctx.step("ask", ask, 1, paid=True, on_unknown="park")

        bench.task(work, retry=SOON)
        job = await bench.enqueue("work")
        await bench.run_until_idle()
        assert ((await bench.job(job)).reason, ask.made) == ("unknown outcome", [1])

    virtually(scenario)


def test_i18_asked_for_twice_at_once_it_is_called_once(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        made: list[int] = []

        async def ask(number: int) -> int:
            made.append(number)
            await asyncio.sleep(1)
            return number

        async def work(ctx: Context) -> list[int]:
            steps = [ctx.step("ask", ask, 1, paid=True, on_unknown="park") for _ in range(3)]
            return await asyncio.gather(*steps)

        bench.task(work)
        job = await bench.enqueue("work")
        await bench.run_until_idle()
        assert ((await bench.job(job)).result, made) == (b"[1,1,1]", [1])

    virtually(scenario)


def test_k5_a_stale_holders_paid_result_is_kept_and_used(virtually: Virtually) -> None:
    """The worker is suspended for longer than its lease after it sent the call; another has the job by
    then."""

    async def scenario(bench: Bench) -> None:
        made: list[str] = []

        async def ask(who: str) -> str:
            made.append(who)
            await asyncio.sleep(2)
            return who

        async def work(ctx: Context) -> str:
            if ctx.attempt == 1 and len(made) == 1:
                await asyncio.sleep(30)  # until the first worker continues
            return await ctx.step("ask", ask, "it", paid=True, on_unknown="park")

        bench.task(work, timeout=100)
        job = await bench.enqueue("work")
        loop: Any = asyncio.get_running_loop()
        process, _ = loop.spawn("frozen", bench.worker(lease=5).run())
        await asyncio.sleep(1)
        process.pause(20)
        bench.start(bench.worker(lease=5, reclaim_every=1))
        await bench.ended(job)
        assert ((await bench.job(job)).result, made) == (b'"it"', ["it"])

    virtually(scenario)


def test_a_stale_attempt_begins_nothing_and_stops(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        ask, after = Calls(), Calls()

        async def work(ctx: Context) -> None:
            await bench.store.amend(Filter(ids=(ctx.job_id,)), CancelJobs())
            await ctx.step("ask", ask, 1, paid=True)
            after(1)

        bench.task(work)
        job = await bench.enqueue("work")
        await bench.run_until_idle()
        assert (await bench.job(job)).state is State.CANCELLED
        assert (ask.made, after.made) == ([], [])

    virtually(scenario)


def test_a_cancelled_attempt_keeps_what_it_had_paid_for(virtually: Virtually) -> None:
    """The plain function's thread continues; its result is stored for the next attempt."""

    async def scenario(bench: Bench) -> None:
        class Slow(MemoryStore):
            async def keep_step(
                self, job: str, by: StepAttempt, step: StepKey, result: bytes, *, paid: bool
            ) -> tuple[WriteAnswer, bytes]:
                await asyncio.sleep(5)
                return await super().keep_step(job, by, step, result, paid=paid)

        slow: Any = Slow.__new__(Slow)
        slow.__dict__.update(bench.store.new_handle().__dict__)
        ask = Calls()

        async def work(ctx: Context) -> int:
            return await ctx.step("ask", ask, 1, paid=True, on_unknown="park")

        bench.task(work, timeout=2, retry=Retry(attempts=2, first=20, jitter=0))
        job = await bench.enqueue("work")
        bench.start(bench.worker(store=slow))
        await bench.ended(job)
        assert ((await bench.job(job)).state, ask.made) == (State.DONE, [1])

    virtually(scenario)


def test_a_step_that_was_begun_for_a_cancelled_attempt_is_forgotten(virtually: Virtually) -> None:
    """The store has the step begun when the attempt is cancelled, and nothing was called: the next attempt
    calls."""

    async def scenario(bench: Bench) -> None:
        class Slow(MemoryStore):
            slow = True

            async def begin_step(
                self, job: str, by: StepAttempt, step: StepKey, on_unknown: OnUnknown = "retry"
            ) -> StepStart:
                begun = await super().begin_step(job, by, step, on_unknown)
                if self.slow:
                    self.slow = False
                    await asyncio.sleep(5)
                return begun

        slow: Any = Slow.__new__(Slow)
        slow.__dict__.update(bench.store.new_handle().__dict__)
        ask = Calls()

        async def work(ctx: Context) -> int:
            return await ctx.step("ask", ask, 1, paid=True, on_unknown="park")

        bench.task(work, timeout=2, retry=Retry(attempts=2, first=20, jitter=0))
        job = await bench.enqueue("work")
        bench.start(bench.worker(store=slow))
        await bench.ended(job)
        ended = await bench.job(job)
        assert (ended.state, ended.attempts, ask.made) == (State.DONE, 2, [1])
        assert bench.events_of(StepOutcomeUnknown) == []

    virtually(scenario)


class LosesReplies(MemoryStore):
    """A store that runs every step request and loses its first reply."""

    lost = 0

    def __init__(self, store: MemoryStore) -> None:
        self.__dict__.update(store.new_handle().__dict__)

    async def begin_step(
        self, job: str, by: StepAttempt, step: StepKey, on_unknown: OnUnknown = "retry"
    ) -> StepStart:
        return self._once(await super().begin_step(job, by, step, on_unknown))

    async def keep_step(
        self, job: str, by: StepAttempt, step: StepKey, result: bytes, *, paid: bool
    ) -> tuple[WriteAnswer, bytes]:
        return self._once(await super().keep_step(job, by, step, result, paid=paid))

    def _once(self, reply: T) -> T:
        self.lost += 1
        if self.lost % 2:
            raise StoreUnavailable("the reply was lost")
        return reply


def test_k3_a_lost_reply_makes_nothing_unknown(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        ask = Calls()

        async def work(ctx: Context) -> int:
            return await ctx.step("ask", ask, 1, paid=True, on_unknown="park")

        bench.task(work)
        job = await bench.enqueue("work")
        await bench.run_until_idle(store=LosesReplies(bench.store))
        assert ((await bench.job(job)).state, ask.made) == (State.DONE, [1])
        assert bench.events_of(StepOutcomeUnknown) == []

    virtually(scenario)


class Unwritable:
    pass


def _too_much(_: int) -> str:
    return "x" * (16 * 1024 * 1024)


def _says_int(_: int) -> int:
    return "no int"  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda _: Unwritable(), ["'ask'", "cannot be written as JSON", "may have been paid for"]),
        (_too_much, ["'ask'", "16,777,218 bytes", "may have been paid for"]),
        (_says_int, ["'ask'", "_says_int", "is kept", "correct the annotation"]),
    ],
    ids=["no data", "too large", "not as annotated"],
)
def test_a_result_that_cannot_be_used_fails_the_job_instead_of_paying_again(
    virtually: Virtually, call: Callable[[int], Any], says: list[str]
) -> None:
    async def scenario(bench: Bench) -> None:
        made: list[int] = []

        async def work(ctx: Context) -> None:
            def ask(number: int) -> Any:
                made.append(number)
                return call(number)

            ask.__annotations__ = dict(getattr(call, "__annotations__", {}))
            ask.__qualname__ = call.__qualname__
            await ctx.step("ask", ask, 1, paid=True)

        bench.task(work, retry=SOON)
        job = await bench.enqueue("work")
        bench.start(bench.worker())
        await bench.ended(job)
        ended = await bench.job(job)
        assert (ended.state, ended.reason, made) == (State.FAILED, "step unusable", [1])
        assert ended.error is not None
        assert all(part in ended.error.message for part in says), ended.error.message
        assert len(await bench.store.checkpoints(job)) == 1, "the mark is not lost"

    virtually(scenario)


def _with_own_word(paid: int) -> int:
    return paid


BAD: list[tuple[Callable[[Any], Any], list[str]]] = [
    (lambda ctx: ctx.step("a", Calls(), object()), ["'a'", "parameter number", "JSON"]),
    (lambda ctx: ctx.step("a", Calls(), 1, paid=1), ["'a'", "paid", "True or False"]),
    (lambda ctx: ctx.step("a", Calls(), 1, paid=True, on_unknown="x"), ["'a'", "on_unknown", '"park"']),
    (
        lambda ctx: ctx.step("a", Calls(), 1, paid=False, on_unknown="park"),
        ["'a'", "on_unknown", "paid=True"],
    ),
    (lambda ctx: ctx.step("", Calls(), 1), ["name", "1 to 200"]),
    (lambda ctx: ctx.step(3, Calls(), 1), ["step", "name", "3"]),
    (lambda ctx: ctx.step("a", 7), ["'a'", "function", "int"]),
    (lambda ctx: ctx.step("a", asyncio.sleep(0)), ["'a'", "function", "arguments apart", "coroutine"]),
    (lambda ctx: ctx.step("a", Calls(), 1, 2), ["'a'", "too many"]),
    (lambda ctx: ctx.step("a", _with_own_word, 1), ["'a'", "'paid'", "functools.partial"]),
]


@pytest.mark.parametrize(("wrong", "says"), BAD, ids=[" ".join(says) for _, says in BAD])
def test_a_wrong_use_of_steps_is_refused_before_the_call(
    virtually: Virtually, wrong: Callable[[Any], Any], says: list[str]
) -> None:
    async def scenario(bench: Bench) -> None:
        async def work(ctx: Context) -> None:
            await wrong(ctx)

        bench.task(work, retry=Retry(attempts=1))
        job = await bench.enqueue("work")
        await bench.run_until_idle()
        error = (await bench.job(job)).error
        assert error is not None
        assert error.type == "ConfigurationError", error
        assert all(part in error.message for part in says), error.message
        assert await bench.store.checkpoints(job) == []

    virtually(scenario)


def test_a_partial_carries_the_keywords_of_a_paid_call(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        made: list[tuple[int, str]] = []

        async def ask(number: int, *, model: str = "small") -> str:
            made.append((number, model))
            return model

        async def work(ctx: Context) -> list[str]:
            return [
                await ctx.step("ask", partial(ask, 1, model="large"), paid=True),
                await ctx.step("ask", partial(ask, model="large"), 1, paid=True),
                await ctx.step("ask", ask, 1, paid=True),
            ]

        bench.task(work)
        job = await bench.enqueue("work")
        await bench.run_until_idle()
        assert (await bench.job(job)).result == b'["large","large","small"]'
        assert made == [(1, "large"), (1, "small")], "the key is what the function is called with"

    virtually(scenario)


async def test_sync_handlers_have_steps_in_their_thread() -> None:
    """On a real loop: the handler's thread asks, the worker's loop answers."""
    clock: Any = SystemClock()
    store = await MemoryStore(clock=clock, entropy=SeededEntropy(2)).open()
    bench = Bench(store, clock)
    ask, look, threads = Calls(), Calls(), set[str]()

    def work(ctx: Context) -> list[int]:
        threads.add(threading.current_thread().name)
        found = [ctx.step_sync("ask", ask, 1, paid=True), ctx.step_sync("look", look, 2)]
        if ctx.attempt == 1:
            raise ValueError("again")
        return found

    bench.task(work, retry=Retry(attempts=2, first=0, jitter=0))
    job = await bench.enqueue("work")
    await bench.run_until_idle()
    assert (await bench.job(job)).result == b"[2,3]"
    assert (ask.made, look.made) == ([1], [2])
    assert all(name.startswith("tidemill-") for name in threads)


def test_step_sync_is_refused_in_async_code(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        async def ask(number: int) -> int:
            return number

        async def blocks(ctx: Context) -> None:
            ctx.step_sync("ask", Calls(), 1)

        def awaits(ctx: Context) -> Any:
            return ctx.step_sync("ask", ask, 1)

        for handler, says in ((blocks, "await ctx.step"), (awaits, "make the handler async")):
            bench.task(handler, retry=Retry(attempts=1))
            job = await bench.enqueue(handler.__name__)
            await bench.run_until_idle()
            error = (await bench.job(job)).error
            assert error is not None
            assert says in error.message

    virtually(scenario)
