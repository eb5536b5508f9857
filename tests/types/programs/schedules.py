"""What an editor says about schedules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import reveal_type

from tidemill import Tidemill

app = Tidemill("memory://")


@app.task
async def sweep() -> None: ...


@app.task
async def refresh(feed: int) -> str:
    return str(feed)


app.schedule("nightly", sweep, cron="0 3 * * *", tz="Asia/Shanghai", catch_up="skip", overlap="allow")
app.schedule(
    "feed", refresh.using(priority=1).job(7), every=timedelta(hours=1), start=datetime.now(UTC), jitter=5
)
app.schedule("wrong", refresh.job("7"), every=60)  # expect: arg-type, reportArgumentType
app.schedule("wrong", sweep, every="1h")  # expect: arg-type, reportArgumentType
app.schedule("wrong", sweep, every=60, catch_up="maybe")  # expect: arg-type, reportArgumentType
app.schedule("wrong", sweep, corn="0 3 * * *")  # expect: call-arg, reportCallIssue
app.schedule("wrong", lambda: None, every=60)  # expect: arg-type, reportArgumentType


async def main() -> None:
    view = await app.schedules.upsert("feed-7", refresh.job(7), every=3600)
    reveal_type(view)  # reveals: ScheduleView
    await app.schedules.upsert("feed-7", refresh.job(7), every=3600, next_at=datetime.now(UTC))
    await app.schedules.upsert("x", sweep, every=60, next_at="now")  # expect: arg-type, reportArgumentType
    await app.schedules.upsert_many([("feed-7", refresh.job(7), {"every": 60, "next_at": 5.0})])
    await app.schedules.upsert_many(
        [("feed-7", refresh.job(7), {"every": 60}), ("night", sweep, {"cron": "0 3 * * *"})]
    )
    await app.schedules.upsert_many(
        (f"feed-{number}", refresh.job(number), {"every": 60}) for number in range(3)
    )
    await app.schedules.override("feed-7", by="ann", every=60, until=None)
    await app.schedules.override("feed-7", by="ann", corn="x")  # expect: call-arg, reportCallIssue
    await app.schedules.pause("feed-7", until="tomorrow")  # expect: arg-type, reportArgumentType
    job = await app.schedules.run_now("feed-7")
    print(job.id, (await app.schedules.list(states=["paused"])).cursor)
