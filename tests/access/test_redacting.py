"""I30: secrets in payloads, results, errors, notes and log lines are not shown, nor found by searching."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill import ConfigurationError, Context, Filter, Retry, Secret, Tidemill
from tidemill.access.redacting import Redactor
from tidemill.core.secrecy import HIDDEN, Names, redacted, redacted_text
from tidemill.web.inspecting import Shown

CANARY = "canary-7f3a91"


class Card(msgspec.Struct, rename="camel"):
    holder: str
    card_number: Annotated[str, Secret]
    parts: list[Card] = []


@dataclass
class Login:
    user: str
    word: Annotated[str, Secret()]


class Row(TypedDict):
    pin: Annotated[str | None, Secret]


HIDE = (
    "password Password PASSWD user_password db-password apiKey API-KEY x-api-key access_token authToken "
    "Authorization proxy_authorization Cookie set-cookie client_secret secret clientSecretValue privateKey "
    "aws_secret_access_key credentials sessionId session_id jwt bearer iban I-BAN"
)
PLAIN = "tokens max_tokens input_tokens secretary keyword key author title"


@pytest.mark.parametrize("name", HIDE.split())
def test_names_of_secrets(name: str) -> None:
    assert Names(["iban"]).hide(name)


@pytest.mark.parametrize("name", PLAIN.split())
def test_names_of_others(name: str) -> None:
    assert not Names(["iban"]).hide(name)


def test_data_is_hidden_however_deep_and_what_is_not_there_is_not() -> None:
    data = {"a": [{"b": {"Api-Key": {"any": [CANARY]}, "password": None, "token": ""}}], "n": 3}
    assert redacted(data, Names()) == {
        "a": [{"b": {"Api-Key": HIDDEN, "password": None, "token": ""}}],
        "n": 3,
    }


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {CANARY}",
        f"authorization=Basic {CANARY}",
        f"GET https://api.example/v1?api_key={CANARY}&page=2",
        f"redis://user:{CANARY}@host:6379/0",
        f'{{"password": "{CANARY}", "n": 1}}',
        f"{{'password': '{CANARY}'}}",
        f"login(user='ann', password='{CANARY}')",
        f"note=password={CANARY}",
        f"retrying with bearer {CANARY}",
    ],
)
def test_texts_that_look_like_it(text: str) -> None:
    assert CANARY not in redacted_text(text, Names())


@pytest.mark.parametrize("text", ["11:45 done", "https://a.example/b", "a = 3", "tokens: 900", "no secret"])
def test_texts_that_do_not(text: str) -> None:
    assert redacted_text(text, Names()) == text


@given(st.text(max_size=300))
def test_any_text_can_be_looked_at(text: str) -> None:
    redacted_text(text, Names(), ["secret"])


async def _take(app: Tidemill, handler: Any, *args: Any, **kwargs: Any) -> str:
    task = app.task(name="pays", retry=Retry(attempts=1))(handler)
    job = await task.enqueue(*args, **kwargs)
    await app.worker(until_idle=True).run()
    return job.id


async def _seen(app: Tidemill, job: str) -> str:
    """Whatever is shown of a job, by any way there is."""
    shown = Shown(app)
    view, page = await shown.job(job), await shown.find(Filter())
    each = [job async for job in shown.each(Filter())]
    return repr([view, page, each])


async def test_a_job_as_it_is_shown() -> None:
    app = Tidemill("memory://")

    async def pays(ctx: Context, api_key: str, note: str) -> dict[str, str]:
        ctx.log(f"calls with {api_key}")
        await ctx.progress(0.5, f"with {api_key}")
        return {"said": f"paid by {api_key}", "password": "other-canary"}

    async with app:
        seen = await _seen(app, await _take(app, pays, CANARY, note=f"not {CANARY}"))
    assert CANARY not in seen
    assert "other-canary" not in seen
    assert "paid by" in seen
    assert "calls with" in seen


async def test_an_error_as_it_is_shown() -> None:
    app = Tidemill("memory://")

    async def pays(password: str) -> None:
        raise LookupError(f"no such: {password}; token=other-canary")

    async with app:
        seen = await _seen(app, await _take(app, pays, CANARY))
    assert "LookupError" in seen
    assert CANARY not in seen
    assert "other-canary" not in seen


@pytest.mark.parametrize("which", ["struct", "dataclass", "typed dict", "plain", "in a list"])
async def test_what_is_annotated(which: str) -> None:
    app = Tidemill("memory://")

    async def struct(what: Card) -> None: ...
    async def of_dataclass(what: Login) -> None: ...
    async def typed_dict(what: list[Row]) -> None: ...
    async def plain(what: Annotated[str, Secret]) -> None: ...
    async def in_a_list(what: list[Annotated[str, Secret]]) -> None: ...

    given_: dict[str, tuple[Any, Any]] = {
        "struct": (struct, Card("ann", CANARY, [Card("bo", CANARY)])),
        "dataclass": (of_dataclass, Login("ann", CANARY)),
        "typed dict": (typed_dict, [{"pin": CANARY}]),
        "plain": (plain, CANARY),
        "in a list": (in_a_list, [CANARY]),
    }
    handler, what = given_[which]
    async with app:
        seen = await _seen(app, await _take(app, handler, what))
    assert CANARY not in seen
    assert HIDDEN in seen


async def test_a_result_that_is_annotated() -> None:
    app = Tidemill("memory://")

    async def makes() -> Annotated[str, Secret]:
        return CANARY

    async with app:
        assert CANARY not in await _seen(app, await _take(app, makes))


async def test_no_search_finds_a_secret() -> None:
    """Nor a part of it, nor how many there are."""
    app = Tidemill("memory://")

    async def pays(api_key: str, to: str) -> None: ...

    async with app:
        await _take(app, pays, CANARY, to="ann")
        shown = Shown(app)
        for text in (CANARY, CANARY[:4], CANARY.upper()):
            assert (await shown.find(Filter(text=text))).jobs == ()
            assert (await shown.count(Filter(text=text))).jobs == 0
            assert [job async for job in shown.each(Filter(text=text))] == []
        assert len((await shown.find(Filter(text="ann"))).jobs) == 1
        assert (await shown.count(Filter(text="api_key"))).jobs == 1
        for task in (None, "pays"):
            with pytest.raises(ConfigurationError, match=r"^fields: 'api_key' is hidden"):
                await shown.find(Filter(task=task, fields=(("api_key", CANARY),)))
        assert len((await shown.find(Filter(fields=(("to", "ann"),)))).jobs) == 1


async def test_what_is_nested_too_deep_to_look_through_is_not_shown() -> None:
    app = Tidemill("memory://")

    async def pays(api_key: str) -> None: ...

    async with app:
        [job] = await app.store.get([await _take(app, pays, CANARY)])
        assert job is not None
        for depth in (900, 100_000):
            deep = b'{"token":' + b"[" * depth + f'"{CANARY}"'.encode() + b"]" * depth + b"}"
            shown = Redactor(app.tasks).job(msgspec.structs.replace(job, payload=deep))
            assert CANARY.encode() not in shown.payload


names = st.one_of(st.sampled_from(HIDE.split()), st.text(max_size=12))
data = st.recursive(
    st.none()
    | st.integers()
    | st.text(max_size=12)
    | st.sampled_from(["a://b:c@d", "token=x", "basic abcdefg"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)


@given(data)
def test_whatever_is_hidden_may_be_there(value: Any) -> None:
    """Nothing is left as it is for want of a look."""
    hides = Names(["iban"])
    if redacted(value, hides) != value:
        assert hides.may_be_in(msgspec.json.encode(value))


async def test_a_payload_that_is_no_json_is_shown_without_what_looks_like_a_secret() -> None:
    app = Tidemill("memory://")

    async def pays(api_key: str) -> None: ...

    async with app:
        job_id = await _take(app, pays, CANARY)
        [job] = await app.store.get([job_id])
        assert job is not None
        broken = msgspec.structs.replace(job, payload=f'{{"api_key": "{CANARY}"'.encode())
        assert CANARY.encode() not in Redactor(app.tasks).job(broken).payload
