"""Pools and plans on the command line."""

from __future__ import annotations

import getpass
import importlib
import re
import sys
from pathlib import Path

import apsw
import pytest

from tests.cli.support import Cli, claim, serve
from tests.cli.terminal import Terminal
from tidemill.cli.formatting import format_amount
from tidemill.contract.copy import PoolCopy, StoreCopy
from tidemill.contract.store import Store
from tidemill.core.accounts import Account
from tidemill.core.feedback import Observation, Reason, Refusal
from tidemill.core.learned_spacings import LearnedSpacing
from tidemill.core.pools import LimitChanges

APPLICATION = """
from tidemill import Limit, Tidemill

app = Tidemill("sqlite:///shop.db")
model = app.pool("model", Limit.requests(10, per="minute"), Limit.tokens(50_000, per="minute"))
site = app.pool("site", Limit.requests(2, per="minute"), keyed=True)
voice = app.pool("voice", Limit.concurrent(3))

@app.task(name="send", queue="mail", pool=model, cost=lambda to: {"tokens": 10 * len(to)})
async def send(to: str) -> None: ...

@app.task(name="fetch", queue="feeds", pool=site.by(lambda host: host))
async def fetch(host: str) -> None: ...

@app.task(name="speak", queue="voice", pool=voice)
async def speak() -> None: ...

@app.task(name="plain")
async def plain() -> None: ...
"""
APP = ("--app", "shop:app")


@pytest.fixture(autouse=True)
def shop(cli: Cli, tmp_path: Path) -> None:
    """Twelve jobs need the model; two of them are claimed."""
    (tmp_path / "shop.py").write_text(APPLICATION)
    sys.modules.pop("shop", None)
    importlib.invalidate_caches()
    for _ in range(12):
        cli.send("a@example.org")
    cli.on_store(lambda store: claim(store, "mail", limit=2))


def report_refusal(cli: Cli, refusal: Refusal) -> None:
    async def report(store: Store) -> None:
        await store.observe([Observation(pool="model", refusal=refusal)])

    cli.on_store(report)


def test_every_limit_is_shown_with_a_gauge(cli: Cli) -> None:
    lines = cli("pools", *APP).out.splitlines()
    assert lines[0].split() == ["pool", "limit", "used", "all", "free", "in", "waiting", "state"]
    assert lines[1].startswith("model  requests per minute  ##--------")
    assert "2 of 10" in lines[1]
    assert lines[1].split()[-2:] == ["10", "open"]
    assert lines[2].startswith("model  tokens per minute    #---------  260 of 50k"), (
        "a little is not nothing"
    )
    assert lines[3].split() == ["site", "requests", "per", "minute", "each", "key", "2", "0", "open"]
    assert [pool["name"] for pool in cli("pools", *APP, "--json").json] == ["model", "site", "voice"]


def test_info_shows_one_pool_or_one_key(cli: Cli) -> None:
    result = cli("pools", "info", "model", *APP)
    assert "state:     open" in result.out
    assert "under way: 2" in result.out
    assert "waiting:   10 jobs, done " in result.out
    output = cli("pools", "info", "model", *APP, "--json").json
    assert (output["waiting"], output["reservations"], output["forecast"]["jobs"]) == (10, 2, 10)
    key = cli("pools", "info", "site", "--key", "a.example", *APP, "--json").json
    assert (key["key"], key["limits"][0]["used"]) == ("a.example", 0.0)
    assert cli("pools", "info", "model", "--key", "x", *APP).err == (
        "tidemill: pool 'model' has no keys; leave 'x' out\n"
    )


def test_a_mistyped_pool_is_reported(cli: Cli) -> None:
    for command in (("info",), ("open",), ("close",), ("unset",)):
        result = cli("pools", *command, "modl", *APP)
        assert (result.code, result.err) == (
            1,
            "tidemill: there is no pool 'modl'; there are: model, site, voice\n",
        )


def test_amounts_are_overridden_and_unset(cli: Cli) -> None:
    result = cli("pools", "set", "model", "requests per minute=5", "--for", "2h", "--reason", "trial", *APP)
    assert result.out.startswith(f"model: requests per minute=5 by {getpass.getuser()}@")
    assert ": trial" in result.out
    cli("pools", "set", "model", "tokens per minute=900", *APP)
    output = cli("pools", "info", "model", *APP, "--json").json
    assert [limit["amount"] for limit in output["limits"]] == [5, 900]
    assert [limit["declared"] for limit in output["limits"]] == [10, 50_000]
    assert output["override"]["until"] is not None, "the end it had stays"
    assert (
        "override:  requests per minute=5, tokens per minute=900 by"
        in cli("pools", "info", "model", *APP).out
    )
    result = cli("pools", "unset", "model", "tokens per minute", *APP)
    assert result.out.startswith("model: requests per minute=5 by ")
    assert cli("pools", "unset", "model", *APP).out == "model: follows the code again\n"
    result = cli("pools", "unset", "model", *APP)
    assert (result.code, result.err) == (
        1,
        "tidemill: nothing was changed: of pool 'model' nothing is overridden\n",
    )


