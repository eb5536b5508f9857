"""Batch tasks in a worker: one call, and an outcome for each of its jobs."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import msgspec

from tests.worker.bench import NO_POOLS, Bench, Unreliable, Virtually
from tests.worker.fake_provider import Provider
from tidemill.clock import SystemClock
from tidemill.core.claims import ClaimRequest, QueueShare, Settlement, SettleResult
from tidemill.core.filters import Filter
from tidemill.core.jobs import Job
from tidemill.core.limits import Limit
from tidemill.core.operator_changes import CancelJobs
from tidemill.core.retry import Retry
from tidemill.core.states import State
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.batches import FailedItem
from tidemill.tasks.context import Context
from tidemill.telemetry.events import (
    AttemptStopped,
    JobDone,
    JobFailed,
    JobReleased,
    JobStarted,
    SlotStuck,
)
from tidemill.worker import WorkerOptions
from tidemill.worker.attempt import Attempt
from tidemill.worker.batch_attempt import group_batches
from tidemill.worker.claim_planner import ClaimAhead, ClaimPlanner
from tidemill.worker.heartbeat import make_held_job
from tidemill.worker.in_flight import Slots


def result(job: Job) -> Any:
    return None if job.result is None else msgspec.json.decode(job.result)


async def jobs_of(bench: Bench, ids: list[str]) -> list[Job]:
    return [await bench.job(id_) for id_ in ids]


def test_jobs_share_a_call_and_each_gets_its_own_result(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        calls: list[list[str]] = []

        async def embed(texts: list[str]) -> list[int]:
            calls.append(texts)
            return [len(text) for text in texts]

        bench.batch_task(embed, max_items=3)
        ids = await bench.items("embed", "a", "bb", "ccc", "dddd", "eeeee")
        await bench.run_until_idle()
        assert calls == [["a", "bb", "ccc"], ["dddd", "eeeee"]]
        assert [result(job) for job in await jobs_of(bench, ids)] == [1, 2, 3, 4, 5]
        assert [job.attempts for job in await jobs_of(bench, ids)] == [1] * 5
        assert [event.job for event in bench.events_of(JobDone)] == ids
        assert [event.job for event in bench.events_of(JobStarted)] == ids

    virtually(scenario)


def test_a_call_takes_one_slot_and_its_context_names_its_jobs(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        running = most = 0
        seen: list[tuple[str, tuple[str, ...]]] = []

        async def embed(ctx: Context, texts: list[str]) -> list[None]:
            nonlocal running, most
            running += 1
            most = max(most, running)
            seen.append((ctx.job_id, ctx.batch))
            await asyncio.sleep(1)
            running -= 1
            return [None] * len(texts)

        bench.batch_task(embed, max_items=4)
        ids = await bench.items("embed", *"abcdefghijkl")
        await bench.run_until_idle(concurrency=2)
        assert most == 2
        assert seen == [(ids[n], tuple(ids[n : n + 4])) for n in (0, 4, 8)]

    virtually(scenario)


def test_all_outcomes_of_a_call_are_settled_in_one_step(virtually: Virtually) -> None:
    """Also if some jobs have log lines to send first."""

    async def scenario(bench: Bench) -> None:
        trips: list[list[str]] = []

        class Witnessed(MemoryStore):
            def __init__(self, store: MemoryStore) -> None:
                self.__dict__.update(store.new_handle().__dict__)

            async def settle(self, settlements: Any, request: ClaimRequest | None = None) -> SettleResult:
                trips.append([settlement.job for settlement in settlements])
                return await super().settle(settlements, request)

        async def embed(ctx: Context, texts: list[str]) -> list[str | FailedItem]:
            ctx.log("working")
            await ctx.progress(0.5, "half")
            return [FailedItem("no", retry=text == "b") if text != "a" else text for text in texts]

        bench.batch_task(embed, max_items=10)
        ids = await bench.items("embed", "a", "b", "c")
        await bench.run_until_idle(store=Witnessed(bench.store))
        assert [trip for trip in trips if trip] == [ids]
        states = [job.state for job in await jobs_of(bench, ids)]
        assert states == [State.DONE, State.SCHEDULED, State.FAILED]
        for id_ in ids:
            assert [line.line for line in await bench.store.logs(id_)] == ["working"]
            assert (await bench.job(id_)).note in {"half", None}

    virtually(scenario)


def test_an_item_that_failed_is_retried_alone_or_fails_for_good(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        calls: list[list[str]] = []

        async def embed(texts: list[str]) -> list[str | FailedItem]:
            calls.append(texts)
            return [_answer(text, len(calls)) for text in texts]

        def _answer(text: str, call: int) -> str | FailedItem:
            if text == "never":
                return FailedItem("not a language we know", retry=False)
            return FailedItem("try again") if text == "later" and call < 3 else text

        # The policy's exception filters do not apply to an item whose outcome the handler decided.
        policy = Retry(attempts=3, first=5, jitter=0, on=KeyError, give_up_on=Exception)
        bench.batch_task(embed, max_items=10, retry=policy)
        ids = await bench.items("embed", "a", "later", "never")
        worker = bench.worker()
        running = bench.start(worker)
        await bench.ended(*ids)
        fine, later, never = await jobs_of(bench, ids)
        assert calls == [["a", "later", "never"], ["later"], ["later"]]
        assert (fine.attempts, later.attempts, never.attempts) == (1, 3, 1)
        assert (later.state, result(later)) == (State.DONE, "later")
        assert never.state is State.FAILED
        assert never.error is not None
        assert (never.error.type, never.error.message) == ("FailedItem", "not a language we know")
        [event] = bench.events_of(JobFailed)
        assert (event.job, event.message) == (ids[2], "not a language we know")
        worker.stop()
        await running

    virtually(scenario)


def test_a_payload_that_cannot_be_read_fails_alone(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        calls: list[list[int]] = []
        batches: list[tuple[str, ...]] = []

        async def double(ctx: Context, numbers: list[int]) -> list[int]:
            calls.append(numbers)
            batches.append(ctx.batch)
            return [2 * number for number in numbers]

        bench.batch_task(double, max_items=10)
        ids = await bench.items("double", "not a number", 2, "nor this", 4)
        await bench.run_until_idle()
        jobs = await jobs_of(bench, ids)
        assert calls == [[2, 4]]
        assert batches == [(ids[1], ids[3])]
        assert [job.state for job in jobs] == [State.FAILED, State.DONE, State.FAILED, State.DONE]
        assert {job.reason for job in jobs} == {"invalid payload", None}
        assert [result(job) for job in jobs] == [None, 4, None, 8]

    virtually(scenario)


def test_nothing_is_called_when_no_payload_can_be_read(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", Limit.requests(10, per="minute"))

        async def double(numbers: list[int]) -> list[int]:
            raise AssertionError("called")

        async def before(numbers: list[str]) -> list[str]:
            return numbers

        before.__name__ = "double"
        bench.batch_task(before, max_items=10, pool=pool)
        ids = await bench.items("double", "a", "b")
        bench.batch_task(double, max_items=10, pool=pool)
        await bench.run_until_idle()
        assert [job.reason for job in await jobs_of(bench, ids)] == ["invalid payload"] * 2
        assert await bench.used("api") == {"requests per minute": 0}, "no call was made"

    virtually(scenario)


def test_a_result_that_cannot_be_stored_fails_only_its_job(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        async def embed(texts: list[str]) -> list[Any]:
            return [object() if text == "bad" else text for text in texts]

        bench.batch_task(embed, max_items=10)
        ids = await bench.items("embed", "a", "bad", "c")
        await bench.run_until_idle()
        jobs = await jobs_of(bench, ids)
        assert [job.reason for job in jobs] == [None, "result cannot be stored", None]

    virtually(scenario)


def test_sync_handlers_run_in_a_thread(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        threads: set[str] = set()

        def embed(ctx: Context, texts: list[str]) -> list[str]:
            threads.add(threading.current_thread().name)
            ctx.log("from a thread")
            return [text.upper() for text in texts]

        bench.batch_task(embed, max_items=10)
        ids = await bench.items("embed", "a", "b")
        await bench.run_until_idle()
        assert [result(job) for job in await jobs_of(bench, ids)] == ["A", "B"]
        assert all(name.startswith("tidemill-") for name in threads)

    virtually(scenario)


def test_middleware_runs_once_per_batch(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        seen: list[Any] = []

        async def around(ctx: Context, run: Any) -> Any:
            results = await run()
            seen.append((ctx.batch, results))
            return [*results[:-1], "changed"]

        async def embed(texts: list[str]) -> list[str]:
            return [text.upper() for text in texts]

        bench.batch_task(embed, max_items=10)
        ids = await bench.items("embed", "a", "b")
        await bench.run_until_idle(middleware=(around,))
        assert seen == [(tuple(ids), ["A", "B"])]
        assert [result(job) for job in await jobs_of(bench, ids)] == ["A", "changed"]

    virtually(scenario)


def test_i19_cancelling_one_job_refuses_its_outcome_only(virtually: Virtually) -> None:
    """Also for the lead: it holds the reservation, which is settled anyway."""

    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", Limit.tokens(1000, per="minute"))
        release = asyncio.Event()

        async def embed(ctx: Context, texts: list[str]) -> list[str]:
            await release.wait()
            assert not ctx.cancelled
            ctx.used(tokens=70)
            return texts

        bench.batch_task(embed, max_items=10, pool=pool, item_cost={"tokens": 100})
        ids = await bench.items("embed", "a", "b", "c")
        worker = bench.worker()
        running = bench.start(worker)
        await asyncio.sleep(1)
        for id_ in ids[:2]:
            await bench.store.amend(Filter(ids=(id_,)), CancelJobs("not wanted"))
        await asyncio.sleep(1)
        assert [event.job for event in bench.events_of(AttemptStopped)] == ids[:2]
        release.set()
        await bench.ended(*ids)
        states = [job.state for job in await jobs_of(bench, ids)]
        assert states == [State.CANCELLED, State.CANCELLED, State.DONE]
        await asyncio.sleep(1)
        assert await bench.used("api") == {"tokens per minute": 70}
        assert worker.stats.lost == 2
        worker.stop()
        await running

    virtually(scenario)


def test_i14_a_batch_that_arrives_without_its_lead_settles_its_usage(virtually: Virtually) -> None:
    """The claim's reply was lost, and the first job was cancelled before the claim was repeated."""

    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", Limit.tokens(1000, per="minute"))
        store = Unreliable(bench.store)
        batches: list[tuple[str, ...]] = []

        async def embed(ctx: Context, texts: list[str]) -> list[str]:
            batches.append(ctx.batch)
            ctx.used(tokens=70)
            return texts

        bench.batch_task(embed, max_items=10, pool=pool, item_cost={"tokens": 100})
        ids = await bench.items("embed", "a", "b", "c")
        store.lose = 1
        worker = bench.worker(store=store)
        running = bench.start(worker)
        await asyncio.sleep(0.01)
        await bench.store.amend(Filter(ids=(ids[0],)), CancelJobs("not wanted"))
        await bench.ended(*ids)
        await asyncio.sleep(1)
        assert batches == [tuple(ids[1:])]
        states = [job.state for job in await jobs_of(bench, ids)]
        assert states == [State.CANCELLED, State.DONE, State.DONE]
        assert await bench.used("api") == {"tokens per minute": 70}
        worker.stop()
        await running

    virtually(scenario)


