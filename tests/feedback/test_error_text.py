"""The last resort (N4): refusals found in error texts, by whole words."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tidemill.core.feedback import Reason, Refusal
from tidemill.feedback import read_feedback
from tidemill.feedback.provider_reply import MAX_GROUP_MEMBERS, group_members

NOW = 1_800_000_000.0


def refusal(text: str) -> Refusal | None:
    return read_feedback(RuntimeError(text), now=NOW).refusal


@pytest.mark.parametrize(
    "text",
    [
        "song 42901 failed",
        "song 42901: rating limited",
        "song #429 is missing",
        "item-429 is missing",
        "could not decode 1.429 of it",
        "input_value=429",
        "retry in 5 s",
        "the daily report is late",
        "quotation mark expected",
        "corporate limit",
        "",
    ],
)
def test_a_text_that_is_no_refusal(text: str) -> None:
    assert refusal(text) is None


@pytest.mark.parametrize(
    ("text", "reason", "hint"),
    [
        ("quota exceeded: GenerateRequestsPerDayPerProjectPerModel", Reason.DAY_QUOTA, None),
        ("RESOURCE_EXHAUSTED: 250 requests per day", Reason.DAY_QUOTA, None),
        ("429 daily limit reached, retry in 20s", Reason.DAY_QUOTA, 20),
        ("quota exceeded: GenerateRequestsPerMinutePerProject", Reason.RATE, None),
        ("RESOURCE_EXHAUSTED. Please retry in 20.04s.", Reason.RATE, 20.04),
        ("rate limit: try again in 6m0s", Reason.RATE, 360),
        ("Rate-limited; retry after 2 minutes", Reason.RATE, 120),
        ("too many requests, retry in 250 milliseconds", Reason.RATE, 0.25),
        ("rate_limit_exceeded: 60 requests/min", Reason.RATE, None),
        ("HTTP 429", Reason.UNKNOWN, None),
        ("Error code: 429", Reason.UNKNOWN, None),
        ("status=429", Reason.UNKNOWN, None),
        ("RateLimitError", Reason.UNKNOWN, None),
        ("INSUFFICIENT QUOTA", Reason.UNKNOWN, None),
    ],
)
def test_a_day_a_minute_or_unknown(text: str, reason: Reason, hint: float | None) -> None:
    found = refusal(text)
    assert found is not None
    assert (found.reason, found.retry_after) == (reason, hint)


@pytest.mark.parametrize("text", ["quota exceeded", "RESOURCE_EXHAUSTED", "Resource has been exhausted"])
def test_a_bare_quota_is_the_days_when_it_comes_again(text: str) -> None:
    found = refusal(text)
    assert found is not None
    assert (found.reason, found.then) == (Reason.UNKNOWN, Reason.DAY_QUOTA)


def test_a_bare_rate_limit_is_not() -> None:
    found = refusal("rate limit reached")
    assert found is not None
    assert found.then is None


@pytest.mark.parametrize(
    "error",
    [FileNotFoundError(2, "No such file", "daily quota.csv"), KeyError("quota"), TypeError("429 quota")],
)
def test_a_mistake_of_the_program_is_no_refusal(error: Exception) -> None:
    assert read_feedback(error, now=NOW).refusal is None


def test_words_refine_a_status_that_leaves_the_question_open() -> None:
    def said(status: int, text: str, **headers: str) -> tuple[Reason, float | None]:
        found = read_feedback((status, {"retry-after": "20"} if headers else {}, text), now=NOW).refusal
        assert found is not None
        return found.reason, found.retry_after

    assert said(429, "limited: quota per day", hint="") == (Reason.DAY_QUOTA, 20)
    assert said(429, "too many requests, retry in 7 s") == (Reason.RATE, 7)
    assert said(403, "Daily quota exceeded") == (Reason.DAY_QUOTA, None)
    assert said(403, "no") == (Reason.FORBIDDEN, None)
    assert said(401, "quota") == (Reason.FORBIDDEN, None)
    assert said(429, "quota exceeded", hint="") == (Reason.RATE, 20)


def test_an_answer_may_speak_of_rate_limits() -> None:
    answer = SimpleNamespace(headers={"server": "x"}, text="429 means rate limit: quota exceeded per day")
    assert read_feedback(answer, now=NOW).refusal is None
    assert (
        read_feedback(
            {"text": answer.text, "message": answer.text, "code": "insufficient_quota"}, now=NOW
        ).refusal
        is None
    )


@pytest.mark.parametrize("status", [200, 500, 404])
def test_words_change_no_other_status(status: int) -> None:
    assert read_feedback((status, {}, "429 rate limit, quota exceeded per day"), now=NOW).refusal is None


class _Throttled(ConnectionError):
    """An error that a library derives from a builtin, with words of its API."""


def test_words_of_a_librarys_error_count_and_those_of_our_own_mistakes_do_not() -> None:
    text = "rate limit exceeded, retry in 7 seconds"
    assert read_feedback(_Throttled(text), now=0.0).refusal is not None
    for mistake in (KeyError(text), TypeError(text), ConnectionError(text)):
        assert read_feedback(mistake, now=0.0).refusal is None


def test_of_a_large_group_of_errors_a_bounded_number_is_read() -> None:
    errors = [ValueError(f"{number}") for number in range(MAX_GROUP_MEMBERS + 5)]
    group = ExceptionGroup("many", [*errors[:2], ExceptionGroup("inner", errors[2:])])
    assert list(group_members(group)) == errors[:MAX_GROUP_MEMBERS]
    assert list(group_members(errors[0])) == errors[:1]
