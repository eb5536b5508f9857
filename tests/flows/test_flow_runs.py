"""Flows from the first step to the last, in virtual time (S13, V10, I17)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.flows.support import ONCE, Studio
from tidemill import (
    Context,
    FlowFailed,
    FlowPosition,
    Limit,
    ResultTimeout,
    StoreUnavailable,
    Tidemill,
    unmapped,
)
from tidemill.core.documents import MAX_BYTES_PER_ADVANCE, Advance, AdvanceResult
from tidemill.core.filters import Filter
from tidemill.core.jobs import MAX_STEP_RESULT_BYTES
from tidemill.core.states import State
from tidemill.flows import results
from tidemill.flows.advance_pass import advance_flows
from tidemill.telemetry.events import Event, FlowEnded, FlowStarted
from tidemill.testing.kit import AsyncKit


class TestChains:
    async def test_s13_each_step_gets_what_the_one_before_returned(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        flow = app.flow("dub", key="v1")
        audio = flow.add(studio.extract, video="v1")
        lines = flow.add(studio.transcribe, audio)
        flow.add(studio.mux, video="v1", speech=lines)
        handle = await flow.enqueue()
        assert (handle.id, handle.existing) == ("dub/v1", False)
        await kit.run_until_idle()
        assert studio.ran == ["extract", "transcribe", "mux"]
        speech = ["v1.wav:0", "v1.wav:1", "v1.wav:2"]
        assert await handle.result() == {"video": "v1", "speech": speech}
        assert await handle.result("transcribe") == speech
        assert await handle.result(audio) == "v1.wav"

    async def test_a_step_with_a_payload_above_the_limit_of_one_advance_is_created_alone(
        self, app: Tidemill, kit: AsyncKit
    ) -> None:
        """A task may accept a larger payload than one advance sends: such a job is sent alone."""

        @app.task(retry=ONCE)
        async def write() -> list[str]:
            return ["x" * (MAX_STEP_RESULT_BYTES - 100), "short"]

        @app.task(retry=ONCE, max_bytes=2 * MAX_BYTES_PER_ADVANCE)
        async def measure(text: str, rest: str) -> int:
            return len(text) + len(rest)

        rest = "y" * (MAX_BYTES_PER_ADVANCE - MAX_STEP_RESULT_BYTES // 2)
        flow = app.flow("long", key="v1")
        flow.map(measure, text=flow.add(write), rest=unmapped(rest))
        handle = await flow.enqueue()
        await kit.run_until_idle()
        assert await handle.result() == [MAX_STEP_RESULT_BYTES - 100 + len(rest), 5 + len(rest)]

    async def test_v10_a_job_exists_only_when_it_may_run(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        flow = app.flow("dub", key="v1")
        flow.add(studio.transcribe, audio=flow.add(studio.extract, video="v1"))
        await flow.enqueue()
        jobs = (await app.inspect.find(Filter(flow="dub/v1"))).jobs
        assert [job.id for job in jobs] == ["dub/v1/extract/0"]
        await kit.run_until_idle()
        ended = (await app.inspect.find(Filter(flow="dub/v1"))).jobs
        assert {job.id: (job.state, job.attempts) for job in ended} == {
            "dub/v1/extract/0": (State.DONE, 1),
            "dub/v1/transcribe/0": (State.DONE, 1),
        }

    async def test_after_waits_without_reading_a_result(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        flow = app.flow("dub")
        notified = flow.add(studio.notify, text="begun")
        flow.add(studio.extract, video="v").after(notified)
        await flow.enqueue()
        await kit.run_until_idle()
        assert studio.ran == ["notify", "extract"]

    async def test_a_flow_with_the_same_key_exists_once(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        for existing in (False, True, True):
            flow = app.flow("dub", key="v1")
            flow.add(studio.extract, video="v1")
            assert (await flow.enqueue()).existing is existing
            await kit.run_until_idle()
        assert studio.ran == ["extract"]

    async def test_a_flow_sent_twice_starts_once(self, app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
        flow = app.flow("dub")
        flow.add(studio.extract, video="v1")
        first, second = await flow.enqueue(), await flow.enqueue()
        assert first.id == second.id
        await kit.run_until_idle()
        assert studio.ran == ["extract"]

    async def test_several_last_steps_return_results_by_name(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        flow = app.flow("dub")
        flow.add(studio.extract, video="a")
        flow.add(studio.extract, video="b")
        handle = await flow.enqueue()
        await kit.run_until_idle()
        assert await handle.result() == {"extract": "a.wav", "extract-2": "b.wav"}

    async def test_a_caller_that_waits_gets_the_result_when_the_flow_ends(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        flow = app.flow("dub")
        flow.add(studio.extract, video="a")
        handle = await flow.enqueue()
        with pytest.raises(ResultTimeout, match="did not end within 0 s, it is running"):
            await handle.result(timeout=0)

    async def test_events(self, app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
        events: list[Event] = []
        app.on(FlowStarted, FlowEnded)(events.append)
        flow = app.flow("dub", key="v1")
        flow.add(studio.extract, video="v1")
        await flow.enqueue()
        await kit.run_until_idle()
        assert events == [
            FlowStarted(flow="dub/v1", name="dub", steps=1, existing=False),
            FlowEnded(flow="dub/v1", name="dub", state="done", seconds=events[1].seconds, reason=None),  # type: ignore[attr-defined]
        ]

    async def test_a_flow_without_work_ends_when_it_starts(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        events: list[Event] = []
        app.on(FlowStarted, FlowEnded)(events.append)
        flow = app.flow("dub", key="v1")
        flow.map(studio.speak, line=[])
        handle = await flow.enqueue()
        assert await handle.result() == []
        assert [type(one) for one in events] == [FlowStarted, FlowEnded]

    async def test_i3_a_flow_starts_once_although_the_reply_was_lost(
        self, app: Tidemill, studio: Studio, kit: AsyncKit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        advance = app.store.advance

        async def deaf(advances: Sequence[Advance]) -> list[AdvanceResult]:
            await advance(advances)
            monkeypatch.setattr(app.store, "advance", advance)
            raise StoreUnavailable("the reply was lost")

        flow = app.flow("dub", key="v1")
        flow.add(studio.extract, video="v1")
        monkeypatch.setattr(app.store, "advance", deaf)
        assert not (await flow.enqueue()).existing, "it began by this very call"
        assert (await flow.enqueue()).existing


class TestFanOut:
    async def test_one_job_for_each_element_and_a_join(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        flow = app.flow("dub", key="v")
        lines = flow.add(studio.transcribe, audio="a")
        speech = flow.map(studio.speak, line=lines, voice="bob")
        flow.add(studio.mux, video="v", speech=speech)
        handle = await flow.enqueue()
        await kit.run_until_idle()
        assert await handle.result() == {"video": "v", "speech": [f"bob says a:{n}" for n in range(3)]}
        assert [(one.id, one.step, one.index) for one in studio.received] == [
            ("dub/v", "speak", index) for index in range(3)
        ]
        assert studio.ran[-1] == "mux"
        assert studio.ran.count("mux") == 1

    async def test_more_jobs_than_one_advance_takes(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        app.queue("studio", max_length=100)
        flow = app.flow("dub", key="v")
        lines = flow.add(studio.transcribe, audio="a", lines=1_203)
        flow.add(studio.mux, video="v", speech=flow.map(studio.speak, line=lines))
        handle = await flow.enqueue()
        await kit.run_until_idle()
        assert len((await handle.result())["speech"]) == 1_203
        assert len(studio.ran) == len(set(studio.ran)) == 1_203 + 2

    async def test_no_store_call_is_long(
        self, app: Tidemill, studio: Studio, kit: AsyncKit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Several wide flows have waited for a leader."""
        for key in "abcdefgh":
            flow = app.flow("dub", key=key)
            flow.map(studio.speak, line=[str(number) for number in range(250)])
            await flow.enqueue()
        await app.inspect.cancel(Filter(states=(State.READY,)))
        advance, calls = app.store.advance, []

        async def noted(advances: Sequence[Advance]) -> list[AdvanceResult]:
            calls.append(sum(len(one.jobs) + len(one.taken) for one in advances))
            return await advance(advances)

        monkeypatch.setattr(app.store, "advance", noted)
        pass_result = await advance_flows(app.store, app.tasks)
        assert (pass_result.advanced, calls) == (8, [1000, 1000])

    async def test_ten_thousand_jobs_into_a_queue_for_half_of_them(self, tmp_path: Path) -> None:
        app = Tidemill(f"sqlite:///{tmp_path / 'jobs.db'}")
        app.queue("studio", max_length=5_000)
        studio = Studio(app)
        flow = app.flow("dub", key="v")
        lines = flow.add(studio.transcribe, audio="a", lines=10_000)
        flow.add(studio.mux, video="v", speech=flow.map(studio.speak, line=lines))
        async with app:
            handle = await flow.enqueue()
            await app.worker(until_idle=True, heartbeat_thread=False, isolation=False).run()
            assert len((await handle.result(timeout=1))["speech"]) == 10_000
        assert len(studio.ran) == len(set(studio.ran)) == 10_000 + 2

    async def test_an_empty_list(self, app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
        flow = app.flow("dub")
        lines = flow.add(studio.transcribe, audio="a", lines=0)
        flow.add(studio.mux, video="v", speech=flow.map(studio.speak, line=lines))
        handle = await flow.enqueue()
        await kit.run_until_idle()
        assert await handle.result() == {"video": "v", "speech": []}

    async def test_a_mapped_step_maps_over_a_mapped_step(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        flow = app.flow("dub")
        speech = flow.map(studio.speak, line=flow.map(studio.extract, video=["a", "b"]), voice="eve")
        handle = await flow.enqueue()
        await kit.run_until_idle()
        assert await handle.result(speech) == ["eve says a.wav", "eve says b.wav"]

    async def test_every_job_gets_an_unmapped_argument(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        @app.task(queue="studio")
        async def count(line: str, voices: list[str], all_lines: list[str]) -> int:
            return len(voices) + len(all_lines)

        flow = app.flow("dub")
        lines = flow.add(studio.transcribe, audio="a")
        counted = flow.map(count, line=lines, voices=["a", "b"], all_lines=unmapped(lines))
        handle = await flow.enqueue()
        await kit.run_until_idle()
        assert await handle.result(counted) == [5, 5, 5]

    async def test_batches_share_calls(self, app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
        calls: list[list[str]] = []

        @app.batch_task(queue="studio", max_items=10)
        async def embed(texts: list[str]) -> list[int]:
            calls.append(texts)
            return [len(text) for text in texts]

        flow = app.flow("dub")
        numbers = flow.map(embed, flow.add(studio.transcribe, audio="a"))
        one = flow.add(embed, flow.add(studio.extract, video="v"))
        handle = await flow.enqueue()
        await kit.run_until_idle()
        assert await handle.result(numbers) == [3, 3, 3]
        assert await handle.result(one) == 5
        assert [sorted(call) for call in calls] == [["a:0", "a:1", "a:2", "v.wav"]]


class TestMaking:
    async def test_key_and_cost_are_computed_from_results(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        model = app.pool("model", Limit.tokens(1000, per="minute"))

        @app.task(
            queue="studio",
            pool=model,
            cost=lambda speech, rate: {"tokens": rate * len(speech)},
            key=lambda speech, rate: speech[0],
        )
        async def translate(speech: list[str], rate: int) -> int:
            return len(speech)

        flow = app.flow("dub", key="v")
        flow.add(translate, speech=flow.add(studio.transcribe, audio="a"), rate=7)
        await flow.enqueue()
        await kit.run_until_idle()
        job = (await app.inspect.job("dub/v/translate/0")).job
        assert (job.key, job.needs[0].units) == ("a:0", {"tokens": 21})

    async def test_a_job_that_could_not_be_built_takes_its_pools_when_it_is_retried(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        model = app.pool("model", Limit.tokens(10, per="minute"))
        is_mended: list[bool] = []
        ran: list[str] = []

        @app.task(queue="studio", pool=model, cost=lambda line: {"tokens": len(line) / len(is_mended)})
        async def translate(ctx: Context, line: str) -> None:
            ran.append(line)
            ctx.used(tokens=8)

        flow = app.flow("dub", key="v")
        flow.map(translate, line=["a" * 8, "b" * 8])
        flow.add(translate.using(cost={"tokens": 9}), line="c").named("dear")
        handle = await flow.enqueue()
        await kit.run_until_idle(check=False)
        assert (ran, (await app.inspect.job("dub/v/translate/0")).job.reason) == (["c"], "refused")
        await kit.run_for(60, check=False)
        is_mended.append(True)
        assert await handle.retry()
        await kit.run_for(30, check=False)
        assert ran == ["c", "a" * 8], "the second has to wait"
        await kit.run_for(120, check=False)
        assert ran == ["c", "a" * 8, "b" * 8]
        assert await handle.result(timeout=1) == {"translate": [None, None], "dear": None}

    async def test_a_job_that_could_not_be_built_keeps_its_given_key(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        def cost(line: str) -> dict[str, float]:
            raise ValueError(line)

        @app.task(queue="studio", pool=app.pool("model", Limit.tokens(10, per="minute")), cost=cost)
        async def translate(line: str) -> None: ...

        flow = app.flow("dub", key="v")
        flow.add(translate.using(key="ann", priority=2, tags=("film",)), line=flow.add(studio.extract, "v"))
        await flow.enqueue()
        await kit.run_until_idle(check=False)
        job = (await app.inspect.job("dub/v/translate/0")).job
        assert (job.reason, job.key, job.priority, job.tags) == ("refused", "ann", 2, ("film",))

    async def test_a_job_that_cannot_be_built_fails(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        @app.task(queue="studio", key=lambda speech: speech[7])
        async def translate(speech: list[str]) -> int:
            return len(speech)

        flow = app.flow("dub", key="v")
        flow.add(translate, speech=flow.add(studio.transcribe, audio="a"))
        handle = await flow.enqueue()
        await kit.run_until_idle(check=False)
        with pytest.raises(FlowFailed, match="step 'translate' failed"):
            await handle.result()
        error = (await app.inspect.job("dub/v/translate/0")).job.error
        assert error is not None
        assert (error.type, "step 'translate'" in error.message) == ("IndexError", True)

    async def test_a_result_that_does_not_fit_names_the_step(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        @app.task(queue="studio", retry=ONCE)
        async def double(number: int) -> int:
            return 2 * number

        flow = app.flow("dub", key="v")
        flow.add(double, number=flow.add(studio.extract, video="v"))
        await flow.enqueue()
        await kit.run_until_idle(check=False)
        error = (await app.inspect.job("dub/v/double/0")).job.error
        assert error is not None
        assert error.type == "InvalidPayload"
        assert "number is what step 'extract' returned" in error.message

    async def test_a_value_that_is_not_a_list_at_run_time(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        @app.task(queue="studio")
        async def anything() -> Any:
            return {"no": "list"}

        flow = app.flow("dub", key="v")
        flow.map(studio.speak, line=flow.add(anything))
        await flow.enqueue()
        await kit.run_until_idle(check=False)
        error = (await app.inspect.job("dub/v/speak/0")).job.error
        assert error is not None
        assert "step 'anything' returned: that is no list" in error.message

    async def test_a_result_that_is_too_large(self, app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
        @app.task(queue="studio", retry=ONCE)
        async def film() -> str:
            return "x" * MAX_STEP_RESULT_BYTES

        flow = app.flow("dub", key="v")
        flow.add(film)
        await flow.enqueue()
        await kit.run_until_idle(check=False)
        job = (await app.inspect.job("dub/v/film/0")).job
        assert job.error is not None
        assert (job.reason, job.error.type) == ("result too large", "ResultTooLarge")
        await film.enqueue()
        await kit.run_until_idle()

    async def test_results_that_are_too_large_together(
        self, app: Tidemill, studio: Studio, kit: AsyncKit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each result is small, but there are many. The job finds it when it runs, or the advance when it
        computes a key."""

        @app.task(queue="studio", key=lambda speech: speech[0])
        async def keyed(speech: list[str]) -> None: ...

        flow = app.flow("dub", key="v")
        spoken = flow.map(studio.speak, line=[str(number) for number in range(250)])
        flow.add(studio.mux, video="v", speech=spoken)
        flow.add(keyed, speech=spoken)
        await flow.enqueue()
        most = sum(len(f'"anna says {number}"') for number in range(250))
        monkeypatch.setattr(results, "MAX_STEP_INPUT_BYTES", most - 1)
        await kit.run_until_idle(check=False)
        jobs = [(await app.inspect.job(f"dub/v/{step}/0")).job for step in ("mux", "keyed")]
        assert [(job.error and job.error.type, job.reason) for job in jobs] == [
            ("ResultsTooLarge", "results too large"),
            ("ResultsTooLarge", "refused"),
        ]
        assert all("speech: what step 'speak' returned is too much" in str(job.error) for job in jobs)
        monkeypatch.setattr(results, "MAX_STEP_INPUT_BYTES", most)
        await app.flow_handle("dub/v").retry()
        await kit.run_until_idle()

    async def test_sync_handlers_and_middleware_get_results_too(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        seen: list[FlowPosition | None] = []

        @app.middleware
        async def around(ctx: Context, run: Callable[[], Awaitable[Any]]) -> Any:
            seen.append(ctx.flow)
            return await run()

        @app.task(queue="studio")
        def shout(audio: str) -> str:
            return audio.upper()

        flow = app.flow("dub", key="v")
        flow.add(shout, audio=flow.add(studio.extract, video="v"))
        handle = await flow.enqueue()
        await kit.run_until_idle()
        assert await handle.result() == "V.WAV"
        assert [one and one.step for one in seen] == ["extract", "shout"]

    async def test_priority_of_the_flow_and_of_a_step(
        self, app: Tidemill, studio: Studio, kit: AsyncKit
    ) -> None:
        flow = app.flow("dub", key="v", priority=2)
        flow.add(studio.extract, video="a")
        flow.add(studio.extract.using(priority=1, tags=["first"]), video="b").named("urgent")
        await flow.enqueue()
        jobs = {job.id: job for job in (await app.inspect.find(Filter(flow="dub/v"))).jobs}
        assert jobs["dub/v/extract/0"].priority == 2
        assert (jobs["dub/v/urgent/0"].priority, jobs["dub/v/urgent/0"].tags) == (1, ("first",))
        assert {job.trace for job in jobs.values()} == {"dub/v"}