def test_the_amounts_of_one_key_are_overridden_and_unset(cli: Cli) -> None:
    words = ("requests per minute=1", "--key", "a.example", "--for", "1h", "--reason", "they are slow")
    stored = cli("pools", "set", "site", *words, *APP).out
    assert stored.startswith("site/a.example: requests per minute=1 by ")
    assert stored.rstrip().endswith(": they are slow")
    info = cli("pools", "info", "site", "--key", "a.example", *APP).out
    assert re.search(r"this key: +requests per minute=1 by ", info)
    assert cli("pools", "info", "site", "--key", "a.example", *APP, "--json").json["key_override"][
        "changes"
    ] == {"amounts": {"requests per minute": 1.0}}
    assert "this key" not in cli("pools", "info", "site", *APP).out
    refused = cli("pools", "set", "model", "requests per minute=1", "--key", "a", *APP)
    assert "pool 'model': key: the pool has no keys; leave 'a' out" in refused.err
    assert cli("pools", "unset", "site", "--key", "b.example", *APP).code == 1
    cleared = cli("pools", "unset", "site", "--key", "a.example", *APP).out
    assert cleared == "site/a.example: follows the code again\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("requests per hour=5",), "'requests per hour' is not a limit of the pool; there are: requests per"),
        (("requests per minute=0",), "requests per minute: must be above 0, is 0.0; close the pool"),
        (("requests per minute=many",), "requests per minute: must be a number above 0, is 'many'"),
        (("requests per minute",), "'requests per minute' is not LIMIT=AMOUNT"),
        (("requests per minute=1", "requests per minute=2"), "requests per minute is given twice"),
        (("requests per minute=1", "--until", "2020-01-01T00:00"), "until: must be in the future"),
    ],
)
def test_an_invalid_amount_changes_nothing(cli: Cli, words: tuple[str, ...], says: str) -> None:
    result = cli("pools", "set", "model", *words, *APP)
    assert result.code == 2
    assert says in result.err
    assert cli("pools", "info", "model", *APP, "--json").json["override"] is None


def test_a_pool_is_closed_and_opened(cli: Cli) -> None:
    result = cli("pools", "close", "model", "--for", "1h", "--reason", "the bill", *APP)
    assert result.out.startswith("model is closed until 2")
    assert cli.on_store(lambda store: claim(store, "mail", number=2)).jobs == []
    (line,) = [line for line in cli("pools", *APP).out.splitlines() if "requests" in line and "model" in line]
    assert re.search(r"closed until \d{4}-\d\d-\d\d \d\d:\d\d: the bill \(by \S+@\S+\)$", line)
    assert cli("pools", "open", "model", *APP).out == "model is open\n"
    assert len(cli.on_store(lambda store: claim(store, "mail", number=3)).jobs) == 1
    result = cli("pools", "close", "site", "--key", "a.example", *APP, "--json")
    assert (result.json["key"], result.json["until"]) == ("a.example", None)
    assert "pool 'site': key: the pool has keys" in cli("pools", "close", "site", *APP).err


def test_a_refusal_is_shown_and_reported_by_the_doctor(cli: Cli) -> None:
    report_refusal(cli, Refusal(reason=Reason.SPENDING, text="your credit is used up"))
    assert "spending: closed until it is opened" in cli("pools", "info", "model", *APP).out
    result = cli("doctor", *APP)
    assert result.code == 1
    assert (
        'bad  pool model: spending: closed until it is opened (it said "your credit is used up"); '
        "10 jobs wait\n     set right what the provider names, then to open it: tidemill pools open model"
    ) in result.out
    cli("pools", "open", "model", *APP)
    assert "pool model" not in cli("doctor", *APP).out


