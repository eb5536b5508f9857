"""Every cause, computed from inputs without a store or a clock."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tidemill import Explanation, State
from tidemill.contract.jobs import ClockReading
from tidemill.contract.queues import QueueInfo
from tidemill.contract.reader import MAX_AHEAD_COUNTED, AttemptRecord, WorkerInfo
from tidemill.core.jobs import Error, Job
from tidemill.core.needs import Need
from tidemill.core.queues import Pause, QueueSettings
from tidemill.core.transitions import EXPIRED, POISON, REFUSED, REPLACED, SUPERSEDED, UNKNOWN_TASK
from tidemill.inspect.causes import CauseCode
from tidemill.inspect.explanation import explain
from tidemill.inspect.explanation_inputs import ExplanationInputs

NOW = 1_777_593_600.0  # 2026-05-01 00:00:00 UTC
BOOM = Error("ValueError", "boom")
JOB = Job(
    seq=1,
    id="job-1",
    queue="feeds",
    task="refresh",
    payload=b"{}",
    state=State.READY,
    priority=5,
    lane="",
    created=NOW - 60,
    due=NOW - 60,
)
IDLE = WorkerInfo(id="w1", host="mill", pid=7, queues=("feeds",), concurrency=10, holds=0, seen=NOW)
BUSY = replace(IDLE, holds=10)


def queue(pause: Pause | None = None, **settings: Any) -> QueueInfo:
    its = QueueSettings(**settings)
    return QueueInfo(name="feeds", declared=its, override=None, settings=its, pause=pause)


def explain_job(job: Job = JOB, **facts: Any) -> Explanation:
    given = {"queue": queue(), "workers": (IDLE,), **facts}
    return explain(ExplanationInputs(now=ClockReading(NOW, 500.0), job=job, **given), UTC)


def codes(explanation: Explanation) -> list[CauseCode]:
    return [cause.code for cause in explanation.causes]


def failed_attempt(**changes: Any) -> AttemptRecord:
    record = AttemptRecord(0, 1, NOW - 11, NOW - 10, "w1", "retry", BOOM)
    return replace(record, **changes)


def test_nothing_blocks_the_job() -> None:
    explanation = explain_job()
    assert codes(explanation) == [CauseCode.NEXT]
    assert explanation.sentence == (
        "Nothing is in the way of the job: it could start since 2026-04-30 23:59:00 UTC, and 1 worker serves "
        "its queue."
    )


def test_a_paused_queue_says_since_when_until_when_and_why() -> None:
    explanation = explain_job(queue=queue(Pause(NOW - 60, NOW + 200, "the provider is down")))
    assert codes(explanation) == [CauseCode.PAUSED]
    assert explanation.sentence == (
        "The queue 'feeds' has been paused since 2026-04-30 23:59:00 UTC and resumes in 3 min 20 s, at "
        "2026-05-01 00:03:20 UTC. The reason given is: the provider is down."
    )
    assert explanation.details == {
        "queue": "feeds",
        "since": NOW - 60,
        "until": NOW + 200,
        "reason": "the provider is down",
    }


def test_a_pause_without_an_end_and_without_a_reason() -> None:
    explanation = explain_job(queue=queue(Pause(NOW - 60)))
    assert explanation.sentence == (
        "The queue 'feeds' has been paused since 2026-04-30 23:59:00 UTC until it is resumed."
    )


def test_a_pause_that_is_over_is_no_cause() -> None:
    assert codes(explain_job(queue=queue(Pause(NOW - 60, NOW)))) == [CauseCode.NEXT]


def test_no_worker_serves_the_queue() -> None:
    explanation = explain_job(workers=())
    assert codes(explanation) == [CauseCode.NO_WORKER]
    assert explanation.sentence == "No living worker serves the queue 'feeds': start one that does."


@pytest.mark.parametrize(
    ("known", "remedy"),
    [(False, "start one whose code has it"), (True, "this program does, so they run other code")],
)
def test_no_worker_knows_the_task(known: bool, remedy: str) -> None:
    job = replace(JOB, state=State.SCHEDULED, due=NOW + 5, unknown_for=3600.0, started=NOW - 20, worker="w1")
    explanation = explain_job(job, task_known=known)
    assert codes(explanation) == [CauseCode.UNKNOWN_TASK]
    assert explanation.sentence == (
        f"The workers it was offered to (the last was w1) do not know the task 'refresh': {remedy}. They "
        "have put it off for 1 h so far; after 23 h more it fails. It is offered again in 5 s, at "
        "2026-05-01 00:00:05 UTC."
    )


def test_an_unknown_task_that_is_offered_again() -> None:
    explanation = explain_job(replace(JOB, unknown_for=90.0))
    assert codes(explanation) == [CauseCode.UNKNOWN_TASK]
    assert explanation.sentence.endswith("for 1 min 30 s so far; after 23 h 58 min more it fails.")


def test_a_job_enqueued_with_a_start_time_is_scheduled() -> None:
    explanation = explain_job(replace(JOB, state=State.SCHEDULED, due=NOW + 2 * 86_400 + 5))
    assert codes(explanation) == [CauseCode.SCHEDULED]
    assert explanation.sentence == "The job is scheduled to start in 2 d, at 2026-05-03 00:00:05 UTC."
    assert explanation.details == {"until": NOW + 2 * 86_400 + 5}


RETRYING = replace(
    JOB, state=State.SCHEDULED, due=NOW + 90, attempts=2, error=BOOM, started=NOW - 11, worker="w1"
)


def test_scheduled_by_a_retry_names_the_error() -> None:
    explanation = explain_job(RETRYING, last_attempt=failed_attempt(attempt=2), task_known=True, attempts=3)
    assert codes(explanation) == [CauseCode.RETRYING]
    assert explanation.sentence == (
        "Attempt 2 of 3 failed with ValueError: boom. The next starts in 1 min 30 s, at "
        "2026-05-01 00:01:30 UTC."
    )
    assert explanation.details["error"] == {"type": "ValueError", "message": "boom"}


def test_a_retry_of_a_task_this_program_does_not_have() -> None:
    explanation = explain_job(RETRYING, last_attempt=failed_attempt(attempt=2))
    assert explanation.sentence.startswith("Attempt 2 failed with ValueError: boom. ")


def test_a_snoozed_job() -> None:
    explanation = explain_job(replace(JOB, state=State.SCHEDULED, due=NOW + 30, started=NOW - 1))
    assert codes(explanation) == [CauseCode.SNOOZED]
    assert (
        explanation.sentence
        == "Its handler put the job off; it starts again in 30 s, at 2026-05-01 00:00:30 UTC."
    )


def test_a_job_snoozed_after_a_failed_attempt() -> None:
    explanation = explain_job(replace(RETRYING, attempts=1, started=NOW - 1), last_attempt=failed_attempt())
    assert codes(explanation) == [CauseCode.SNOOZED]


def test_p18_units_requested_while_running_are_named() -> None:
    needs = (Need("voyage", None, {"tokens": 4000.0}), Need("site", "eu"))
    sentence = explain_job(replace(JOB, deferred_needs=needs)).sentence
    assert "While it ran it asked the pool voyage for 4000 tokens more, which it waits for." in sentence
    assert "asked the pool site of eu for a call more" in sentence
    ended = replace(JOB, deferred_needs=needs, state=State.DONE, finished=NOW)
    assert "asked" not in explain_job(ended).sentence


def test_a_request_merged_into_a_retrying_job_makes_it_a_scheduled_one() -> None:
    explanation = explain_job(replace(RETRYING, attempts=0), last_attempt=failed_attempt(attempt=2))
    assert codes(explanation) == [CauseCode.SCHEDULED]


def test_a_failure_of_an_earlier_generation_is_not_this_one() -> None:
    job = replace(RETRYING, generation=1, attempts=0, error=None, started=None)
    assert codes(explain_job(job, last_attempt=failed_attempt())) == [CauseCode.SCHEDULED]
    stepped_back = replace(job, started=NOW - 20)
    assert codes(explain_job(stepped_back, last_attempt=failed_attempt())) == [CauseCode.SNOOZED]


def test_a_due_scheduled_job_has_the_causes_of_a_ready_job() -> None:
    job = replace(JOB, state=State.SCHEDULED)
    assert codes(explain_job(job)) == [CauseCode.NEXT]
    assert codes(explain_job(job, workers=(BUSY,))) == [CauseCode.WORKERS_BUSY]


WAITING = replace(JOB, state=State.WAITING, after="job-0", unique_key="feed-7")


def test_a_successor_waits_for_its_predecessor() -> None:
    before = replace(JOB, id="job-0", state=State.RUNNING, worker="w1", started=NOW - 60)
    explanation = explain_job(WAITING, predecessor=before)
    assert codes(explanation) == [CauseCode.PREDECESSOR]
    assert explanation.sentence == (
        "The job starts when job job-0, before it with the unique key 'feed-7', has ended; that one is "
        "running on worker w1 since 2026-04-30 23:59:00 UTC."
    )


def test_a_predecessor_that_does_not_run_or_is_gone() -> None:
    assert explain_job(WAITING, predecessor=replace(JOB, id="job-0")).sentence.endswith("that one is ready.")
    assert explain_job(WAITING).sentence.endswith("that one is gone.")


def test_a_successor_may_also_be_for_later() -> None:
    explanation = explain_job(replace(WAITING, due=NOW + 60))
    assert codes(explanation) == [CauseCode.SCHEDULED, CauseCode.PREDECESSOR]


def test_the_queue_is_at_its_limit() -> None:
    explanation = explain_job(queue=queue(concurrency=2), running=2)
    assert codes(explanation) == [CauseCode.QUEUE_LIMIT]
    assert explanation.sentence == (
        "2 jobs of the queue run, and 'feeds' allows 2 at once: the next starts when one ends."
    )
    assert codes(explain_job(queue=queue(concurrency=2), running=1)) == [CauseCode.NEXT]


def test_the_key_is_at_its_limit() -> None:
    explanation = explain_job(
        replace(JOB, lane="a.example"), queue=queue(key_concurrency=1), running_in_lane=1
    )
    assert codes(explanation) == [CauseCode.KEY_LIMIT]
    assert explanation.sentence == (
        "1 job with the key 'a.example' runs, and 'feeds' allows 1 per key at once: the next "
        "starts when one ends."
    )


def test_all_workers_are_busy() -> None:
    explanation = explain_job(workers=(BUSY, replace(BUSY, id="w2")))
    assert codes(explanation) == [CauseCode.WORKERS_BUSY]
    assert explanation.sentence == "All 20 slots of the 2 workers that serve 'feeds' are taken."
    one = explain_job(workers=(replace(IDLE, concurrency=1, holds=1),))
    assert one.sentence == "The only slot of the 1 worker that serves 'feeds' is taken."
    assert codes(explain_job(workers=(BUSY, IDLE))) == [CauseCode.NEXT]


def test_others_start_before_it() -> None:
    assert explain_job(ahead=0).code is CauseCode.NEXT
    assert explain_job(ahead=1).sentence == "1 job of its queue without a key starts before it."
    keyed = explain_job(replace(JOB, lane="a.example"), ahead=12)
    assert keyed.sentence == "12 jobs with the key 'a.example' start before it."
    assert keyed.details == {"ahead": 12, "counted_all": True, "key": "a.example", "ready": 0}
    assert explain_job(ahead=MAX_AHEAD_COUNTED).sentence.startswith("At least 10000 jobs ")


def test_expiry_comes_before_all_other_causes() -> None:
    explanation = explain_job(replace(JOB, expires=NOW - 5), queue=queue(Pause(NOW)))
    assert codes(explanation) == [CauseCode.EXPIRED, CauseCode.PAUSED]
    assert explanation.sentence.startswith(
        "The job expired 5 s ago, at 2026-04-30 23:59:55 UTC: it will be cancelled instead of started."
    )


def test_a_job_that_will_expire_says_so() -> None:
    explanation = explain_job(replace(JOB, expires=NOW + 5), workers=())
    assert explanation.sentence.endswith(
        "Unless it starts before, it is cancelled in 5 s, at 2026-05-01 00:00:05 UTC."
    )


def test_all_causes_are_listed_the_most_blocking_first() -> None:
    explanation = explain_job(
        replace(JOB, lane="a"),
        queue=queue(Pause(NOW - 1, NOW + 60), concurrency=1, key_concurrency=1),
        workers=(),
        running=1,
        running_in_lane=1,
        ahead=3,
    )
    assert codes(explanation) == [
        CauseCode.NO_WORKER,
        CauseCode.PAUSED,
        CauseCode.QUEUE_LIMIT,
        CauseCode.KEY_LIMIT,
        CauseCode.BEHIND,
    ]
    assert all(cause.sentence in explanation.sentence for cause in explanation.causes)
    assert explanation.details == explanation.causes[0].details


@pytest.mark.parametrize(
    ("until", "order"),
    [
        (None, [CauseCode.PAUSED, CauseCode.SCHEDULED]),
        (NOW + 100, [CauseCode.PAUSED, CauseCode.SCHEDULED]),
        (NOW + 10, [CauseCode.SCHEDULED, CauseCode.PAUSED]),
    ],
)
def test_of_two_times_the_later_blocks_more(until: float | None, order: list[CauseCode]) -> None:
    job = replace(JOB, state=State.SCHEDULED, due=NOW + 50)
    assert codes(explain_job(job, queue=queue(Pause(NOW, until)))) == order


RUNNING = replace(
    JOB, state=State.RUNNING, worker="w1", started=NOW - 65, attempts=1, progress=0.5, note="embedding"
)


def test_running_says_where_since_when_and_how_far() -> None:
    explanation = explain_job(RUNNING, worker=IDLE, timeout=120.0)
    assert codes(explanation) == [CauseCode.RUNNING]
    assert explanation.sentence == (
        "Attempt 2 has been running on worker w1 (mill, 7) for 1 min 5 s, since 2026-04-30 23:58:55 UTC; 50% "
        "done; it says 'embedding'. Its timeout ends in 55 s, at 2026-05-01 00:00:55 UTC."
    )
    assert explanation.details["host"] == "mill"


def test_running_in_a_paused_queue_runs_on() -> None:
    assert codes(explain_job(RUNNING, worker=IDLE, queue=queue(Pause(NOW)))) == [CauseCode.RUNNING]


def test_running_without_progress_past_its_timeout() -> None:
    explanation = explain_job(replace(RUNNING, progress=None, note=None), worker=IDLE, timeout=60.0)
    assert explanation.sentence.endswith(
        "since 2026-04-30 23:58:55 UTC. Its timeout of 1 min is over: it is about to be stopped."
    )


def test_running_on_a_worker_that_is_quiet() -> None:
    explanation = explain_job(RUNNING, worker=replace(IDLE, seen=NOW - 12))
    assert codes(explanation) == [CauseCode.RUNNING]
    assert explanation.sentence.endswith("Its worker was last heard of 12 s ago.")
    assert explanation.details["seen"] == NOW - 12
    assert "heard of" not in explain_job(RUNNING, worker=replace(IDLE, seen=NOW - 1)).sentence


def test_a_message_of_several_lines_becomes_one_line() -> None:
    explanation = explain_job(
        replace(
            ENDED, state=State.FAILED, reason="failed", error=Error("HTTPError", "400\nsee https://x/400")
        ),
        last_attempt=failed_attempt(ended=NOW - 3),
    )
    assert explanation.sentence.endswith("attempt 2 ended with HTTPError: 400 see https://x/400.")


def test_running_on_a_worker_that_no_longer_reports() -> None:
    explanation = explain_job(replace(RUNNING, lease=520.0))
    assert codes(explanation) == [CauseCode.WORKER_SILENT]
    assert explanation.sentence.endswith(
        "No worker of that name reports: if it has died, the job goes to another when its lease ends in 20 s."
    )
    over = explain_job(replace(RUNNING, lease=400.0))
    assert over.sentence.endswith("the job goes to another as soon as any worker looks.")


ENDED = replace(JOB, finished=NOW - 3, started=NOW - 4, attempts=2, worker="w1")


def test_done() -> None:
    explanation = explain_job(replace(ENDED, state=State.DONE))
    assert codes(explanation) == [CauseCode.DONE]
    assert explanation.sentence == "The job is done: attempt 2 succeeded 3 s ago, at 2026-04-30 23:59:57 UTC."


FAILED = replace(ENDED, state=State.FAILED, reason="failed", error=BOOM)
LAST = AttemptRecord(0, 2, NOW - 4, NOW - 3, "w1", "fail", BOOM)
BEFORE = "Before that, 2 attempts failed, the last with ValueError: boom."
WHEN = "3 s ago, at 2026-04-30 23:59:57 UTC"


@pytest.mark.parametrize(
    ("job", "last", "sentence"),
    [
        (FAILED, LAST, f"The job failed for good {WHEN}: attempt 2 ended with ValueError: boom."),
        (
            replace(FAILED, reason="invalid payload"),
            LAST,
            f"The job failed for good {WHEN} (invalid payload): attempt 2 ended with ValueError: boom.",
        ),
        (
            replace(FAILED, reason=POISON, crashes=3, error=Error("WorkerDied", "")),
            LAST,
            f"The job failed {WHEN}: it crashed 3 times, the last with WorkerDied.",
        ),
        (
            replace(FAILED, reason=UNKNOWN_TASK),
            None,
            f"The job failed {WHEN}: no worker knew its task 'refresh' for a day.",
        ),
        (
            replace(FAILED, reason=REFUSED, error=Error("InvalidPayload", "url: missing")),
            None,
            f"The job was refused {WHEN}: InvalidPayload: url: missing.",
        ),
        (
            replace(FAILED, reason="archived by hand", attempts=0, error=None),
            None,
            f"The job was put among the failed ones by hand {WHEN}: archived by hand.",
        ),
        (
            replace(FAILED, generation=1, reason="archived by hand", attempts=0, error=None),
            LAST,
            f"The job was put among the failed ones by hand {WHEN}: archived by hand.",
        ),
        (
            replace(FAILED, reason="not worth it"),
            failed_attempt(attempt=2),
            f"The job was put among the failed ones by hand {WHEN}: not worth it. {BEFORE}",
        ),
    ],
)
def test_failed_says_how(job: Job, last: AttemptRecord | None, sentence: str) -> None:
    explanation = explain_job(job, last_attempt=last)
    assert codes(explanation) == [CauseCode.FAILED]
    assert explanation.sentence == sentence


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("not needed any more!", "not needed any more!"),
        (None, "no reason was given."),
        (EXPIRED, "it had not started by the time it expired."),
        (REPLACED, "a newer request for its unique key took its place."),
        (SUPERSEDED, "its attempt failed while a newer request for its unique key waited to run instead."),
    ],
)
def test_cancelled_says_why(reason: str | None, words: str) -> None:
    explanation = explain_job(replace(ENDED, state=State.CANCELLED, reason=reason))
    assert codes(explanation) == [CauseCode.CANCELLED]
    assert explanation.sentence == f"The job was cancelled {WHEN}: {words}"


def test_times_are_in_the_requested_zone_with_its_offset() -> None:
    job = replace(JOB, state=State.SCHEDULED, due=NOW + 0.44)
    facts = ExplanationInputs(now=ClockReading(NOW, 0.0), job=job, queue=queue(), workers=(IDLE,))
    shanghai = timezone(timedelta(hours=8))
    assert explain(facts, shanghai).sentence == (
        "The job is scheduled to start in 0.4 s, at 2026-05-01 08:00:00 UTC+08:00."
    )
    assert "UTC" in explain(facts).sentence


def test_a_time_outside_the_calendar_is_shown_as_unix_time() -> None:
    explanation = explain_job(replace(JOB, state=State.SCHEDULED, due=1e20))
    assert explanation.sentence == "The job is scheduled to start in 1e+20 s, at Unix time 1e+20."


def test_an_explanation_is_data_and_reads_as_its_sentence() -> None:
    explanation = explain_job(RETRYING, last_attempt=failed_attempt(attempt=2), workers=())
    assert str(explanation) == explanation.sentence
    data = msgspec.json.decode(msgspec.json.encode(explanation))
    assert data["code"] == "no_worker"
    assert [cause["code"] for cause in data["causes"]] == ["no_worker", "retrying"]


TIMES = st.none() | st.floats(NOW - 1e9, NOW + 1e9) | st.sampled_from([NOW, 0.0, 1e300])
TEXTS = st.none() | st.text(max_size=5)
JOBS = st.builds(
    replace,
    st.just(JOB),
    state=st.sampled_from(State),
    lane=st.sampled_from(["", "a"]),
    due=TIMES.map(lambda time: time or 0.0),
    expires=TIMES,
    started=TIMES,
    finished=TIMES,
    attempts=st.integers(0, 3),
    generation=st.integers(0, 1),
    error=st.none() | st.just(BOOM) | st.just(Error("E", "")),
    reason=TEXTS | st.sampled_from([POISON, REFUSED, UNKNOWN_TASK, EXPIRED]),
    worker=TEXTS,
    note=TEXTS,
    progress=st.none() | st.floats(0, 1),
    lease=st.floats(0, 1000),
    unknown_for=st.sampled_from([0.0, 1.0, 1e6]),
)
FACTS = st.builds(
    ExplanationInputs,
    now=st.just(ClockReading(NOW, 500.0)),
    job=JOBS,
    queue=st.sampled_from([queue(), queue(Pause(NOW)), queue(Pause(NOW, NOW + 9, "r"), concurrency=1)]),
    running=st.integers(0, 2),
    ahead=st.none() | st.integers(0, MAX_AHEAD_COUNTED),
    workers=st.sampled_from([(), (IDLE,), (BUSY,)]),
    worker=st.none() | st.just(IDLE),
    predecessor=st.none() | JOBS,
    last_attempt=st.none() | st.just(LAST),
    timeout=st.none() | st.just(60.0),
)


@given(facts=FACTS)
def test_any_inputs_give_a_cause_in_whole_sentences(facts: ExplanationInputs) -> None:
    explanation = explain(facts, UTC)
    assert explanation.causes
    assert explanation.code is explanation.causes[0].code
    assert len(set(codes(explanation))) == len(explanation.causes)
    for cause in explanation.causes:
        assert cause.sentence[0].isupper() or cause.sentence[0].isdigit()
        assert cause.sentence.endswith((".", "!", "?", "。"))
    assert msgspec.json.decode(msgspec.json.encode(explanation))["state"] == facts.job.state.value
