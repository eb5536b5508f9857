"""Explains why a step of a flow has no job yet."""

from __future__ import annotations

import pytest

from tests.flows.support import Studio, claim_of, dub
from tidemill import JobNotFound, State, Tidemill
from tidemill.core.claims import ClaimedJob, Settlement
from tidemill.core.jobs import Error
from tidemill.core.operator_changes import DeleteJobs
from tidemill.core.outcomes import Outcome, RetryLater, Success
from tidemill.inspect.causes import CauseCode
from tidemill.testing.kit import AsyncKit

UNSERVED = "No living worker serves the queue 'studio': start one that does."


class ManualWorker:
    """Claims and settles by hand, without a live worker."""

    def __init__(self, app: Tidemill) -> None:
        self._store = app.store

    async def claim(self) -> ClaimedJob:
        (claimed,) = (await self._store.claim(claim_of("studio"))).jobs
        return claimed

    async def settle(self, outcome: Outcome) -> None:
        job = await self.claim()
        await self._store.settle([Settlement(job.id, job.fence, job.claim, outcome)])


async def sentence(app: Tidemill, job: str) -> str:
    """Returns the explanation without the name of its flow."""
    text, _, _ = (await app.explain(job)).sentence.partition(" It is step ")
    return text


async def test_a_step_that_waits_for_its_parents(app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
    await dub(app, studio)
    explanation = await app.explain("dub/v/transcribe/0")
    assert explanation.sentence == (
        f"Waits for extract, which is ready. Of dub/v/extract/0: {UNSERVED} "
        "It is step 'transcribe' of flow 'dub/v'."
    )
    assert (explanation.code, explanation.state) == (CauseCode.STEPS_BEFORE, State.WAITING)
    assert (explanation.task, explanation.details["waits_for"]) == (studio.transcribe.name, ["extract"])
    [parent] = explanation.details["parents"]
    assert (parent["job"], parent["state"], parent["code"]) == ("dub/v/extract/0", "ready", "no_worker")
    assert await sentence(app, "dub/v/mux/0") == "Waits for speak, which waits for transcribe."


async def test_a_parent_that_runs(app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
    await dub(app, studio)
    await ManualWorker(app).claim()
    text = await sentence(app, "dub/v/transcribe/0")
    assert text.startswith("Waits for extract, which is running. Of dub/v/extract/0: Attempt 1 has been runn")


async def test_a_parent_behind_others(app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
    for number in range(2):
        await studio.extract.enqueue(video=str(number))
    await dub(app, studio)
    text = await sentence(app, "dub/v/transcribe/0")
    assert text.startswith("Waits for extract, which is ready. ")
    assert text.endswith("2 jobs of its queue without a key start before it.")


async def test_a_parent_in_a_paused_queue(app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
    await dub(app, studio)
    await app.inspect.pause("studio", reason="the disk is full")
    text = await sentence(app, "dub/v/transcribe/0")
    assert text.startswith("Waits for extract, which is ready. Of dub/v/extract/0: The queue 'studio' has be")
    assert "The reason given is: the disk is full." in text


async def test_a_parent_in_a_queue_at_its_limit(app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
    await studio.extract.enqueue(video="w")
    await dub(app, studio)
    await app.inspect.override("studio", by="ann", concurrency=1)
    await ManualWorker(app).claim()
    text = await sentence(app, "dub/v/transcribe/0")
    assert text.startswith("Waits for extract, which is ready. ")
    assert "1 job of the queue runs, and 'studio' allows 1 at once: the next starts when one ends." in text


async def test_a_parent_that_waits_for_its_retry(app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
    await dub(app, studio)
    await ManualWorker(app).settle(RetryLater(60.0, Error("OSError", "no route")))
    text = await sentence(app, "dub/v/transcribe/0")
    assert text.startswith("Waits for extract, which waits for its retry. Of dub/v/extract/0: ")
    assert "OSError: no route. The next starts in 1 min" in text


async def test_a_parent_whose_end_is_not_processed_yet(app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
    await dub(app, studio)
    await ManualWorker(app).settle(Success(b'"v.wav"'))
    assert await sentence(app, "dub/v/transcribe/0") == (
        "Waits for extract, whose job dub/v/extract/0 is done: "
        "the flow goes on when a worker next looks at it."
    )


async def test_a_parent_that_was_deleted(app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
    await dub(app, studio)
    await app.inspect.change("dub/v/extract/0", DeleteJobs())
    assert (await sentence(app, "dub/v/transcribe/0")).startswith(
        "Waits for extract, whose job dub/v/extract/0 is gone: "
    )


async def test_a_parent_whose_compensation_runs(app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
    studio.broken.add("extract")
    flow = app.flow("dub", key="v")
    audio = flow.add(studio.extract, video="v").on_failure(compensate=studio.silence.using(delay=60))
    flow.add(studio.transcribe, audio=audio)
    await flow.enqueue()
    await kit.run_until_idle(check=False)
    text = await sentence(app, "dub/v/transcribe/0")
    assert text.startswith("Waits for extract, which failed, and whose compensation is scheduled. ")
    assert "Of dub/v/extract!/0: " in text


async def test_more_parents_than_are_read(app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
    flow = app.flow("dub", key="v")
    parents = [flow.add(studio.extract, video="v").named(f"extract{number}") for number in range(7)]
    flow.add(studio.notify).after(*parents)
    await flow.enqueue()
    text = await sentence(app, "dub/v/notify/0")
    assert text.startswith("Waits for extract0, which is ready and extract1, ")
    assert "extract4, which is ready and 2 more." in text


async def test_a_flow_that_was_cancelled(app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
    handle = await dub(app, studio)
    await handle.cancel(reason="the film was withdrawn")
    explanation = await app.explain("dub/v/mux/0")
    assert explanation.code is CauseCode.FLOW_ENDED
    assert "No job is made of it: the flow is cancelled: the film was withdrawn." in explanation.sentence


async def test_a_step_that_will_never_run(app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
    studio.broken.add("extract")
    await dub(app, studio)
    await kit.run_until_idle(check=False)
    explanation = await app.explain("dub/v/mux/0")
    assert explanation.code is CauseCode.FLOW_ENDED
    assert "the flow is failed: step 'extract' failed" in explanation.sentence


async def test_a_join_that_waits_for_some_of_many(app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
    flow = app.flow("dub", key="v")
    speech = flow.map(studio.speak, line=["a", "b", "c"])
    flow.add(studio.mux, video="v", speech=speech)
    await flow.enqueue()
    assert (await sentence(app, "dub/v/mux/0")).startswith(
        "Waits for speak (0 of 3 done), the last job of which is ready. Of dub/v/speak/2: "
    )
    await ManualWorker(app).settle(Success(b'"a"'))
    await app.inspect.pause("studio")
    await kit.run_until_idle()
    text = await sentence(app, "dub/v/mux/0")
    assert text.startswith("Waits for speak (1 of 3 done), the last job of which is ready. ")
    assert "The queue 'studio' has been paused" in text


async def test_a_job_of_a_flow(app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
    await dub(app, studio)
    explanation = await app.explain("dub/v/extract/0")
    assert explanation.sentence.endswith("It is job 0 of step 'extract' of flow 'dub/v'.")


async def test_a_deleted_job_is_not_a_future_job(app: Tidemill, studio: Studio, kit: AsyncKit) -> None:
    await dub(app, studio)
    await app.inspect.change("dub/v/extract/0", DeleteJobs())
    with pytest.raises(JobNotFound):
        await app.explain("dub/v/extract/0")


@pytest.mark.parametrize("job", ["dub/v/nothing/0", "dub/v/extract/1", "dub/w/extract/0", "x", "a/b/c"])
async def test_a_job_that_no_flow_creates(app: Tidemill, studio: Studio, kit: AsyncKit, job: str) -> None:
    await dub(app, studio)
    with pytest.raises(JobNotFound):
        await app.explain(job)
