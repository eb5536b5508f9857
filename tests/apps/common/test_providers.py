"""Both providers over real HTTP against the simulator: requests, answers and errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from tests.servers.program import free_port
from tidemill.clock import SystemClock
from tidemill.feedback import read_feedback
from tidemill.testing.simulator import (
    DIALECTS,
    Disruption,
    Quota,
    RefusalCause,
    ReplyFaults,
    RequestLog,
    SimulatedProvider,
    SimulatorOptions,
    SimulatorReply,
    SimulatorRequest,
    SimulatorServer,
    embed_text,
)
from tidemill_apps.common import providers
from tidemill_apps.common.model_clients import (
    AnswerUnusable,
    ChatModel,
    EmbeddingModel,
    ProviderAccount,
    check_vectors,
)
from tidemill_apps.common.providers import use_simulator

SCHEMA = {"type": "object", "properties": {"mood": {"type": "string"}}, "required": ["mood"]}
TEXTS = ["潮汐", "harbour", "海"]
FORM = "the answer has not the form it should have"
KEY = "sk-0123456789"
BOTH = pytest.mark.parametrize("name", ["gemini", "openai"])


class Recording(SimulatedProvider):
    """Records the requests; `says` replaces the body of an answer."""

    says: dict[str, Any] | None = None

    async def serve(self, request: SimulatorRequest) -> Any:
        self.seen = request
        served = await super().serve(request)
        if self.says is not None and served.answer is not None:
            served.answer = SimulatorReply(served.answer.status, served.answer.headers, self.says)
        return served


Asking = tuple[ChatModel, EmbeddingModel, Recording]


@asynccontextmanager
async def asking(name: str, *quotas: Quota, **options: Any) -> AsyncIterator[Asking]:
    provider = Recording(
        DIALECTS[name](),
        quotas or (Quota.rolling("requests", 100),),
        SimulatorOptions(**options),
        clock=SystemClock(),
        replies=lambda call: f'{{"mood": "{call.texts[-1]}"}}',
    )
    async with SimulatorServer(provider) as server:
        account = replace(use_simulator(_account(name), server.url), key=KEY)
        chat, embeddings = providers.open_chat_model(account), providers.open_embedding_model(account)
        yield chat, embeddings, provider
        await chat.close()
        await embeddings.close()


def _account(name: str) -> ProviderAccount:
    return ProviderAccount(provider="gemini" if name == "gemini" else "openai", dimensions=16, timeout=5.0)


@BOTH
async def test_a_question_is_answered_and_its_cost_can_be_read(name: str) -> None:
    async with asking(name) as (chat, _, provider):
        completed = await chat.complete("be brief", "潮汐", SCHEMA, call_id="job-1")
    assert completed.text == '{"mood": "潮汐"}'
    assert (read_feedback(completed.response, now=0.0).usage or {})["output_tokens"] == 16
    assert [(bill.kind, bill.mark) for bill in provider.request_log.bills] == [("chat", "job-1")]


async def test_gemini_is_asked_for_json_by_a_schema_with_the_key_in_a_header() -> None:
    async with asking("gemini") as (chat, _, provider):
        await chat.complete("be brief", "潮汐", SCHEMA, call_id="1")
        seen = provider.seen
    assert seen.path == "/v1beta/models/gemini-2.5-flash:generateContent"
    assert seen.headers["x-goog-api-key"] == KEY
    assert seen.body["generationConfig"] == {
        "responseMimeType": "application/json",
        "responseJsonSchema": SCHEMA,
    }
    assert seen.body["systemInstruction"] == {"parts": [{"text": "be brief"}]}


async def test_openai_is_asked_for_json_by_a_schema_with_the_key_in_a_header() -> None:
    async with asking("openai") as (chat, _, provider):
        await chat.complete("be brief", "潮汐", SCHEMA, call_id="1")
        seen = provider.seen
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert seen.body["response_format"]["json_schema"]["schema"] == {**SCHEMA, "additionalProperties": False}
    assert [message["role"] for message in seen.body["messages"]] == ["system", "user"]


async def test_openai_schemas_forbid_additional_properties_in_every_object() -> None:
    inner = {"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"]}
    schema = {
        "type": "object",
        "properties": {"songs": {"type": "array", "items": inner}},
        "required": ["songs"],
    }
    async with asking("openai") as (chat, _, provider):
        await chat.complete("be brief", "潮汐", schema, call_id="1")
        sent = provider.seen.body["response_format"]["json_schema"]
    assert sent["strict"] is True
    assert sent["schema"]["additionalProperties"] is False
    assert sent["schema"]["properties"]["songs"]["items"] == {**inner, "additionalProperties": False}


async def test_a_server_without_structured_output_gets_the_schema_in_the_prompt() -> None:
    async with asking("openai") as (_, __, provider), SimulatorServer(provider) as server:
        account = use_simulator(_account("openai"), server.url)
        chat = providers.open_chat_model(replace(account, structured="json_object"))
        await chat.complete("be brief", "潮汐", SCHEMA, call_id="1")
        await chat.close()
        assert provider.seen.body["response_format"] == {"type": "json_object"}
        assert '"required":["mood"]' in provider.seen.body["messages"][0]["content"]


@BOTH
async def test_a_mark_goes_to_simulators_only(name: str) -> None:
    async with asking(name) as (_, __, provider), SimulatorServer(provider) as server:
        account = replace(use_simulator(_account(name), server.url), simulator=False)
        chat = providers.open_chat_model(account)
        await chat.complete("", "海", SCHEMA, call_id="secret project")
        await chat.close()
        assert "x-job" not in provider.seen.headers


@BOTH
async def test_vectors_come_in_the_order_of_their_texts(name: str) -> None:
    async with asking(name) as (_, embeddings, provider):
        embedded = await embeddings.embed(TEXTS, call_id="job-2")
    assert embedded.vectors == [embed_text(text, 16) for text in TEXTS]
    assert [(bill.kind, bill.mark, bill.texts) for bill in provider.request_log.bills] == [
        ("embed", "job-2", 3)
    ]


async def test_vectors_in_another_order_go_to_their_texts_and_those_missing_are_none() -> None:
    faults = ReplyFaults(
        reordered=frozenset({1, 2}), missing_vector=frozenset({2}), null_vector=frozenset({3})
    )
    async with asking("openai", faults=faults) as (_, embeddings, __):
        found = [(await embeddings.embed(TEXTS, call_id="")).vectors for _ in range(3)]
    whole: list[list[float] | None] = [embed_text(text, 16) for text in TEXTS]
    assert found == [whole, [None, *whole[1:]], [None, *whole[1:]]]


async def test_gemini_s_vectors_have_no_index_so_none_may_be_missing_but_one_may_be_null() -> None:
    faults = ReplyFaults(null_vector=frozenset({1}), missing_vector=frozenset({2}))
    async with asking("gemini", faults=faults) as (_, embeddings, __):
        assert (await embeddings.embed(TEXTS, call_id="")).vectors[0] is None
        with pytest.raises(AnswerUnusable, match=r"^2 vectors came for 3 texts$"):
            await embeddings.embed(TEXTS, call_id="")


@BOTH
async def test_an_answer_cut_off_or_blocked_is_an_error_that_knows_what_it_cost(name: str) -> None:
    faults = ReplyFaults(cut_off=frozenset({1}), blocked=frozenset({2}))
    async with asking(name, faults=faults) as (chat, _, __):
        with pytest.raises(AnswerUnusable, match=r"cut off .*; ask for less at once") as caught:
            await chat.complete("", "海", SCHEMA, call_id="")
        with pytest.raises(AnswerUnusable, match="blocked"):
            await chat.complete("", "海", SCHEMA, call_id="")
    reading = read_feedback(caught.value, now=0.0)
    assert (reading.usage or {})["output_tokens"] == 16
    assert (reading.refusal, reading.sent) == (None, "answered")


@pytest.mark.parametrize(
    ("name", "says", "problem"),
    [
        ("gemini", {}, "there is no candidate in the answer"),
        ("gemini", {"promptFeedback": {"blockReason": "SAFETY"}}, "the question was blocked (SAFETY)"),
        ("gemini", {"candidates": []}, "there is no candidate in the answer"),
        ("gemini", {"candidates": ["?"]}, f"{FORM}: Expected `object`, got `str` - at `$.candidates[0]`"),
        ("gemini", {"candidates": [{"finishReason": "STOP"}]}, "the answer has no text"),
        ("gemini", {"candidates": [{"finishReason": "RECITATION"}]}, "the answer was blocked (RECITATION)"),
        (
            "gemini",
            {"candidates": [{"content": {"parts": [{"text": "hm", "thought": True}]}}]},
            "the answer has no text",
        ),
        ("openai", {}, "there is no choice in the answer"),
        ("openai", {"choices": [7]}, f"{FORM}: Expected `object`, got `int` - at `$.choices[0]`"),
        ("openai", {"choices": [{"message": {"content": ""}}]}, "the answer has no text"),
        ("openai", {"choices": [{"message": {"refusal": "I will not"}}]}, "the model refused: I will not"),
    ],
)
async def test_an_answer_that_says_nothing_is_an_error(name: str, says: dict[str, Any], problem: str) -> None:
    async with asking(name) as (chat, _, provider):
        provider.says = says
        with pytest.raises(AnswerUnusable) as caught:
            await chat.complete("", "海", SCHEMA, call_id="")
    assert str(caught.value) == problem


@pytest.mark.parametrize(
    ("name", "says", "problem"),
    [
        ("gemini", {}, "0 vectors came for 1 texts"),
        ("gemini", {"embeddings": [{"values": [1.0] * 8}]}, "vectors have 8 dimensions, expected 16"),
        (
            "gemini",
            {"embeddings": [{"values": ["one"]}]},
            f"{FORM}: Expected `float`, got `str` - at `$.embeddings[0].values[0]`",
        ),
        ("openai", {}, f"{FORM}: Object missing required field `data`"),
        ("openai", {"data": [{"index": 3, "embedding": []}]}, "a vector has the index 3, for 1 texts"),
        ("openai", {"data": [{"index": 0}, {"index": 0}]}, "a vector has the index 0, for 1 texts"),
        (
            "openai",
            {"data": [{"index": 0, "embedding": [1.0] * 17}]},
            "vectors have 17 dimensions, expected 16",
        ),
    ],
)
async def test_vectors_that_fit_nothing_are_an_error(name: str, says: dict[str, Any], problem: str) -> None:
    async with asking(name) as (_, embeddings, provider):
        provider.says = says
        with pytest.raises(AnswerUnusable) as caught:
            await embeddings.embed(["海"], call_id="")
    assert str(caught.value) == problem


async def test_rows_without_an_index_are_in_order_when_there_are_as_many_as_texts() -> None:
    async with asking("openai") as (_, embeddings, provider):
        provider.says = {"data": [{"embedding": [1.0] * 16}, {"embedding": None}]}
        assert (await embeddings.embed(["a", "b"], call_id="")).vectors == [[1.0] * 16, None]


@pytest.mark.parametrize(
    "unusable",
    [[0.0] * 16, [1.0] * 8, [1.0] * 15 + [float("inf")], []],
    ids=["zeros", "another length", "not finite", "empty"],
)
@pytest.mark.parametrize("dimensions", [16, None])
def test_a_vector_that_cannot_be_used_takes_no_other_with_it(
    unusable: list[float], dimensions: int | None
) -> None:
    good = [1.0] * 16
    assert check_vectors([good, unusable, good], dimensions, None) == [good, None, good]


def test_vectors_of_two_lengths_half_and_half_are_an_error() -> None:
    with pytest.raises(AnswerUnusable, match="vectors of one answer have 8 and 16 dimensions"):
        check_vectors([[1.0] * 16, [1.0] * 8], None, None)


REFUSALS: list[tuple[str, tuple[Quota, ...], RefusalCause | None, str]] = [
    ("gemini", (Quota.rolling("requests", 1),), None, "rate"),
    ("gemini", (Quota.day("requests", 1, zone="America/Los_Angeles"),), None, "day_quota"),
    ("openai", (Quota.rolling("requests", 1),), None, "rate"),
    ("openai", (), RefusalCause.NO_CREDIT, "spending"),
    ("openai", (), RefusalCause.WRONG_KEY, "forbidden"),
    ("gemini", (), RefusalCause.WRONG_KEY, "forbidden"),
    ("gemini", (), RefusalCause.OVERLOAD, "overload"),
]


@pytest.mark.parametrize(("name", "quotas", "reason", "meaning"), REFUSALS)
async def test_a_refusal_is_read_by_pools(
    name: str, quotas: tuple[Quota, ...], reason: RefusalCause | None, meaning: str
) -> None:
    disruptions = (Disruption(reason),) if reason else ()
    async with asking(name, *quotas, disruptions=disruptions) as (chat, _, __):
        with pytest.raises(httpx2.HTTPStatusError, match=rf"^the simulator of {name} \(127") as caught:
            for _ in range(2):
                await chat.complete("", "海", SCHEMA, call_id="")
    refusal = read_feedback(caught.value, now=0.0).refusal
    assert refusal is not None
    assert refusal.reason.value.replace(" ", "_") == meaning


@BOTH
async def test_a_key_that_the_provider_repeats_is_not_repeated(name: str) -> None:
    async with asking(name, disruptions=(Disruption(RefusalCause.WRONG_KEY),)) as (chat, _, provider):
        provider.says = {"error": {"message": f"Incorrect API key provided: {KEY}."}}
        with pytest.raises(httpx2.HTTPStatusError, match=r"Incorrect API key provided: \*\*\*\.$") as caught:
            await chat.complete("", "海", SCHEMA, call_id="")
    assert KEY not in repr(caught.value)


@BOTH
async def test_an_unreachable_provider_is_reported_as_not_sent(name: str) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    chat = providers.open_chat_model(replace(_account(name), base_url=address, key=KEY))
    with pytest.raises(
        httpx2.ConnectError, match=rf"^{name} \(127.0.0.1:\d+\) cannot be reached: "
    ) as caught:
        await chat.complete("", "海", SCHEMA, call_id="")
    assert read_feedback(caught.value, now=0.0).sent == "not sent"
    await chat.close()


@BOTH
async def test_an_answer_that_never_came_may_have_been_paid_for(name: str) -> None:
    async with asking(name, lost=frozenset({1})) as (chat, _, provider):
        with pytest.raises(httpx2.TransportError, match="broke off before it answered") as caught:
            await chat.complete("", "海", SCHEMA, call_id="")
        assert len(provider.request_log.bills) == 1
    assert read_feedback(caught.value, now=0.0).sent == "unknown"


async def test_a_read_timeout_is_reported_as_possibly_billed() -> None:
    async with (
        asking("gemini", latency=(60.0, 60.0)) as (_, __, provider),
        SimulatorServer(provider) as server,
    ):
        chat = providers.open_chat_model(replace(use_simulator(_account("gemini"), server.url), timeout=0.05))
        with pytest.raises(httpx2.ReadTimeout, match=r"did not answer within 0\.05 s$") as caught:
            await chat.complete("", "海", SCHEMA, call_id="")
        await chat.close()
    assert read_feedback(caught.value, now=0.0).sent == "unknown"


@BOTH
async def test_nothing_is_tried_again(name: str) -> None:
    async with asking(name, disruptions=(Disruption(RefusalCause.OVERLOAD),)) as (chat, embeddings, provider):
        calls: list[Callable[[], Any]] = [
            lambda: chat.complete("", "海", SCHEMA, call_id=""),
            lambda: embeddings.embed(["海"], call_id=""),
        ]
        for call in calls:
            with pytest.raises(httpx2.HTTPStatusError):
                await call()
        request_log: RequestLog = provider.request_log
        assert len(request_log.refused) == 2


@pytest.mark.parametrize(
    ("environment", "address", "key"),
    [
        ({"GEMINI_API_KEY": "g"}, "https://generativelanguage.googleapis.com", "g"),
        ({"M_PROVIDER": "openai", "OPENAI_API_KEY": "o"}, "https://api.openai.com/v1", "o"),
        ({"M_KEY": "own", "GEMINI_API_KEY": "g"}, "https://generativelanguage.googleapis.com", "own"),
        (
            {"M_PROVIDER": "openai", "M_BASE_URL": "http://127.0.0.1:8000/v1/", "OPENAI_API_KEY": "o"},
            "http://127.0.0.1:8000/v1",
            "",
        ),
    ],
)
def test_an_account_by_settings(environment: dict[str, str], address: str, key: str) -> None:
    account = providers.read_account("M_", environment)
    assert (account.address, account.key) == (address, key)