def test_a_call_whose_jobs_are_all_lost_is_stopped(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        stopped = asyncio.Event()

        async def embed(texts: list[str]) -> list[str]:
            try:
                await asyncio.sleep(1000)
            finally:
                stopped.set()
            return texts

        bench.batch_task(embed, max_items=10)
        ids = await bench.items("embed", "a", "b")
        worker = bench.worker()
        running = bench.start(worker)
        await asyncio.sleep(1)
        await bench.store.amend(Filter(ids=tuple(ids)), CancelJobs("not wanted"))
        await asyncio.wait_for(stopped.wait(), 30)
        await asyncio.sleep(0)
        assert worker.stats.lost == 2
        later = await bench.items("embed", "c")
        await asyncio.sleep(1)
        assert (await bench.job(later[0])).state is State.RUNNING, "the slot is free again"
        worker.stop_now()
        await running

    virtually(scenario)


def test_leases_of_all_jobs_are_renewed(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        async def embed(texts: list[str]) -> list[str]:
            await asyncio.sleep(200)
            return texts

        bench.batch_task(embed, max_items=10)
        ids = await bench.items("embed", "a", "b", "c")
        workers = [bench.worker(), bench.worker()]  # the other worker would reclaim jobs that are not renewed
        runs = [bench.start(worker) for worker in workers]
        await bench.ended(*ids)
        jobs = await jobs_of(bench, ids)
        assert [(job.state, job.attempts, job.crashes) for job in jobs] == [(State.DONE, 1, 0)] * 3
        for worker in workers:
            worker.stop()
        await asyncio.gather(*runs)

    virtually(scenario)


def test_i20_a_drained_worker_releases_all_jobs_of_a_batch_uncharged(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", Limit.requests(10, per="minute"))

        async def embed(texts: list[str]) -> list[str]:
            await asyncio.sleep(1000)
            return texts

        bench.batch_task(embed, max_items=3, pool=pool)
        ids = await bench.items("embed", *"abcdef")
        worker = bench.worker(concurrency=1, grace=5)
        running = bench.start(worker)
        await asyncio.sleep(1)
        assert sum(job.state is State.RUNNING for job in await jobs_of(bench, ids)) == 3
        worker.stop()
        await running
        jobs = await jobs_of(bench, ids)
        assert [(job.state, job.attempts, job.crashes) for job in jobs] == [(State.READY, 0, 0)] * 6
        assert [event.reason for event in bench.events_of(JobReleased)] == ["stopping"] * 3

    virtually(scenario)


def test_a_batch_has_one_deadline_and_then_the_retry_policy_applies(virtually: Virtually) -> None:
    """A batch has the shortest timeout of its jobs."""

    async def scenario(bench: Bench) -> None:
        calls: list[list[str]] = []

        async def embed(texts: list[str]) -> list[str]:
            calls.append(texts)
            if len(calls) == 1:
                await asyncio.sleep(100)
            return texts

        bench.batch_task(embed, max_items=10, timeout=60, retry=Retry(attempts=2, first=5, jitter=0.5))
        ids = [*await bench.items("embed", "a", "b"), *await bench.items("embed", "c", timeout=10)]
        worker = bench.worker()
        running = bench.start(worker)
        await asyncio.sleep(11)
        waiting = await jobs_of(bench, ids)
        assert [(job.state, job.attempts) for job in waiting] == [(State.SCHEDULED, 1)] * 3
        assert {job.error.type for job in waiting if job.error} == {"Timeout"}
        assert len({job.due for job in waiting}) == 1, "they come back together"
        await bench.ended(*ids)
        assert calls == [["a", "b", "c"]] * 2, "nobody is divided for a timeout"
        worker.stop()
        await running

    virtually(scenario)


def test_code_that_does_not_stop_keeps_one_slot_and_all_its_jobs_are_settled(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        over = asyncio.Event()

        async def embed(texts: list[str]) -> list[str]:
            while not over.is_set():
                try:
                    await over.wait()
                except asyncio.CancelledError:
                    continue
            return texts

        bench.batch_task(embed, max_items=10, timeout=10, retry=Retry(attempts=1))
        ids = await bench.items("embed", "a", "b")
        worker = bench.worker()
        running = bench.start(worker)
        await bench.ended(*ids)
        assert worker.stats.stuck == 1
        over.set()
        await asyncio.sleep(1)
        assert worker.stats.stuck == 0
        worker.stop()
        await running

    virtually(scenario)


def test_i21_jobs_of_a_call_that_outran_its_timeout_are_no_longer_renewed(virtually: Virtually) -> None:
    """While the worker's loop is blocked, nothing can stop the call, so its leases end."""

    async def scenario(bench: Bench) -> None:
        async def embed(texts: list[str]) -> list[str]:
            return texts

        bench.batch_task(embed, max_items=10)
        await bench.items("embed", "a", "b")
        request = ClaimRequest(worker="w", number=1, shares=(QueueShare("default", 1),), limit=1, lease=30)
        claims = await bench.store.claim(request)
        members = [
            Attempt(job, bench.tasks["embed"], lambda: None, lambda: 0.0, NO_POOLS) for job in claims.jobs
        ]
        [call] = group_batches(members, 0.0)
        call.deadline = 100.0
        assert [make_held_job(member, 104.0).renew for member in members] == [True, True]
        assert [make_held_job(member, 106.0).renew for member in members] == [False, False]

    virtually(scenario)


async def test_a_thread_that_does_not_stop_keeps_one_slot_for_all_its_jobs() -> None:
    bench = Bench(await MemoryStore().open(), cast("Any", SystemClock()))
    over = threading.Event()

    def embed(texts: list[str]) -> list[str]:
        over.wait(30)
        return texts

    bench.batch_task(embed, max_items=10, timeout=0.1, retry=Retry(attempts=1))
    ids = await bench.items("embed", "a", "b")
    worker = bench.worker(concurrency=1)
    running = bench.start(worker)
    await bench.ended(*ids)
    assert [job.error.type for job in await jobs_of(bench, ids) if job.error] == ["Timeout"] * 2
    assert [event.job for event in bench.events_of(SlotStuck)] == ids[:1]
    assert worker.stats.stuck == 1
    over.set()
    await bench.ended(*await bench.items("embed", "c"))  # in the only slot
    assert worker.stats.stuck == 0
    worker.stop()
    await running


def test_arrivals_of_other_programs_share_calls_too(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", Limit.tokens(1000, per="minute"))
        calls: list[list[str]] = []

        async def embed(texts: list[str]) -> list[str]:
            calls.append(texts)
            return texts

        bench.batch_task(
            embed,
            max_items=10,
            pool=pool,
            item_cost=lambda text: {"tokens": len(text)},
            key=lambda text: text[0],
        )
        for number, text in enumerate(["ab", "ac", "bb"]):
            bench.store.arrive(f"arrival-{number}", "embed", msgspec.json.encode({"item": text}))
        bench.store.arrive("wrong", "embed", b'{"texts": ["a"]}')
        await bench.run_until_idle()
        assert calls == [["ab", "ac"], ["bb"]]
        wrong = await bench.job("wrong")
        assert wrong.error is not None
        assert wrong.error.message.startswith("payload: ")
        assert await bench.used("api") == {"tokens per minute": 6}

    virtually(scenario)


def test_i14_a_batch_has_one_reservation_for_the_call_and_its_items(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", Limit.tokens(1000, per="minute"), Limit.requests(10, per="minute"))

        async def embed(texts: list[str]) -> list[str]:
            return texts

        bench.batch_task(
            embed,
            max_items=10,
            pool=pool,
            cost={"tokens": 20},
            item_cost=lambda text: {"tokens": len(text)},
            max_units={"tokens": 60},
        )
        await bench.items("embed", "x" * 30, "x" * 30, "x" * 5)
        await bench.run_until_idle()
        assert await bench.used("api") == {"tokens per minute": 65 + 2 * 20, "requests per minute": 2}

    virtually(scenario)


def test_i14_a_batch_that_would_start_too_late_is_released_as_a_whole(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        provider = Provider()
        store = Unreliable(bench.store)
        pool = await bench.pool("api", Limit.requests(10, per="minute"))

        async def embed(texts: list[str]) -> list[str]:
            provider.call()
            return texts

        bench.batch_task(embed, max_items=10, pool=pool)
        store.slow = 2.0
        ids = await bench.items("embed", "a", "b")
        worker = bench.worker(store=store)
        running = bench.start(worker)
        await asyncio.sleep(5)
        assert not provider.arrivals
        assert {event.reason for event in bench.events_of(JobReleased)} == {"too late"}
        store.slow = 0.0
        await bench.ended(*ids)
        assert len(provider.arrivals) == 1
        assert [job.attempts for job in await jobs_of(bench, ids)] == [1, 1]
        worker.stop()
        await running

    virtually(scenario)


def test_an_unknown_task_is_released_with_the_reservation_of_its_batch(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", Limit.requests(10, per="minute"))

        async def embed(texts: list[str]) -> list[str]:
            return texts

        bench.batch_task(embed, max_items=10, pool=pool)
        ids = await bench.items("embed", "a", "b")
        worker = bench.worker(tasks={}, until_idle=True)
        await worker.run()
        assert {job.state for job in await jobs_of(bench, ids)} == {State.SCHEDULED}
        assert await bench.used("api") == {"requests per minute": 0}

    virtually(scenario)


def test_a_worker_is_not_idle_while_jobs_wait_for_a_batch(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        calls: list[tuple[float, list[str]]] = []
        began = asyncio.get_running_loop().time()

        async def embed(texts: list[str]) -> list[str]:
            calls.append((asyncio.get_running_loop().time() - began, texts))
            return texts

        bench.batch_task(embed, max_items=3, linger=7)
        await bench.items("embed", "a", "b", "c", "d")
        await bench.run_until_idle()
        assert [texts for _, texts in calls] == [["a", "b", "c"], ["d"]]
        assert calls[0][0] < 1
        assert 7 <= calls[1][0] < 8

    virtually(scenario)


def test_a_call_counts_as_one_job_of_its_queues_share(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        async def embed(texts: list[str]) -> list[str]:
            return texts

        bench.batch_task(embed, max_items=3)
        await bench.items("embed", *"abcde")
        options = WorkerOptions(queues={"default": 1}, concurrency=2)
        producer = ClaimPlanner(options, "w", Slots(2), claim_ahead=ClaimAhead(2), tasks=bench.tasks)
        request = producer.request()
        claims = await bench.store.claim(request)
        assert len(claims.jobs) == 5
        assert producer.served(claims.jobs) == 2 == request.limit

    virtually(scenario)


def test_only_the_leads_settlement_reports_the_usage(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        pool = await bench.pool("api", Limit.tokens(1000, per="minute"))
        settled: list[Settlement] = []

        class Witnessed(MemoryStore):
            def __init__(self, store: MemoryStore) -> None:
                self.__dict__.update(store.new_handle().__dict__)

            async def settle(self, settlements: Any, request: ClaimRequest | None = None) -> SettleResult:
                settled.extend(settlements)
                return await super().settle(settlements, request)

        async def embed(texts: list[str]) -> list[str | FailedItem]:
            return [FailedItem("first", retry=False), *texts[1:]]

        bench.batch_task(embed, max_items=10, pool=pool, item_cost={"tokens": 100})
        await bench.items("embed", "a", "b", "c")
        await bench.run_until_idle(store=Witnessed(bench.store))
        lead, *others = settled
        assert lead.spent is not None
        assert lead.spent.is_success, "the provider answered, though the lead's own item failed"
        assert [other.spent for other in others] == [None, None]
        assert await bench.used("api") == {"tokens per minute": 300}

    virtually(scenario)


def test_a_task_that_is_no_longer_a_batch_task_runs_one_job_of_each_batch(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        async def embed(texts: list[str]) -> list[str]:
            return texts

        bench.batch_task(embed, max_items=10)
        ids = await bench.items("embed", "a", "b", "c")

        async def plain(item: str) -> str:
            return item

        plain.__name__ = "embed"
        bench.task(plain)
        await bench.run_until_idle()
        assert [result(job) for job in await jobs_of(bench, ids)] == ["a", "b", "c"]

    virtually(scenario)


def test_a_plain_job_of_a_new_batch_task_is_a_batch_of_one(virtually: Virtually) -> None:
    async def scenario(bench: Bench) -> None:
        async def plain(item: str) -> str:
            return item

        plain.__name__ = "embed"
        bench.task(plain)
        ids = await bench.items("embed", "a", "b")
        calls: list[list[str]] = []

        async def embed(texts: list[str]) -> list[str]:
            calls.append(texts)
            return texts

        bench.batch_task(embed, max_items=10)
        await bench.run_until_idle()
        assert sorted(calls) == [["a"], ["b"]]
        assert [result(job) for job in await jobs_of(bench, ids)] == ["a", "b"]

    virtually(scenario)
