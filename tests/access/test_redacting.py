"""I30: secrets in payloads, results, errors, notes and log lines are not shown, nor found by searching."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill import ConfigurationError, Context, Filter, Retry, Secret, Tidemill
from tidemill.access.redacting import Redactor
from tidemill.clock import SystemClock
from tidemill.core.claims import Claimed
from tidemill.core.secrecy import CUT, HIDDEN, Names, redacted, redacted_text
from tidemill.tasks import redaction
from tidemill.tasks.redaction import TaskSecrets
from tidemill.telemetry.events import Event, JobFailed
from tidemill.telemetry.signals import Signals
from tidemill.web.inspecting import Shown
from tidemill.worker.emitter import Emitter

CANARY = "canary-7f3a91"
T = TypeVar("T")


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    own = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path / 'jobs.db'}"}
    return own.get(request.param) or str(request.getfixturevalue(f"{request.param}_url"))


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
            shown = Redactor(TaskSecrets(app.tasks)).job(msgspec.structs.replace(job, payload=deep))
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
        assert CANARY.encode() not in Redactor(TaskSecrets(app.tasks)).job(broken).payload


ADVERSARIAL = {
    "words before each =": ("a.b-" * 50 + "=") * 995,
    "one word": "a" * 200_000 + ":",
    "base64": base64.b64encode(bytes(range(256)) * 600).decode() + "==",
    "separators": "aa=" * 66_000 + " token",
    "secrets": "pwd=a " * 33_000,
    "spaces": "token" + " " * 200_000 + "=",
    "backslashes": "token=" + "\\" * 200_000,
    "addresses": "a://b:" + "c:" * 100_000,
    "schemes": ("bearer" + " " * 20) * 8000,
}


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_redacting_takes_time_in_proportion_to_the_text(name: str) -> None:
    """Four times the text takes about four times the CPU time, and 200 kB less than 0.2 s."""
    text = ADVERSARIAL[name]
    redacted_text(text[:1000], Names())
    began = time.process_time()
    redacted_text(text, Names())
    once = time.process_time() - began
    redacted_text(text * 4, Names())
    four = time.process_time() - began - once
    assert once < 0.2
    assert four < 10 * max(once, 0.01)


def _failed_event(payload: bytes) -> tuple[JobFailed, float]:
    """With the CPU time that it took to make the event."""
    signals, events = Signals(), list[Event]()
    signals.subscribe(events.append)
    emitter = Emitter(signals, "w", SystemClock(), 0.0, TaskSecrets({}))
    job = Claimed("a", "q", "t", payload, 1, 2, 1, 5, "", 0, 0, None, None, 0.0, 0.0, "")
    fields = dict.fromkeys(("message", "traceback", "reason"), f"refused {CANARY}")
    began = time.process_time()
    emitter.job_event(JobFailed, job, seconds=1.0, error="E", **fields)
    took = time.process_time() - began
    [event] = events
    assert isinstance(event, JobFailed)
    return event, took


def test_an_event_looks_through_the_payload_once_and_not_when_it_is_large() -> None:
    """Events are made on the worker's event loop."""
    small = msgspec.json.encode({"rows": [{"name": f"{n}", "password": CANARY} for n in range(5000)]})
    looked_at, took = _failed_event(small)
    assert looked_at.message == looked_at.traceback == looked_at.reason == f"refused {HIDDEN}"
    large = msgspec.json.encode({"rows": [{"name": f"{n}", "password": CANARY} for n in range(22_000)]})
    assert 900_000 < len(large) < 1_000_000
    cut, took_large = _failed_event(large)
    assert cut.message == cut.traceback == cut.reason == CUT
    assert took < 0.1
    assert took_large < 0.03, "it was 0.3 s"


def test_an_event_decodes_the_payload_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []
    decode = redaction._decoded

    def counted(stored: bytes) -> Any:
        decoded.append(stored)
        return decode(stored)

    monkeypatch.setattr(redaction, "_decoded", counted)
    _failed_event(b'{"password":"%s"}' % CANARY.encode())
    assert len(decoded) == 1


