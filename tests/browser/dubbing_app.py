"""The application of the browser tests: a studio that dubs films. Each job waits for a file, so that the
test decides when it continues."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tidemill import Context, Day, Limit, Retry, Tidemill

TICK = 0.02


class DubbingApp:
    """The tasks and their store. Jobs wait for files in `folder`."""

    def __init__(self, url: str, folder: Path) -> None:
        self.folder = folder
        self.app = app = Tidemill(url)
        app.queue("mail", weight=3)
        app.queue("letters")
        app.queue("attic")
        model = app.pool("model", Limit.requests(2, per="hour"), Limit.requests(200, per=Day("UTC")))
        self.record = app.task(name="record", queue="songs")(self._record)
        self.post = app.task(name="post", queue="mail", retry=Retry(attempts=1))(self._post)
        self.caption = app.task(name="caption-films-in-two-languages", queue="films")(self._ask)
        self.ask = app.task(name="ask", queue="calls", pool=model)(self._ask)
        self.extract = app.task(name="extract", queue="films")(self._extract)
        self.speak = app.task(name="speak", queue="films")(self._speak)
        self.mux = app.task(name="mux", queue="films")(self._mux)
        app.schedule("nightly", self.record.job("night"), cron="0 3 * * *", tz="Asia/Shanghai")

    def let_go(self, name: str) -> None:
        (self.folder / name).touch()

    async def begin_film(self, name: str) -> str:
        flow = self.app.flow("dub", key=name)
        lines = flow.add(self.extract, film=name)
        flow.add(self.mux, spoken=flow.map(self.speak, line=lines))
        return (await flow.enqueue()).id

    async def _record(self, ctx: Context, song: str) -> str:
        ctx.log(f"recording {song}")
        await ctx.progress(0.5, "half of it")
        await self._gone(song)
        return f"{song}.wav"

    async def _post(self, to: str) -> str:
        if not (self.folder / to).exists():
            raise ConnectionError(f"nobody home at {to}")
        return f"sent to {to}"

    async def _ask(self, question: str) -> str:
        return question.upper()

    async def _extract(self, film: str) -> list[str]:
        await self._gone(film)
        return [f"{film} {line}" for line in ("one", "two", "three")]

    async def _speak(self, line: str) -> str:
        return line.upper()

    async def _mux(self, spoken: list[str]) -> str:
        return ", ".join(spoken)

    async def _gone(self, name: str) -> None:
        while not (self.folder / name).exists():  # noqa: ASYNC110 - the test is another process
            await asyncio.sleep(TICK)
