"""Arrivals become jobs, or failures that name the field."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from tests.worker.bench import Bench, Virtually
from tidemill.contract.jobs import Admission, Arrival, RejectedArrival
from tidemill.core.claims import ClaimRequest, Settlement, SettleResult
from tidemill.core.filters import Filter
from tidemill.core.jobs import NewJob
from tidemill.core.limits import Limit
from tidemill.core.needs import Need
from tidemill.core.states import State
from tidemill.core.transitions import UNKNOWN_TASK_SECONDS
from tidemill.core.unique_keys import Unique
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.definition import TaskDefinition, make_task_definition
from tidemill.tasks.pools import declare_pool
from tidemill.testing.clocks import ManualClock
from tidemill.worker.admitter import MAX_ARRIVALS_PER_PAGE, Admitter, decide_admission


async def add(number: int, host: str = "a") -> int:
    return number


TASK = make_task_definition(
    add,
    name="add",
    queue="sums",
    priority=3,
    key=lambda number, host: host,
    unique=Unique("one"),
    max_bytes=100,
)


def arrival(payload: bytes = b'{"number":1}', options: bytes = b"{}", task: str = "add") -> Arrival:
    return Arrival(seq=1, id="a", task=task, payload=payload, options=options, arrived=1000.0)


def admitted(**parts: bytes) -> tuple[str, NewJob]:
    admission = decide_admission(arrival(**parts), {"add": TASK}, 1001.0)  # type: ignore[arg-type]
    assert isinstance(admission, Admission)
    assert isinstance(admission.verdict, NewJob), admission.verdict
    return admission.queue, admission.verdict


def refused(**parts: bytes) -> str:
    admission = decide_admission(arrival(**parts), {"add": TASK}, 1001.0)  # type: ignore[arg-type]
    assert isinstance(admission, Admission)
    assert isinstance(admission.verdict, RejectedArrival), admission.verdict
    return f"{admission.verdict.error.type}: {admission.verdict.error.message}"


def test_an_arrival_has_the_needs_of_its_task() -> None:
    pool = declare_pool("api", (Limit.tokens(1000, per="minute"),), {})
    task = make_task_definition(add, name="add", pool=pool, cost=lambda number, host: {"tokens": number})

    def set_outcomes(number: int) -> Any:
        admission = decide_admission(arrival(b'{"number":%d}' % number), {"add": task}, 1001.0)
        assert admission is not None
        return admission.verdict

    assert set_outcomes(900).needs == (Need("api", None, {"tokens": 900.0}),)
    assert set_outcomes(1001).error.message.startswith("pool 'api': cost: 1001 tokens is more than")


def test_the_task_decides_options_that_the_arrival_leaves_open() -> None:
    queue, job = admitted()
    assert (queue, job.priority, job.key, job.unique) == ("sums", 3, "a", Unique("one"))


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        (b'{"number": 1, "host": "\\u65b0\\u95fb"}', '{"number":1,"host":"新闻"}'),
        (b'{"host":"\\ud83c\\udf0a",\n"number":1}', '{"host":"🌊","number":1}'),
        (b'{"number":1,"host":"\\u0041\\"\\u0042"}', '{"number":1,"host":"A\\"B"}'),
    ],
)
def test_a_payload_is_stored_as_a_client_would_have_written_it(written: bytes, stored: str) -> None:
    """Search uses the stored text."""
    assert admitted(payload=written)[1].payload.decode() == stored


def test_numbers_of_an_arrival_keep_their_digits() -> None:
    async def price(amount: Decimal, count: Any) -> None: ...

    written = b'{"amount": 0.1000000000000000055511151231257827, "count": 123456789012345678901234567890}'
    admission = decide_admission(
        arrival(written, task="price"), {"price": make_task_definition(price, name="price")}, 1001.0
    )
    assert isinstance(admission, Admission)
    assert isinstance(admission.verdict, NewJob), admission.verdict
    assert admission.verdict.payload == written.replace(b" ", b"")


def test_options_of_the_arrival_win() -> None:
    options = (
        b'{"queue":"other","priority":-4,"delay":60,"expires":5,"timeout":7,"unique":"u",'
        b'"key":"k","trace":"t","tags":["x","y"]}'
    )
    queue, job = admitted(options=options)
    assert queue == "other"
    assert (job.priority, job.expires, job.timeout, job.key, job.trace) == (-4, 5, 7, "k", "t")
    assert (job.unique, job.tags) == (Unique("u"), ("x", "y"))
    assert job.at == 1060, "a delay counts from the arrival"


def test_a_unique_key_can_say_what_a_conflict_does() -> None:
    _, job = admitted(options=b'{"unique":{"key":"u","on_conflict":"merge"}}')
    assert job.unique == Unique("u", "merge")


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ({"payload": b'{"number":"x"}'}, "InvalidPayload: payload: .*number"),
        ({"payload": b'{"number":1,"more":2}'}, "InvalidPayload: payload: .*more"),
        ({"payload": b"not json"}, "InvalidPayload: payload"),
        ({"payload": b'{"number":1,"host":"%s"}' % (b"x" * 100)}, "PayloadTooLarge: payload: has 1"),
        ({"options": b'{"colour":"red"}'}, "InvalidJob: options: .*colour"),
        ({"options": b'{"priority":"high"}'}, "InvalidJob: options: .*priority"),
        ({"options": b"not json"}, "InvalidJob: options"),
        ({"options": b'{"priority":100000}'}, "InvalidJob: priority"),
        ({"options": b'{"delay":-1}'}, "InvalidJob: delay"),
        ({"options": b'{"unique":""}'}, "InvalidJob: unique.key"),
        ({"options": b'{"unique":{"key":"u","on_conflict":"fight"}}'}, "InvalidJob: options: .*on_conflict"),
    ],
)
def test_a_bad_arrival_is_refused_naming_the_field(parts: dict[str, bytes], problem: str) -> None:
    import re

    assert re.match(problem, refused(**parts)), refused(**parts)


def test_a_payload_may_be_as_long_as_the_task_says() -> None:
    padding = b"x" * (TASK.max_bytes - len(b'{"number":1,"host":""}'))
    payload = b'{"number":1,"host":"%s"}' % padding
    assert admitted(payload=payload)[1].payload == payload
    longer = refused(payload=payload.replace(b"x", b"xx", 1))
    assert longer == "PayloadTooLarge: payload: has 101 bytes, the task takes at most 100"


def test_a_key_function_that_raises_refuses_the_arrival() -> None:
    broken = make_task_definition(add, name="add", key=lambda number, host: {}[host])
    admission = decide_admission(arrival(), {"add": broken}, 1001.0)
    assert admission is not None
    assert isinstance(admission.verdict, RejectedArrival)
    assert "key" in admission.verdict.error.message


def test_an_unknown_task_is_left_for_others_for_a_day() -> None:
    assert decide_admission(arrival(task="elsewhere"), {"add": TASK}, 1000 + 86_399) is None
    admission = decide_admission(arrival(task="elsewhere"), {"add": TASK}, 1000 + 86_400)
    assert admission is not None
    assert isinstance(admission.verdict, RejectedArrival)
    assert "elsewhere" in admission.verdict.error.message


def test_arrivals_are_admitted_and_run(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.tasks["add"] = make_task_definition(add, name="add")
        bench.store.arrive("good", "add", b'{"number":5}')
        bench.store.arrive("bad", "add", b'{"number":"x"}')
        await bench.run_until_idle()
        assert (await bench.job("good")).result == b"5"
        bad = await bench.job("bad")
        assert bad.state is State.FAILED
        assert bad.error is not None
        assert "number" in bad.error.message

    virtually(scenario)


class Distant(MemoryStore):
    """A distant store: a claim's answer is on its way when something is admitted, and that answer comes
    `late`."""

    def __init__(self, store: MemoryStore, late: float) -> None:
        self.__dict__.update(store.new_handle().__dict__)
        self.late = late

    async def settle(
        self, settlements: Sequence[Settlement], request: ClaimRequest | None = None
    ) -> SettleResult:
        settled = await super().settle(settlements, request)
        await asyncio.sleep(0.05)
        return settled

    async def admit(self, admissions: Sequence[Admission]) -> int:
        await asyncio.sleep(0.07)
        admitted = await super().admit(admissions)
        await asyncio.sleep(self.late)
        return admitted


@pytest.mark.parametrize("late", [0.0, 0.07])
def test_an_idle_worker_has_claimed_after_the_last_admission(virtually: Virtually, late: float) -> None:
    """The service may have admitted a job between the last claim and its answer."""

    async def scenario(bench: Bench) -> None:
        bench.tasks["add"] = make_task_definition(add, name="add")
        bench.store.arrive("a", "add", b'{"number":5}')
        await bench.run_until_idle(store=Distant(bench.store, late))
        assert (await bench.job("a")).state is State.DONE

    virtually(scenario)


def test_arrivals_without_an_id_are_separate_jobs(virtually: Virtually) -> None:
    """XADD without the field, INSERT with an empty one: a second arrival would count as a copy of the
    first."""

    async def scenario(bench: Bench) -> None:
        bench.tasks["add"] = make_task_definition(add, name="add")
        for payload in (b'{"number":5}', b'{"number":5}', b"{}", b"{}"):
            bench.store.arrive("", "add", payload)
        await bench.run_until_idle()
        jobs = (await bench.store.find(Filter())).jobs
        assert sorted(job.state.value for job in jobs) == ["done", "done", "failed", "failed"]
        assert len({job.id for job in jobs} - {""}) == 4

    virtually(scenario)


def test_an_arrival_without_an_id_has_the_same_one_each_time() -> None:
    nameless = msgspec.structs.replace(arrival(), id="")
    twice = [decide_admission(nameless, {"add": TASK}, now) for now in (1001.0, 1002.0)]
    ids = {admission.arrival.id for admission in twice if admission is not None}
    assert len(ids) == 1
    others = msgspec.structs.replace(nameless, seq=2), msgspec.structs.replace(nameless, arrived=2000.0)
    for other in others:
        admission = decide_admission(other, {"add": TASK}, 1001.0)
        assert admission is not None
        assert admission.arrival.id not in ids


def test_an_arrival_is_admitted_within_a_second(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        bench.tasks["add"] = make_task_definition(add, name="add")
        worker = bench.worker()
        running = bench.start(worker)
        await asyncio.sleep(5.5)
        bench.store.arrive("a", "add", b'{"number":5}')
        await asyncio.sleep(1.1)
        assert (await bench.job("a")).state is State.DONE
        worker.stop()
        await running

    virtually(scenario)


async def test_arrivals_left_for_others_hide_nothing_behind_them() -> None:
    store = MemoryStore()
    for number in range(MAX_ARRIVALS_PER_PAGE + 10):
        store.arrive(f"foreign-{number}", "not here", b"{}")
    store.arrive("ours", "add", b'{"number":1}')
    admitter = Admitter(store, {"add": TASK})
    while await admitter.admit():
        pass
    assert admitter.admitted == 1
    assert [job is not None for job in await store.get(["ours", "foreign-0"])] == [True, False]


async def test_i26_a_stepped_clock_refuses_no_arrival() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    store.arrive("foreign", "not here", b"{}")
    admitter = Admitter(store, {"add": TASK})
    await admitter.admit()
    clock.step_wall(2 * UNKNOWN_TASK_SECONDS)
    await admitter.admit()
    assert [arrival.id for arrival in await store.arrivals(10)] == ["foreign"]


def _raises_what_it_likes(number: int, host: str = "a") -> str:
    raise RecursionError("too deep")


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class Picky:
    """A model of another library whose validators may raise anything."""

    @classmethod
    def model_validate(cls, value: object) -> Picky:
        raise Mute


async def takes_picky(what: Picky) -> None: ...


@pytest.mark.parametrize(
    ("task", "payload", "field"),
    [
        (make_task_definition(add, name="add", key=lambda number, host: number), b'{"number":1}', "key"),
        (
            make_task_definition(add, name="add", unique=lambda number, host: number),
            b'{"number":1}',
            "unique",
        ),
        (make_task_definition(add, name="add", key=_raises_what_it_likes), b'{"number":1}', "key"),
        (make_task_definition(takes_picky, name="add"), b'{"what":{}}', "payload"),
        (make_task_definition(add, name="add"), b'{"number":' + b"[" * 100_000, "payload"),
    ],
)
async def test_one_bad_arrival_never_holds_up_the_others(
    task: TaskDefinition, payload: bytes, field: str
) -> None:
    store = MemoryStore()
    store.arrive("bad", "add", payload)
    store.arrive("good", "fine", b'{"number":1}')
    admitter = Admitter(store, {"add": task, "fine": make_task_definition(add, name="fine")})
    await admitter.admit()
    bad, good = await store.get(["bad", "good"])
    assert bad is not None
    assert bad.state is State.FAILED
    assert bad.error is not None
    assert field in bad.error.message
    assert good is not None
    assert good.state is State.READY


def test_an_unknown_task_is_refused_after_a_day_however_full_the_last_page(virtually: Virtually) -> None:
    """Exactly full pages end with an empty page, which says nothing about the other pages."""

    async def scenario(bench: Bench) -> None:
        for number in range(MAX_ARRIVALS_PER_PAGE):
            bench.store.arrive(f"foreign-{number}", "not here", b"{}")
        admitter = Admitter(bench.store, {"add": TASK})
        for _ in range(26):
            while await admitter.admit():
                pass
            await asyncio.sleep(3600)
        assert await bench.store.arrivals(10) == []

    virtually(scenario)
