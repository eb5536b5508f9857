"""Enqueueing jobs from the command line."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Cli, serve
from tidemill.cli.job_input import _finish_despite_interrupt

TYPED = """
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Literal, NewType
from msgspec import Meta
from tidemill import Tidemill

app = Tidemill("sqlite:///typed.db")

@dataclass
class Feed:
    host: str

@app.task(name="feeds.fetch", queue="feeds", key=lambda feed, deep=False: feed.host)
async def fetch(feed: Feed, deep: bool = False) -> None: ...

@app.task(name="feeds.note")
async def note(text: str, count: int | str = 0, phone: str | None = None) -> None: ...

Id = NewType("Id", str)

class Size(StrEnum):
    LARGE = "1"

@app.task(name="feeds.odd")
async def odd(
    short: Annotated[str, Meta(max_length=3)] = "", id: Id = Id(""), word: Literal["1"] = "1",
    size: Size = Size.LARGE, price: Decimal = Decimal(0), number: int = 0,
) -> None: ...
"""

SHOP_APP = ("--app", "shop:app")


def sent(cli: Cli, *arguments: str, app: str = "shop:app") -> dict[str, Any]:
    result = cli("enqueue", *arguments, "--app", app)
    assert result.code == 0, result.err
    job: dict[str, Any] = cli("jobs", "show", result.out.strip(), "--app", app, "--json").json
    return job


def test_the_first_job_creates_the_database(cli: Cli, tmp_path: Path) -> None:
    job = sent(cli, "send", "to=ann@example.org")
    assert (job["state"], job["queue"], job["payload"]) == ("ready", "mail", {"to": "ann@example.org"})
    assert (tmp_path / "shop.db").exists()


def test_every_option(cli: Cli) -> None:
    options = ("--queue", "post", "--priority", "2", "--delay", "1h", "--expires", "2h", "--key", "k")
    job = sent(cli, "send", "to=a", *options, "--tag", "x", "--tag", "y", "--id", "mine", "--unique", "u")
    wanted = {"id": "mine", "queue": "post", "priority": 2, "key": "k", "tags": ["x", "y"], "unique_key": "u"}
    assert {name: job[name] for name in wanted} == wanted
    assert job["due"] - job["created"] == pytest.approx(3600)
    assert job["expires"] - job["created"] == pytest.approx(7200)
    at = sent(cli, "send", "to=b", "--at", "2100-01-01T00:00+00:00")
    assert at["due"] == 4102444800


def test_an_undeclared_queue_is_reported(cli: Cli) -> None:
    result = cli("enqueue", "send", "to=a", "--queue", "mial", *SHOP_APP)
    assert result.code == 0
    assert "neither declares queue 'mial' nor has a task on it; did you mean mail?" in result.err


def test_the_same_id_or_unique_key_creates_one_job(cli: Cli) -> None:
    assert cli("enqueue", "send", "to=a", "--unique", "u", "--id", "first", *SHOP_APP).out == "first\n"
    result = cli("enqueue", "send", "to=b", "--unique", "u", *SHOP_APP)
    assert result.out == "first was there already, with the same unique key or id\n"
    assert cli("enqueue", "send", "to=a", "--id", "first", *SHOP_APP, "--json").json["id"] == "first"
    assert len(cli("jobs", *SHOP_APP, "--json").json["jobs"]) == 1


@pytest.mark.parametrize(
    ("words", "payload"),
    [
        (("feeds.note", "text=hello"), {"text": "hello"}),
        (("feeds.note", "text=12"), {"text": "12"}),
        (("feeds.note", "text=true", "count=12"), {"text": "true", "count": 12}),
        (("feeds.note", 'text="12"', "phone=0123"), {"text": "12", "phone": "0123"}),
        (("feeds.note", "text=a=b", "phone=null"), {"text": "a=b", "phone": None}),
        (
            ("feeds.odd", "short=12", "id=34", "word=1", "size=1", "number=7"),
            {"short": "12", "id": "34", "word": "1", "size": "1", "number": 7},
        ),
        (("feeds.odd", "price=1.10"), {"price": "1.10"}),
        (("feeds.note", "text=", "phone=44"), {"text": "", "phone": "44"}),
        (
            ("feeds.fetch", 'feed={"host":"a.example"}', "deep=true"),
            {"feed": {"host": "a.example"}, "deep": True},
        ),
        (("feeds.fetch", "--payload", '{"feed":{"host":"a.example"}}'), {"feed": {"host": "a.example"}}),
    ],
    ids=str,
)
def test_values_that_parse_as_json_are_json_others_are_text(
    cli: Cli, tmp_path: Path, words: tuple[str, ...], payload: dict[str, Any]
) -> None:
    (tmp_path / "typed.py").write_text(TYPED)
    job = sent(cli, *words, app="typed:app")
    assert job["payload"].items() >= payload.items()
    if "feed" in payload:
        assert job["key"] == "a.example"  # computed from the handler's type, not from plain JSON


def test_a_payload_from_stdin(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"to": "ann"}')))
    assert sent(cli, "send", "--payload", "-")["payload"] == {"to": "ann"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("snd", "to=a"), "the application has no 'snd'; did you mean send? there are bounce, send"),
        (("send",), "Object missing required field `to`; it takes to: str"),
        (("send", "to"), "'to' is not of the form name=value; it takes to: str"),
        (("send", "to=a", "to=b"), "'to' is given twice"),
        (("send", "tu=a", "to=b"), "unknown field `tu`"),
        (("send", "to=[1]"), "Expected `str`, got `array` - at `to`"),
        (("send", "--payload", "[1]"), "Expected `object`, got `array`"),
        (("send", "--payload", "{"), "the payload is not JSON"),
        (("send", "--payload", "to=a"), "the payload is not JSON"),
        (("send", "to=a", "--payload", "{}"), "give the arguments once"),
        (("send", "to=a", "--delay", "1h", "--at", "2100-01-01"), "either --delay or --at"),
        (("send", "to=a", "--delay", "soon"), "'soon' is not a duration"),
        (("send", "to=a", "--at", "noon"), "'noon' is not a time"),
        (("send", "to=a", "--priority", "99999"), "priority: must lie between"),
        (("send", "to=a", "--queue", ""), "queue: must have 1 to"),
        (("send", "--wait", "to=a"), "write --wait last"),
        (("send", "--from", "missing.jsonl"), "missing.jsonl cannot be read: No such file"),
        (("send", "--from", "."), "cannot be read: Is a directory"),
        (("send", "--from", "empty.jsonl"), "there is nothing in it"),
        (("send", "--from", "bad.jsonl"), "line 3: task 'send': Expected `str`, got `int` - at `to`"),
        (("send", "--from", "bad.jsonl", "--id", "x"), "--id is about one job"),
        (("send", "--from", "bad.jsonl", "--wait"), "--wait is about one job"),
    ],
    ids=str,
)
def test_wrong_usage_enqueues_nothing(
    cli: Cli, tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    cli.make_store()
    (tmp_path / "empty.jsonl").write_text("\n\n")
    (tmp_path / "bad.jsonl").write_text('{"to": "a"}\n\n{"to": 7}\n{"to": "c"}\n')
    result = cli("enqueue", *arguments, *SHOP_APP)
    assert (result.code, result.out, len(result.err.splitlines())) == (2, "", 1)
    assert says in result.err
    assert cli("jobs", *SHOP_APP, "--json").json["jobs"] == []


def test_an_application_is_needed(cli: Cli) -> None:
    result = cli("enqueue", "send", "to=a")
    assert result.code == 2
    assert "say which application, such as myproject.jobs:app" in result.err


@pytest.mark.parametrize("piped", [False, True], ids=["file", "pipe"])
def test_a_file_of_jobs_is_enqueued(cli: Cli, tmp_path: Path, piped: bool) -> None:
    lines = "".join(f'{{"to": "{n}"}}\n' for n in range(40)).replace("\n", "\n\n", 3)
    (tmp_path / "many.jsonl").write_text(lines)
    command = [sys.executable, "-m", "tidemill", "enqueue", "send", "--app", "shop:app", "--from"]
    given = lines if piped else None
    result = subprocess.run(
        [*command, "-" if piped else "many.jsonl"],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "40 jobs sent\n", "")
    assert cli("queues", *SHOP_APP, "--json").json[0]["counts"]["ready"] == 40


def test_a_full_queue_reports_how_many_jobs_were_sent(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue's limit is 50."""
    monkeypatch.setattr("tidemill.cli.job_input.JOBS_PER_INSERT", 20)
    (tmp_path / "many.jsonl").write_text('{"to": "a"}\n' * 60)
    result = cli("enqueue", "send", "--from", "many.jsonl", *SHOP_APP)
    assert (result.code, result.out, len(result.err.splitlines())) == (1, "", 1)
    assert "queue 'mail' is full" in result.err
    assert "40 jobs of 60 were sent before: go on from line 41" in result.err
    assert cli("queues", *SHOP_APP, "--json").json[0]["counts"]["ready"] == 40


