"""The user's classifiers run first; nothing raises, blocks or takes long."""

from __future__ import annotations

import json
import time
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.feedback import fake_responses
from tidemill.core.feedback import Reason, Refusal
from tidemill.feedback import ProviderFeedback, read_feedback

NOW = 1_800_000_000.0
MINE = Refusal(reason=Reason.STATED, retry_after=5)


def test_the_users_classifier_goes_first() -> None:
    error = fake_responses.genai_error(fake_responses.GEMINI_DAY)
    called: list[object] = []

    def mine(source: object) -> Refusal | None:
        called.append(source)
        return MINE

    assert read_feedback(error, now=NOW, classifiers=[lambda _: None, mine]).refusal is MINE
    assert called == [error]


def test_it_may_see_a_refusal_in_an_answer() -> None:
    assert read_feedback((200, {}, {"ok": False}), now=NOW, classifiers=[lambda _: MINE]).refusal is MINE


def test_a_raising_classifier_is_reported_and_the_next_one_is_called() -> None:
    def broken(_: object) -> NoReturn:
        raise KeyError("code")

    reading = read_feedback((429, {}, ""), now=NOW, classifiers=[broken])
    assert reading.refusal is not None
    assert reading.refusal.reason is Reason.UNKNOWN
    (problem,) = reading.problems
    assert "broken raised KeyError: 'code'" in problem


def test_a_wrong_answer_is_reported() -> None:
    async def asynchronous(_: object) -> None:
        raise AssertionError("never awaited")

    reading = read_feedback((429, {}, ""), now=NOW, classifiers=[asynchronous, lambda _: "rate"])  # type: ignore[list-item, return-value]
    assert ["coroutine" in reading.problems[0], "not str" in reading.problems[1]] == [True, True]
    assert reading.refusal is not None


@pytest.mark.parametrize("source", [None, 0, True, 3.5, "", b"", [], (), {}, object(), int, (True,), (429,)])
def test_nothing_strange_raises(source: Any) -> None:
    reading = read_feedback(source, now=NOW)
    assert reading.problems == ()
    assert (reading.refusal is not None) == (source == (429,))


class Hostile(Exception):
    """An object whose every attribute raises."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError(name)

    @property
    def response(self) -> NoReturn:
        raise RuntimeError("no")


def test_an_object_that_raises_at_every_question_is_read_as_nothing() -> None:
    assert read_feedback(Hostile(), now=NOW) == ProviderFeedback()


def test_a_chain_without_an_end_is_not_followed_for_ever() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert read_feedback(first, now=NOW) == ProviderFeedback()
    error = ValueError("deep")
    for _ in range(10_000):
        outer = ValueError("outer")
        outer.__cause__ = error
        error = outer
    assert read_feedback(error, now=NOW) == ProviderFeedback()


def test_a_wide_group_is_read_in_part() -> None:
    group = ExceptionGroup("many", [ValueError("x") for _ in range(20_000)])
    assert read_feedback(group, now=NOW).refusal is None


SCALARS = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20)
WORDS = st.sampled_from(
    ["error", "code", "status", "details", "violations", "quotaId", "retryDelay", "usage", "type", "detail"]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)
HEADERS = st.dictionaries(
    st.sampled_from(
        [
            *("retry-after", "date", "ratelimit", "ratelimit-policy", "ratelimit-limit"),
            *("x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
            *("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
            *("maximum-concurrent-requests", "character-cost", "retry-after-ms"),
        ]
    ),
    SCALARS | st.binary(max_size=10),
)


@given(status=st.integers(0, 700), headers=HEADERS, body=VALUES)
def test_no_body_or_header_is_a_problem(status: int, headers: dict[str, Any], body: Any) -> None:
    plain = read_feedback((status, headers, body), now=NOW)
    assert plain.problems == ()
    as_error = ValueError("x")
    as_error.body = body  # type: ignore[attr-defined]
    as_error.headers = headers  # type: ignore[attr-defined]
    assert read_feedback(as_error, now=NOW).problems == ()
    for units in (plain.usage or {}).values():
        assert 0 <= units < 1e16


def test_the_usage_of_a_huge_body_is_found_at_its_end() -> None:
    vectors = [{"embedding": [0.123456] * 200_000, "text": 'a "usage": {"total_tokens": 666} inside'}]
    body = json.dumps({"data": vectors, "usage": {"prompt_tokens": 8, "total_tokens": 8}}).encode()
    assert len(body) > 1_000_000
    assert read_feedback((200, {}, body), now=NOW).usage == {"tokens": 8, "input_tokens": 8}
    first = json.dumps({"usage": {"prompt_tokens": 9, "total_tokens": 9}, "data": vectors})
    assert read_feedback((200, {}, first), now=NOW).usage == {"tokens": 9, "input_tokens": 9}


def test_a_huge_body_is_not_parsed() -> None:
    body = json.dumps({"pad": "x" * 300_000, "error": {"code": "insufficient_quota"}})
    found = read_feedback((429, {}, body), now=NOW).refusal
    assert found is not None
    assert found.reason is Reason.UNKNOWN


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 50_000_000,
        b'{"error":' * 20_000,
        b'"usage":{' * 2_000_000,
        "try again in " * 1_000_000,
        "429 " + "1" * 10_000_000,
    ],
    ids=["brackets", "nested", "usages", "hints", "digits"],
)
def test_work_is_bounded(body: Any) -> None:
    began = time.process_time()
    for _ in range(5):
        read_feedback((429, {"ratelimit": '"a";r=1;' * 500, "retry-after": "9" * 4000}, body), now=NOW)
    assert time.process_time() - began < 1.0


def test_an_ordinary_answer_costs_little() -> None:
    """Feedback is read after every call, so it must take well below a millisecond."""
    response = fake_responses.HttpxResponse(
        200, {f"header-{n}": "x" * 30 for n in range(30)}, {"usage": {"total_tokens": 1}}
    )
    began = time.process_time()
    for _ in range(200):
        read_feedback(response, now=NOW)
    assert (time.process_time() - began) / 200 < 0.001