async def test_a_page_redacts_so_much_and_cuts_the_rest() -> None:
    """Never does it show what it did not look at, and the event loop goes on meanwhile."""
    app = Tidemill("memory://")

    @app.task(name="holds")
    async def holds(note: str, api_key: str) -> None: ...

    async with app:
        for _ in range(30):
            await holds.enqueue(ADVERSARIAL["words before each ="], api_key=CANARY)
        shown = Shown(app)
        began = time.process_time()
        page, longest = await _with_longest_pause(shown.find(Filter()))
        took = time.process_time() - began
    cut = [job for job in page.jobs if job.payload == msgspec.json.encode(CUT)]
    assert 0 < len(cut) < len(page.jobs) == 30
    assert CANARY not in repr(page)
    assert took < 3.0
    assert longest < 0.3


async def _with_longest_pause(work: Awaitable[T]) -> tuple[T, float]:
    """How long the event loop did not come round meanwhile, in seconds."""
    loop, longest = asyncio.get_running_loop(), 0.0
    doing = asyncio.ensure_future(work)
    seen = loop.time()
    while not doing.done():
        await asyncio.sleep(0)
        longest, seen = max(longest, loop.time() - seen), loop.time()
    return await doing, longest


async def test_many_secrets_in_one_job_cost_no_more_than_the_page_may() -> None:
    app = Tidemill("memory://")

    @app.task(name="holds")
    async def holds(of: dict[str, str], note: str) -> None: ...

    async with app:
        many = {f"password_{number}": f"{CANARY}-{number}" for number in range(10_000)}
        await holds.enqueue(many, note=f"{CANARY}-77 " * 20_000)
        began = time.process_time()
        page = await Shown(app).find(Filter())
        took = time.process_time() - began
    assert CANARY not in repr(page)
    assert took < 2.0


@pytest.mark.parametrize(("limit", "looks"), [(1, 3), (2, 5000), (100, 10)])
async def test_a_hidden_value_changes_no_answer_to_a_search(url: str, limit: int, looks: int) -> None:
    """A page, its cursor, whether it is partial, and every count: as for a text that no job has."""
    app = Tidemill(url)

    @app.task(name="pays")
    async def pays(api_key: str, to: str, note: str = "") -> None: ...

    async with app:
        for number in range(12):
            secret = CANARY if number % 3 else "other"
            await pays.enqueue(secret, to=f"ann {number % 2}", note=f"password={secret}x")
        shown = Shown(app)
        for hidden in (CANARY, CANARY[:5], f"{CANARY}x", f"password={CANARY}x"):
            for met, missed in zip(_searches(hidden), _searches("nowhere-in-any-job"), strict=True):
                for cursor in (None, 6):
                    assert await shown.find(met, limit=limit, cursor=cursor, looks=looks) == (
                        await shown.find(missed, limit=limit, cursor=cursor, looks=looks)
                    )
                for bound in (looks, None):
                    assert await shown.count(met, looks=bound) == await shown.count(missed, looks=bound)


def _searches(text: str) -> list[Filter]:
    return [
        Filter(text=text),
        Filter(text=text, task="pays"),
        Filter(fields=(("note", text),)),
        Filter(fields=(("note", text), ("to", "ann 1"))),
    ]


@pytest.mark.parametrize("limit", [1, 5])
async def test_pages_of_a_search_meet_every_visible_job_once(url: str, limit: int) -> None:
    app = Tidemill(url)

    @app.task(name="pays")
    async def pays(api_key: str, to: str) -> None: ...

    async with app:
        visible = [
            job.id
            for number in range(20)
            if (job := await pays.enqueue("ann-secret", to="bo" if number % 4 else "ann")) and not number % 4
        ]
        shown, cursor, met = Shown(app), None, []
        for _ in range(40):
            page = await shown.find(Filter(text="ann"), limit=limit, cursor=cursor, looks=3)
            met += [job.id for job in page.jobs]
            if (cursor := page.cursor) is None:
                break
    assert met == visible[::-1]


async def test_arguments_of_schedules_are_shown_without_secrets_and_within_a_budget() -> None:
    app = Tidemill("memory://")

    @app.task(name="holds")
    async def holds(note: str, api_key: str) -> None: ...

    async with app:
        for number in range(30):
            job = holds.job(ADVERSARIAL["words before each ="], api_key=CANARY)
            await app.schedules.upsert(f"s{number}", job, every=60)
        views = (await app.schedules.list()).schedules
        shown, longest = await _with_longest_pause(Shown(app).schedules(views))
    cut = [view for view in shown if bytes(view.arguments) == msgspec.json.encode(CUT)]
    assert 0 < len(cut) < len(shown) == 30
    assert CANARY not in repr(shown)
    assert longest < 0.3
