"""A music service with a day of history: jobs in every state, full, closed and open pools, a flow, dead
letters.

`python -m tests.web.sample_app sqlite:////tmp/sample.db` serves it; the user is always Alice."""

from __future__ import annotations

import asyncio
import math
import sys

import uvicorn
from starlette.requests import Request

from tidemill import Context, Day, Limit, Retry, Tidemill
from tidemill.clock import Clock, SystemClock
from tidemill.http_routes.routes import Role, User
from tidemill.web import dashboard

LONG = 3600.0
PORT = 8799


DAY, STEP = 86_400.0, 300.0


class ShiftedClock(SystemClock):
    """A clock that is behind by some seconds. Leases still belong to this boot."""

    seconds = DAY

    def wall(self) -> float:
        return super().wall() - self.seconds


class OverloadedError(Exception):
    """The error of an overloaded provider."""


class SampleApp:
    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self.app = app = Tidemill(url, clock=clock)
        app.queue("metadata", weight=3, concurrency=6)
        app.queue("mail", max_length=5000)
        app.queue("archive")
        gemini = app.pool(
            "gemini",
            Limit.requests(10, per="minute"),
            Limit.tokens(250_000, per="minute"),
            Limit.requests(250, per=Day("America/Los_Angeles")),
        )
        voyage = app.pool("voyage", Limit.requests(300, per="minute"), Limit.concurrent(4))
        app.pool("elevenlabs", Limit.of("characters", 10_000, per="hour"))
        cost = {"tokens": 5_400}
        self.describe = app.task(name="songs:describe", queue="metadata", pool=gemini, cost=lambda **_: cost)(
            self._describe
        )
        self.embed = app.task(name="songs:embed", queue="embed", pool=voyage)(self._embed)
        self.send = app.task(name="mail:send", queue="mail", retry=Retry(attempts=3, first=LONG))(self._send)
        self.digest = app.task(name="mail:digest", queue="mail", retry=Retry(attempts=1))(self._digest)
        self.extract = app.task(name="films:extract", queue="films")(self._extract)
        self.speak = app.task(name="films:speak", queue="films")(self._speak)
        self.mux = app.task(name="films:mux", queue="films")(self._mux)
        app.schedule("nightly", self.embed.job("night"), cron="0 3 * * *", tz="Asia/Shanghai")

    async def fill(self) -> None:
        """Enqueues jobs and applies operator actions; a worker does the rest."""
        await self.app.enqueue_many(
            [self.describe.job([f"song {number}", "other"], api_key="sk-live-1") for number in range(40)]
        )
        await self.app.enqueue_many([self.embed.job(f"verse {number}") for number in range(60)])
        await self.app.enqueue_many([self.digest.job(user) for user in range(7)])
        await self.app.enqueue_many(
            [self.send.job(f"{name}@example.org") for name in ("nobody", "ann", "bo")]
        )
        await self.embed.using(tags=["slow"], key="long").enqueue("endless")
        await self.send.using(delay=LONG).enqueue("later@example.org")
        cancelled = await self.send.using(delay=LONG).enqueue("never@example.org")
        await self.app.inspect.cancel(cancelled.id, reason="the customer left")
        flow = self.app.flow("dub", key="film-7")
        spoken = flow.map(self.speak, line=flow.add(self.extract, film="film-7"))
        flow.add(self.mux, spoken=spoken)
        await flow.enqueue()
        await self.app.inspect.pause("archive", reason="the disk is being changed")
        await self.app.inspect.override("mail", by="alice", reason="a campaign", concurrency=2)
        await self.app.inspect.close_pool("elevenlabs", by="alice", reason="the invoice is open")

    async def _describe(self, ctx: Context, songs: list[str], api_key: str) -> int:
        ctx.log(f"asking for {len(songs)} songs")
        await ctx.step("metadata", self._ask, songs[0], paid=True)
        await ctx.progress(0.5, "embedding")
        await asyncio.sleep(20)
        return len(songs)

    async def _ask(self, song: str) -> dict[str, str]:
        return {"song": song, "mood": "calm"}

    async def _embed(self, ctx: Context, text: str) -> list[float]:
        await ctx.progress(0.25, "first quarter")
        await asyncio.sleep(LONG if text == "endless" else 0.05)
        return [0.25, 0.5]

    async def _send(self, ctx: Context, to: str, subject: str = "Your <b>songs</b>") -> str:
        ctx.log(f"connecting for {to}")
        if to.startswith("nobody"):
            raise ConnectionError(f"mail server refused {to}: connection reset by peer")
        return "sent"

    async def _digest(self, user: int) -> None:
        raise OverloadedError("HTTP 529: overloaded, try later")

    async def _extract(self, film: str) -> list[str]:
        return [f"{film} line {number}" for number in range(4)]

    async def _speak(self, line: str) -> str:
        await asyncio.sleep(LONG if line.endswith("2") else 0)
        return line.upper()

    async def _mux(self, spoken: list[str]) -> str:
        return ", ".join(spoken)


async def run_sample_day(url: str) -> None:
    """Fills the store with a day: more jobs by day than by night, and a few failures."""
    clock = ShiftedClock()
    made = SampleApp(url, clock)
    async with made.app:
        while clock.seconds > 0:
            day = math.sin(clock.seconds / DAY * math.tau)
            many = round(12 - 8 * day + 3 * math.sin(clock.seconds))
            await made.app.enqueue_many(
                [made.send.job(f"listener-{each}@example.org") for each in range(many)]
            )
            await made.app.enqueue_many(
                [made.digest.job(each) for each in range(clock.seconds % 7200 < STEP)]
            )
            await made.app.worker(until_idle=True, queues=["mail"]).run()
            clock.seconds -= STEP


async def authenticate_admin(_: Request) -> User:
    return User("alice", Role.ADMIN)


async def serve(kind: type[SampleApp], url: str, port: int) -> None:
    await run_sample_day(url)
    made = kind(url)
    async with made.app:
        await made.fill()
        config = uvicorn.Config(
            dashboard(made.app, auth=authenticate_admin), port=port, lifespan="off", log_level="warning"
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(made.app.worker(concurrency=12).run())
            group.create_task(uvicorn.Server(config).serve())


if __name__ == "__main__":
    asyncio.run(serve(SampleApp, sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else PORT))