def test_a_learned_spacing_is_shown_and_noted_by_the_doctor(cli: Cli) -> None:
    async def learn(store: Store) -> None:
        await store.override_pool("site", LimitChanges(amounts={"requests per minute": 1}), by="ann")
        clock = (await store.read_clock()).wall
        spacing = LearnedSpacing(
            seconds=120.0, window=60.0, below=1.0, since=clock, changed=clock, refused=clock, confirmed=True
        )
        account = Account(spacings={"requests per minute": spacing})
        [pool] = [view for view in await store.pools() if view.name == "site"]
        copy = PoolCopy(declared=pool.declared, override=pool.override, accounts={"slow.example": account})
        await store.copy_in(StoreCopy(pools={"site": copy}))

    cli.on_store(learn)
    info = cli("pools", "info", "site", "--key", "slow.example", *APP).out
    assert re.search(r"learned: +requests per minute: one call per 120 s, since \d{4}", info)
    assert "learned" not in cli("pools", "info", "site", "--key", "fast.example", *APP).out
    notes = cli("doctor", *APP).out
    assert "learned: requests per minute: one call per 120 s, since" in notes
    assert "to forget what was learned: tidemill pools open site --key slow.example" in notes


def test_the_doctor_notes_overrides_and_undeclared_pools(cli: Cli, tmp_path: Path) -> None:
    cli("pools", "set", "model", "requests per minute=5", *APP)
    assert "note pool model: overridden: requests per minute=5 by" in cli("doctor", *APP).out
    cli("pools", "set", "site", "requests per minute=5", "--key", "a.example", *APP)
    notes = cli("doctor", *APP).out
    assert "note pool site/a.example: overridden: requests per minute=5 by" in notes
    assert "tidemill pools unset site --key a.example" in notes
    old = APPLICATION.replace('site = app.pool("site"', 'site = app.pool("web"')
    (tmp_path / "newer.py").write_text(old)
    assert (
        "note pool site: the application does not declare it any more; its last limits hold"
        in cli("doctor", "--app", "newer:app").out
    )


def test_a_plan_is_printed(cli: Cli) -> None:
    result = cli("plan", "send", "to=ann", "--count", "500", *APP)
    assert result.out.startswith("500 jobs of send; done ")
    assert "; bottleneck: 10 requests per minute of model.\n" in result.out
    assert "ahead:        10 ready jobs" in result.out
    assert "; no worker serves queue mail, and nothing starts until one does; " in result.out
    assert max(map(len, result.out.splitlines()[1:])) <= 80
    assert "calls:        500, 500 requests, 15k tokens" in result.out
    output = cli("plan", "send", "to=ann", "--count", "500", *APP, "--json").json
    assert output["seconds"] == pytest.approx(51 * 60.5, rel=0.05)
    assert output["units"] == {"requests": 500.0, "tokens": 15_000.0}
    urgent = cli("plan", "send", "to=ann", "--count", "500", "--priority", "1", *APP, "--json").json
    assert urgent["seconds"] < output["seconds"]
    assert "drained:" in cli("queues", "info", "mail", *APP).out


def test_a_plan_warns_of_short_retention(cli: Cli) -> None:
    too_many = cli("plan", "send", "to=ann", "--count", "1000001", *APP).out
    assert (
        "; queue mail keeps done jobs for 7 days, at most 1 000 000: of 1000001 results the first are "
        "dropped before the last job is done; raise keep_done." in too_many
    )
    too_long = cli("plan", "send", "to=ann", "--count", "200000", *APP, "--json").json
    assert [(drop["queue"], drop["jobs"]) for drop in too_long["drops"]] == [("mail", 200_000)]
    assert cli("plan", "send", "to=ann", "--count", "500", *APP, "--json").json["drops"] == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("send", "--count", "5"), "its cost is computed from the arguments; give an example of them"),
        (("send", "to=ann", "--count", "0"), "must be a whole number of 1 or more, is '0'"),
        (("sned", "--count", "5"), "task: the application has no 'sned'"),
        (("speak", "--count", "5"), "takes: pool 'voice' allows so many calls at once"),
        (("fetch", "--count", "5"), "the key of pool 'site' is computed from the arguments"),
    ],
)
def test_a_plan_with_invalid_arguments_is_refused(cli: Cli, arguments: tuple[str, ...], says: str) -> None:
    result = cli("plan", *arguments, *APP)
    assert result.code == 2
    assert says in result.err


def test_a_plan_behind_a_closed_pool_is_never_done(cli: Cli) -> None:
    cli("pools", "close", "voice", "--reason", "moving", *APP)
    result = cli("plan", "speak", "--count", "5", "--takes", "2s", *APP)
    assert "pool voice is closed until a person opens it (moving)" in result.out
    assert "done:         not before a person acts" in result.out


