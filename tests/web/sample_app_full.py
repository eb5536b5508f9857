"""The music service with flows of many shapes, keyed pools, a tripped breaker and schedules.

`python -m tests.web.sample_app_full sqlite:////tmp/sample.db 8798` serves it without a sign-in."""

from __future__ import annotations

import asyncio
import sys

from tests.web.sample_app import LONG, SampleApp, serve
from tidemill import Day, Flow, Limit, Retry
from tidemill.core.feedback import Observation, Reason, Refusal
from tidemill.web import Role

HOSTS = ("blog.example.org", "news.example.com", "feeds.example.net", "podcasts.example.cn")


class FullSampleApp(SampleApp):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        app = self.app
        site = app.pool("site", Limit.requests(6, per="minute"), keyed=True)
        openai = app.pool("openai", Limit.requests(60, per="minute"), Limit.usd(20, per=Day("UTC")))
        self.fetch = app.task(name="feeds:fetch", queue="feeds", pool=site.by(lambda host, **_: host))(
            self._fetch
        )
        self.draft = app.task(name="blog:draft", queue="blog", pool=openai, cost={"usd": 0.02})(self._draft)
        app.alert("feeds wait", on="queue_length", queue="feeds", above=10, clear=5)
        app.alert("no dead letters", on="dead_letters")
        app.webhook("reader", "https://reader.example/hook", tasks=[self.fetch], event="feed.refreshed")
        self.work = app.task(name="films:work", queue="films", retry=Retry(attempts=1))(self._work)
        self.mend = app.task(name="films:mend", queue="films")(self._mend)

    async def fill(self) -> None:
        await super().fill()
        jobs = [self.fetch.job(host=host) for number, host in enumerate(HOSTS) for _ in range(4 + 6 * number)]
        await self.app.enqueue_many(jobs)
        await self.app.enqueue_many([self.draft.job(f"post {number}") for number in range(25)])
        await self._steer()
        for shape in (self.diamond(), self.wide(), self.failing(), self.long(), self.film()):
            await shape.enqueue()
        for number in range(6):
            chain = self.app.flow("chain", key=f"chain-{number}")
            chain.add(self.mend, failure=chain.add(self.extract, film=f"film-{number}")).named("mend")
            await chain.enqueue()

    async def _steer(self) -> None:
        inspect, schedules = self.app.inspect, self.app.schedules
        await inspect.override_pool(
            "voyage", {"requests per minute": 120}, by="alice", reason="they are slow today"
        )
        await schedules.upsert("hourly-feeds", self.fetch.job(host=HOSTS[0]), every=3600)
        report = self.send.job("boss@example.org")
        await schedules.upsert("weekly-report", report, cron="30 9 * * mon", tz="Europe/Berlin")
        await schedules.upsert("every-minute", self.draft.job("a post"), every=60)
        await schedules.pause("weekly-report", reason="the boss is away")
        await schedules.override("hourly-feeds", by="bo", reason="too often for them", every=7200)
        await schedules.run_now("hourly-feeds")
        for name, role in (("alice", Role.ADMIN), ("bo", Role.OPERATOR), ("wall-screen", Role.VIEWER)):
            await self.app.auth.tokens.create(name, role, by="alice")
        out_of_day = Refusal(
            reason=Reason.DAY_QUOTA, text="You exceeded your current quota, please check your plan"
        )
        await self.app.store.observe([Observation(pool="openai", refusal=out_of_day)])

    def film(self) -> Flow:
        flow = self.app.flow("dub", key="the-tide")
        audio = flow.add(self.work, what="fast").named("extract audio")
        scenes = flow.add(self.work, what="fast").named("find scenes")
        lines = flow.add(self.extract, film="the-tide").named("transcribe").after(audio)
        translated = flow.map(self.speak, line=lines).named("translate")
        checked = flow.add(self.work, what="fast").named("check wording").after(scenes, lines)
        speech = flow.map(self.speak, line=translated).named("speak each line")
        mixed = flow.add(self.mux, spoken=speech).named("mix")
        subtitles = flow.add(self.mux, spoken=translated).named("subtitles")
        cut = flow.add(self.work, what="fast").named("cut").after(mixed, checked)
        flow.add(self.work, what="fast").named("publish").after(cut, subtitles, audio)
        return flow

    def diamond(self) -> Flow:
        flow = self.app.flow("diamond", key="1")
        top = flow.add(self.work, what="fast").named("top")
        sides = [flow.add(self.work, what=what).named(what).after(top) for what in ("fast", "slow", "later")]
        flow.add(self.work, what="fast").named("bottom").after(*sides)
        return flow

    def wide(self) -> Flow:
        flow = self.app.flow("wide", key="a/b?c")
        firsts = [flow.add(self.work, what="fast").named(f"source {number}") for number in range(9)]
        joins = [
            flow.add(self.work, what="fast").named(f"join {number}").after(*firsts[number::3])
            for number in range(3)
        ]
        flow.add(self.work, what="fast").named("all of it, with a name that is too long").after(
            *joins, firsts[0]
        )
        return flow

    def failing(self) -> Flow:
        flow = self.app.flow("failing", key="2")
        bad = flow.add(self.work, what="bad").named("bad")
        let_go = flow.add(self.work, what="bad").named("let go").on_failure("continue")
        flow.add(self.work, what="fast").named("never").after(bad, let_go)
        return flow

    def long(self) -> Flow:
        flow = self.app.flow("long", key="3")
        before = flow.add(self.work, what="fast").named("第一步 提取音频并且转写全部内容")
        for number in range(2, 24):
            before = flow.add(self.work, what="fast").named(f"step {number}").after(before)
        return flow

    async def _fetch(self, host: str) -> str:
        await asyncio.sleep(0.2)
        return host

    async def _draft(self, title: str) -> str:
        return title

    async def _work(self, what: str) -> str:
        if what == "bad":
            raise ValueError("the film has no sound")
        await asyncio.sleep(LONG if what == "slow" else 0.05)
        return what

    async def _mend(self, failure: list[str]) -> int:
        return len(failure)


if __name__ == "__main__":
    asyncio.run(serve(FullSampleApp, sys.argv[1], int(sys.argv[2])))