def test_wait_prints_the_result(cli: Cli) -> None:
    """The worker runs in another process, as a user would start it."""
    cli.make_store()
    command = [sys.executable, "-m", "tidemill", "worker", "shop:app"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stderr is not None
        assert any("worker started" in line for line in worker.stderr)
        done = cli("enqueue", "send", "to=ann", "--wait", "30", *SHOP_APP)
        failed = cli("enqueue", "bounce", *SHOP_APP, "--wait")
        as_data = cli("enqueue", "send", "to=bob", "--wait", "30", "--json", *SHOP_APP)
        worker.terminate()
        worker.communicate(timeout=60)
    assert (done.code, done.out) == (0, '"sent to ann"\n')
    assert done.err.startswith("tidemill: waiting for ")
    assert failed.code == 1
    assert "failed after 2 attempts: ConnectionError: nobody home" in failed.err
    assert (as_data.json["state"], as_data.json["result"]) == ("done", "sent to bob")


async def test_an_interruption_waits_for_the_running_insert() -> None:
    """Otherwise it would be unknown from which line to continue."""
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def step() -> str:
        begun.set()
        await may_end.wait()
        return "sent"

    sending = asyncio.create_task(_finish_despite_interrupt(step()))
    await begun.wait()
    sending.cancel()
    may_end.set()
    assert await sending == ("sent", True)


def test_waiting_without_a_worker_is_reported_at_once_and_at_the_end(cli: Cli) -> None:
    result = cli("enqueue", "send", "to=ann", "--wait", "0.01", *SHOP_APP)
    assert result.code == 1
    begun, warning, ended = result.err.splitlines()
    assert begun.startswith("tidemill: waiting for ")
    unserved = (
        "No living worker serves the queue 'mail': start one that does. Such as: tidemill worker shop:app"
    )
    assert warning == f"tidemill: {unserved}"
    assert "did not end within 0.01 s, it is ready" in ended
    assert ended.endswith(unserved)


def test_waiting_for_a_scheduled_job_is_reported(cli: Cli) -> None:
    cli.make_store()
    cli.on_store(lambda store: serve(store, "mail"))
    result = cli("enqueue", "send", "to=ann", "--delay", "2h", "--wait", "0.01", *SHOP_APP)
    assert "The job is scheduled to start in" in result.err.splitlines()[1]
    assert "No living worker" not in result.err


EMBEDDING = """
from __future__ import annotations
from dataclasses import dataclass
from tidemill import Context, FailedItem, Tidemill

app = Tidemill("sqlite:///embedding.db")

@dataclass
class Text:
    words: str

@app.batch_task(name="embed", max_items=10)
async def embed(ctx: Context, texts: list[Text]) -> list[int | FailedItem]:
    return [len(text.words) for text in texts]

@app.batch_task(name="shout", max_items=10)
def shout(texts: list[str]) -> list[str]:
    return [text.upper() for text in texts]
"""

EMBEDDING_APP = ("--app", "embedding:app")


def test_one_item_is_one_job(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "embedding.py").write_text(EMBEDDING)
    first = cli("enqueue", "embed", 'item={"words": "hello"}', *EMBEDDING_APP)
    assert first.code == 0, first.err
    second = cli("enqueue", "shout", "item=12", *EMBEDDING_APP)
    assert second.code == 0, second.err
    assert cli("worker", "embedding:app", "--until-idle").code == 0
    jobs = [
        cli("jobs", "show", result.out.strip(), *EMBEDDING_APP, "--json").json for result in (first, second)
    ]
    assert [job["result"] for job in jobs] == [5, "12"]


def test_an_invalid_item_is_reported_with_the_task_parameters(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "embedding.py").write_text(EMBEDDING)
    result = cli("enqueue", "embed", "texts=hello", *EMBEDDING_APP)
    assert result.code == 2
    assert "it takes item: Text" in result.err
    result = cli("enqueue", "embed", "item=hello", *EMBEDDING_APP)
    assert result.code == 2
    assert "item: must be a Text (words), is a string" in result.err


def test_a_file_of_items_is_enqueued(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "embedding.py").write_text(EMBEDDING)
    (tmp_path / "items").write_text('{"item": "a"}\n{"item": "b"}\n')
    result = cli("enqueue", "shout", "--from", str(tmp_path / "items"), *EMBEDDING_APP)
    assert result.out == "2 jobs sent\n", result.err
