"""A server has advanced a flow, but the reply is lost or the server dies.

No job is created twice, no flow is left behind, and the end is emitted once (I17)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence

import pytest

from tests.flows.sum_flows import PARTS, Sums, all_once
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.servers.server import Server
from tidemill.contract.store import Store
from tidemill.core.documents import Advance, AdvanceResult
from tidemill.core.flow_progress import FINAL_FLOW_STATES
from tidemill.errors import StoreUnavailable
from tidemill.stores.postgres import PostgresStore
from tidemill.stores.redis import RedisStore
from tidemill.telemetry.events import FlowEnded

Wanted = Callable[[Advance], bool]


def makes_jobs(advance: Advance) -> bool:
    return advance.expected > 0 and bool(advance.jobs)


def ends(advance: Advance) -> bool:
    return advance.next is not None and advance.next.state in FINAL_FLOW_STATES


class LostReplies:
    """Loses the reply to one advance of each wanted kind. `over` is set when all were lost."""

    def __init__(self, wanted: Sequence[Wanted], store: Store, dies: Callable[[], object]) -> None:
        self._wanted, self._inner, self._dies = list(wanted), type(store).advance, dies
        self.over = asyncio.Event()

    async def advance(self, store: Store, advances: Sequence[Advance]) -> list[AdvanceResult]:
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

    def as_method(self) -> Callable[..., Awaitable[list[AdvanceResult]]]:
        async def advance(store: Store, advances: Sequence[Advance]) -> list[AdvanceResult]:
            return await self.advance(store, advances)

        return advance


async def runs_once(
    store: Store, lost_replies: LostReplies, restarts: Sequence[Awaitable[None]] = ()
) -> None:
    ended: list[FlowEnded] = []
    sums = Sums(store, ended)
    async with sums.app:
        handle = await sums.send("0")
        worker = sums.app.worker(heartbeat_thread=False, isolation=False)
        task = asyncio.create_task(worker.run())
        await lost_replies.over.wait()
        await asyncio.gather(*restarts)  # whoever asks a server that is away is told so
        assert await handle.result(timeout=60) == sum(range(PARTS))
        worker.stop()
        await task
        await all_once(sums.app, 1, ended)


@pytest.fixture(params=["redis", "postgres"])
def store(request: pytest.FixtureRequest) -> Store:
    if request.param == "postgres":
        return PostgresStore(request.getfixturevalue("prepared_postgres_url"))
    url, prefix = (request.getfixturevalue(name) for name in ("redis_url", "redis_prefix"))
    return RedisStore(url, prefix=prefix)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("wanted", [makes_jobs, ends])
async def test_i17_the_reply_is_lost(store: Store, wanted: Wanted, monkeypatch: pytest.MonkeyPatch) -> None:
    lost_replies = LostReplies([wanted], store, lambda: None)
    monkeypatch.setattr(type(store), "advance", lost_replies.as_method())
    await runs_once(store, lost_replies)


@pytest.fixture(params=["redis", "postgres"])
def durable(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that keeps everything it has acknowledged."""
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

    lost_replies = LostReplies([makes_jobs, ends], store, die)
    monkeypatch.setattr(type(store), "advance", lost_replies.as_method())
    await runs_once(store, lost_replies, restarts)
    assert len(restarts) == 2
