"""The content of replies: the test's texts, vectors of similar texts, and faulty replies."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner

from tests.testing.simulator.client_requests import GEMINI, chat_request
from tidemill.clock import SystemClock
from tidemill.testing import VirtualClock, run_virtual
from tidemill.testing.simulator import (
    DIALECTS,
    BillEntry,
    CallableProvider,
    Quota,
    ReplyFaults,
    SimulatedProvider,
    SimulatorCall,
    SimulatorOptions,
    SimulatorRequest,
    SimulatorServer,
    embed_text,
)
from tidemill.testing.simulator.__main__ import main

MANY = [Quota.rolling("requests", 1000)]
ASKED = ["tide", "潮汐", "harbour"]


def items(call: SimulatorCall) -> str:
    return json.dumps({"songs": [{"id": str(n), "text": text} for n, text in enumerate(call.texts)]})


def answers(
    dialect: str, requests: list[SimulatorRequest], faults: ReplyFaults | None = None
) -> tuple[list[dict[str, Any]], list[BillEntry]]:
    async def scenario() -> tuple[list[dict[str, Any]], list[BillEntry]]:
        options = SimulatorOptions(faults=faults or ReplyFaults())
        used = CallableProvider(DIALECTS[dialect](), MANY, options, clock=VirtualClock(), replies=items)
        return [(await used.call(request)).body for request in requests], used.request_log.bills

    return run_virtual(scenario())


def reply_text(dialect: str, body: dict[str, Any]) -> str:
    match dialect:
        case "gemini":
            return str(body["candidates"][0]["content"]["parts"][0]["text"])
        case "anthropic":
            return str(body["content"][0]["text"])
        case _:
            return str(body["choices"][0]["message"]["content"])


def embedding(dialect: str, dimensions: int | None = None) -> SimulatorRequest:
    if dialect == "gemini":
        size = {"outputDimensionality": dimensions} if dimensions else {}
        requests = [{"model": "m", "content": {"parts": [{"text": text}]}} | size for text in ASKED]
        return SimulatorRequest(f"{GEMINI}:batchEmbedContents", {"requests": requests})
    size = {"dimensions": dimensions} if dimensions else {}
    return SimulatorRequest("/v1/embeddings", {"model": "text-embedding-3-small", "input": ASKED} | size)


def vectors(dialect: str, body: dict[str, Any]) -> list[tuple[int, list[float] | None]]:
    if dialect == "gemini":
        return [(index, one["values"]) for index, one in enumerate(body["embeddings"])]
    return [(one["index"], one["embedding"]) for one in body["data"]]


@pytest.mark.parametrize("dialect", ["openai", "anthropic", "gemini", "glm"])
def test_a_reply_is_made_from_what_was_asked(dialect: str) -> None:
    (body,), (bill,) = answers(dialect, [chat_request(dialect, "写一首歌", mark="a")])
    assert json.loads(reply_text(dialect, body)) == {"songs": [{"id": "0", "text": "写一首歌"}]}
    assert (bill.kind, bill.mark) == ("chat", "a")


def test_the_system_s_words_come_first() -> None:
    system, user = {"parts": [{"text": "be brief"}]}, [{"parts": [{"text": "潮汐"}]}]
    request = SimulatorRequest(f"{GEMINI}:generateContent", {"systemInstruction": system, "contents": user})
    assert '"be brief"}, {"id": "1"' in reply_text("gemini", answers("gemini", [request])[0][0])


@pytest.mark.parametrize("dialect", ["openai", "gemini"])
def test_vectors_have_the_dimensions_that_were_asked_for(dialect: str) -> None:
    (small, large), bills = answers(dialect, [embedding(dialect), embedding(dialect, 64)])
    assert [len(one or []) for _, one in vectors(dialect, small)] == [8, 8, 8]
    assert [one for _, one in vectors(dialect, large)] == [embed_text(text, 64) for text in ASKED]
    assert [(bill.kind, bill.texts) for bill in bills] == [("embed", 3), ("embed", 3)]


def test_a_single_embedding_has_them_too() -> None:
    body = {"content": {"parts": [{"text": "tide"}]}, "outputDimensionality": 32}
    (found,), _ = answers("gemini", [SimulatorRequest(f"{GEMINI}:embedContent", body)])
    assert found == {"embedding": {"values": embed_text("tide", 32)}}


ALIKE = [
    ("How the tide is made by the moon", "The moon makes the tide", "A recipe for bread with olives"),
    ("Invoices are paid within thirty days", "When are invoices paid?", "The cat sleeps on the warm roof"),
    ("月亮引起潮汐的涨落", "潮汐为什么会涨落", "用橄榄做面包的方法"),
    ("发票在三十天内支付", "发票什么时候支付", "猫在温暖的屋顶上睡觉"),
    ("上海天气", "上海天气好", "海上气天"),
    ("用 PostgreSQL 做任务队列", "PostgreSQL 任务队列怎么做", "周末去海边看日出"),
]


@pytest.mark.parametrize(("text", "near", "far"), ALIKE)
@pytest.mark.parametrize("dimensions", [64, 256, 1536])
def test_texts_that_are_alike_are_near(text: str, near: str, far: str, dimensions: int) -> None:
    of = {one: embed_text(one, dimensions) for one in (text, near, far)}
    assert all(math.isclose(sum(x * x for x in one), 1, abs_tol=1e-3) for one in of.values())
    assert _nearness(of[text], of[near]) > _nearness(of[text], of[far]) + 0.1


@pytest.mark.parametrize("text", ["", "!?", "。", "a", "字"])
def test_the_shortest_text_has_a_vector(text: str) -> None:
    assert math.isclose(sum(one * one for one in embed_text(text, 16)), 1, abs_tol=1e-3)


def _nearness(one: list[float], other: list[float]) -> float:
    return sum(x * y for x, y in zip(one, other, strict=True))


def test_wrong_answers_come_when_they_were_ordered() -> None:
    faults = ReplyFaults(
        malformed=frozenset({1}), left_out=frozenset({2}), repeated=frozenset({3}), invented=frozenset({4})
    )
    question = chat_request("gemini")
    question.body["contents"] = [{"parts": [{"text": text} for text in ASKED]}]
    bodies, _ = answers("gemini", [question] * 5, faults)
    texts = iter([reply_text("gemini", body) for body in bodies])
    with pytest.raises(json.JSONDecodeError):
        json.loads(next(texts))
    assert _ids(texts) == ["0", "1"]
    assert _ids(texts) == ["0", "1", "2", "0"]
    assert _ids(texts) == ["0", "1", "2", "invented-4"]
    assert _ids(texts) == ["0", "1", "2"]


def _ids(texts: Iterator[str]) -> list[str]:
    return [item["id"] for item in json.loads(next(texts))["songs"]]


def test_a_fault_that_cannot_be_made_is_no_silent_success() -> None:
    with pytest.raises(ValueError, match="no list of items"):
        ReplyFaults(left_out=frozenset({1})).chat_content(1, '{"songs": []}')


@pytest.mark.parametrize(
    ("dialect", "cut", "blocked"),
    [("gemini", "MAX_TOKENS", "SAFETY"), ("openai", "length", "content_filter")],
)
def test_an_answer_may_be_cut_off_or_blocked(dialect: str, cut: str, blocked: str) -> None:
    faults = ReplyFaults(cut_off=frozenset({1}), blocked=frozenset({2}))
    bodies, _ = answers(dialect, [chat_request(dialect)] * 3, faults)
    key, name = ("candidates", "finishReason") if dialect == "gemini" else ("choices", "finish_reason")
    stop = "STOP" if dialect == "gemini" else "stop"
    assert [body[key][0][name] for body in bodies] == [cut, blocked, stop]


def test_faults_of_vectors_are_counted_apart_from_those_of_chats() -> None:
    faults = ReplyFaults(missing_vector=frozenset({1}), null_vector=frozenset({2}), reordered=frozenset({3}))
    bodies, _ = answers("openai", [chat_request("openai"), *[embedding("openai")] * 4], faults)
    missing, null, reordered, whole = (vectors("openai", body) for body in bodies[1:])
    right = [(index, embed_text(text)) for index, text in enumerate(ASKED)]
    assert missing == right[1:]
    assert null == [(0, None), *right[1:]]
    assert reordered == right[::-1]
    assert whole == right


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("json", "is not module:function"),
        ("no_such_module:f", "cannot be found: No module named 'no_such_module'"),
        ("json:no_such_function", "cannot be found"),
        ("string:digits", "is no function"),
    ],
)
def test_replies_that_are_none_are_refused_in_a_sentence(text: str, problem: str) -> None:
    found = CliRunner().invoke(main, ["--dialect", "gemini", "--replies", text])
    assert found.exit_code == 2
    assert problem in " ".join(found.output.split())


@pytest.mark.parametrize(
    ("fault", "body"), [("missing_vector", {}), ("null_vector", {"embedding": {"values": None}})]
)
def test_a_fault_of_a_call_for_one_vector_is_an_answer(fault: str, body: dict[str, Any]) -> None:
    one = SimulatorRequest(f"{GEMINI}:embedContent", {"content": {"parts": [{"text": "潮"}]}})
    assert answers("gemini", [one], ReplyFaults(**{fault: frozenset({1})}))[0] == [body]


async def test_an_error_in_the_simulator_is_500_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    def wrong(request: SimulatorCall) -> str:
        raise KeyError(request.texts[-1])

    provider = SimulatedProvider(DIALECTS["openai"](), MANY, clock=SystemClock(), replies=wrong)
    async with SimulatorServer(provider) as server, httpx2.AsyncClient(base_url=server.url) as client:
        request = {"model": "m", "messages": [{"role": "user", "content": "潮汐"}]}
        answer = await client.post("/v1/chat/completions", json=request)
    assert (answer.status_code, answer.json()) == (500, {"error": "the simulator failed: KeyError('潮汐')"})
    assert "the simulated provider could not answer" in caplog.text