def test_top_shows_pools_the_closed_ones_first(cli: Cli) -> None:
    cli("pools", "close", "voice", *APP)
    out = cli("top", "--once", *APP).out
    assert out.index("voice  calls at once") < out.index("model  requests per minute")
    assert cli("top", *APP, "--json").json["pools"][0]["name"] == "model"


def test_pools_fit_a_terminal_of_80_columns() -> None:
    with Terminal("pools", *APP, columns=80) as terminal:
        drawn = terminal.until("no room for [^;]*; --json has all|calls at once.*\n")
    lines = drawn.replace("\r", "").splitlines()
    assert max(map(len, lines[:6])) <= 80
    assert any(line.startswith("model  requests per minute  ##--------") for line in lines), drawn


def test_80_columns_show_until_when_and_why_a_pool_is_closed(cli: Cli) -> None:
    cli("pools", "close", "model", "--for", "1h", "--reason", "the bill", *APP)
    with Terminal("pools", *APP, columns=80) as terminal:
        drawn = terminal.until("no room for [^;]*; --json has all")
    closed = [line for line in drawn.replace("\r", "").splitlines() if line.startswith("model")]
    assert max(map(len, closed)) <= 80
    assert re.search(r"closed until \d{4}-\d\d-\d\d \d\d:\d\d: the b", closed[0]), drawn


def test_the_doctor_only_notes_jobs_that_wait_for_a_pool(cli: Cli, tmp_path: Path) -> None:
    """A worker has free slots and a job could have started ten minutes ago, but it waits for a pool."""
    importlib.import_module("shop").fetch.enqueue_sync("a.example")
    cli.app().close_sync()
    with apsw.Connection(str(tmp_path / "shop.db")) as database:
        database.execute("UPDATE jobs SET due = due - 600 WHERE state = 'ready'")
    cli.on_store(lambda store: serve(store, "mail", "feeds"))
    assert "1 job could have started 10 min ago, and none did" in cli("doctor", *APP).out, "its pool is open"
    cli("pools", "close", "site", "--key", "a.example", "--for", "5h", *APP)
    out = cli("doctor", *APP).out
    assert "note queue feeds: 1 pending, 0 running, 0 failed; they wait for their pools, done " in out, out
    cli("pools", "close", "site", "--key", "a.example", *APP)
    assert "they wait for a pool that only a person opens" in cli("doctor", *APP).out


def test_a_job_shows_its_needs_and_no_lane(cli: Cli) -> None:
    job = cli("enqueue", "send", "to=a@example.org", *APP).out.split()[-1]
    output = cli("jobs", "show", job, *APP).out
    assert "needs:            model: 130 tokens\n" in output
    assert "key:" not in output
    assert "\x1f" not in output
    assert "\ufffd" not in output
    record = cli("jobs", "show", job, "--json", *APP).json
    assert record["key"] is None
    assert record["needs"] == [{"pool": "model", "key": None, "units": {"tokens": 130.0}, "excused": 0}]
    assert "lane" not in record


@pytest.mark.parametrize(
    ("units", "text"),
    [(950, "950"), (12_500, "12.5k"), (999_999, "1000k"), (2e7, "20M"), (1e9, "1000M"), (0.25, "0.25")],
)
def test_amounts_are_short_and_have_no_exponent(units: float, text: str) -> None:
    assert format_amount(units) == text


def test_a_plan_works_before_the_store_exists(cli: Cli, tmp_path: Path) -> None:
    before = cli("plan", "fetch", "host=a.org", "--count", "5", *APP, "--json").json
    (tmp_path / "shop.db").unlink()
    result = cli("plan", "fetch", "host=a.org", "--count", "5", *APP)
    assert result.code == 0
    assert result.out.startswith("5 jobs of fetch; done ")
    assert "bottleneck: 2 requests per minute of site/a.org" in result.out
    assert "shop.db yet: no jobs and no workers" in result.err
    assert not (tmp_path / "shop.db").exists(), "nothing is made"
    planned = cli("plan", "fetch", "host=a.org", "--count", "5", *APP, "--json").json
    assert planned["seconds"] == pytest.approx(before["seconds"], abs=1)


def test_a_plan_needs_the_code(cli: Cli) -> None:
    result = cli("plan", "send", "--count", "5")
    assert result.code == 2
    assert "say which application" in result.err
    result = cli("plan", "send", "--count", "5", "--url", "sqlite:///shop.db")
    assert (result.code, "--url" in result.err) == (2, True)
