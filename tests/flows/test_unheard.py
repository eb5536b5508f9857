"""A server has advanced a flow for certain, and nobody hears of it: the reply is lost, or the server dies.

Nothing is made twice, nothing is left behind, and the flow's end is told once (I17).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence

import pytest

from tests.flows.sums import PARTS, Sums, all_once
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.servers.server import Server
from tidemill.contract.store import Store
from tidemill.core.courses import Advance, Advanced
from tidemill.core.graph_state import ENDED
from tidemill.errors import StoreUnavailable
from tidemill.stores.postgres import PostgresStore
from tidemill.stores.redis import RedisStore
from tidemill.telemetry.events import FlowEnded

Wanted = Callable[[Advance], bool]


def makes_jobs(advance: Advance) -> bool:
    return advance.expected > 0 and bool(advance.jobs)


def ends(advance: Advance) -> bool:
    return advance.next is not None and advance.next.state in ENDED


class Unheard:
    """Of each kind that is wanted, the answer to one advance that was done is lost. `over` is set
    when all were."""

    def __init__(self, wanted: Sequence[Wanted], store: Store, dies: Callable[[], object]) -> None:
        self._wanted, self._inner, self._dies = list(wanted), type(store).advance, dies
        self.over = asyncio.Event()

    async def advance(self, store: Store, advances: Sequence[Advance]) -> list[Advanced]:
        answers = await self._inner(store, advances)
        done = [one for one, answer in zip(advances, answers, strict=True) if answer.done]
        for wanted in self._wanted:
            if any(wanted(one) for one in done):
                self._wanted.remove(wanted)
                self._dies()
                if not self._wanted:
                    self.over.set()
                raise StoreUnavailable("no answer came")
        return answers

    def as_method(self) -> Callable[..., Awaitable[list[Advanced]]]:
        async def advance(store: Store, advances: Sequence[Advance]) -> list[Advanced]:
            return await self.advance(store, advances)

        return advance


async def runs_once(store: Store, unheard: Unheard, restarts: Sequence[Awaitable[None]] = ()) -> None:
    told: list[FlowEnded] = []
    sums = Sums(store, told)
    async with sums.app:
        handle = await sums.send("0")
        worker = sums.app.worker(heartbeat_thread=False, isolation=False)
        task = asyncio.create_task(worker.run())
        await unheard.over.wait()
        await asyncio.gather(*restarts)  # whoever asks a server that is away is told so
        assert await handle.result(timeout=60) == sum(range(PARTS))
        worker.stop()
        await task
        await all_once(sums.app, 1, told)


@pytest.fixture(params=["redis", "postgres"])
def store(request: pytest.FixtureRequest) -> Store:
    if request.param == "postgres":
        return PostgresStore(request.getfixturevalue("prepared_postgres_url"))
    url, prefix = (request.getfixturevalue(name) for name in ("redis_url", "redis_prefix"))
    return RedisStore(url, prefix=prefix)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("wanted", [makes_jobs, ends])
async def test_i17_the_reply_is_lost(store: Store, wanted: Wanted, monkeypatch: pytest.MonkeyPatch) -> None:
    unheard = Unheard([wanted], store, lambda: None)
    monkeypatch.setattr(type(store), "advance", unheard.as_method())
    await runs_once(store, unheard)


@pytest.fixture(params=["redis", "postgres"])
def durable(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Keeps what it has acknowledged."""
    with Redis(append_only=True) if request.param == "redis" else Postgres(durable=True) as server:
        yield server


@pytest.mark.timeout(120)
async def test_i17_the_server_is_killed(durable: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(durable, Postgres | Redis)
    store = PostgresStore(durable.url) if isinstance(durable, Postgres) else RedisStore(durable.url)
    restarts: list[asyncio.Task[None]] = []

    def die() -> None:
        durable.kill()
        restarts.append(asyncio.create_task(asyncio.to_thread(durable.start)))

    unheard = Unheard([makes_jobs, ends], store, die)
    monkeypatch.setattr(type(store), "advance", unheard.as_method())
    await runs_once(store, unheard, restarts)
    assert len(restarts) == 2
