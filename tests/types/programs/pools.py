"""Types of pools, costs and usage reports."""

from __future__ import annotations

from typing import reveal_type

from tidemill import Context, Day, Limit, Month, Tidemill, TimeOfDay, Week

app = Tidemill("memory://")
gemini = app.pool(
    "gemini",
    Limit.requests(10, per="minute"),
    Limit.tokens(250_000, per=60),
    Limit.requests(250, per=Day("America/Los_Angeles")),
    Limit.usd(5, per=Week("Asia/Shanghai"), shape="bucket", charge="reserved"),
    Limit.of("pages", 300, per=Month()),
    Limit.concurrent(4),
    reserved_share=0.1,
    urgent=2,
    jitter=0.5,
    resumes=TimeOfDay(16, 30, "Asia/Shanghai"),
)
site = app.pool("site", Limit.requests(1, per="second"), keyed=True)
reveal_type(gemini)  # reveals: Pool

app.pool("wrong", 10)  # expect: arg-type, reportArgumentType
app.pool("wrong", Limit.requests(1, per=None))  # expect: arg-type, reportArgumentType
app.pool("wrong", Limit.requests(1, per=1), held=0.1)  # expect: call-arg, reportCallIssue
Limit.requests(1, per="minuet")  # expect: arg-type, reportArgumentType
Limit.requests(1, per=1, shape="square")  # expect: arg-type, reportArgumentType


@app.task(pool=gemini, cost=lambda songs: {"tokens": 900 * len(songs)})
async def describe(ctx: Context, songs: list[str]) -> int:
    ctx.used({"usage": {"total_tokens": 7}})
    ctx.used(tokens=700, usd=0.1)
    ctx.used(gemini, songs, tokens=700)
    ctx.used(tokens="many")  # expect: arg-type, reportArgumentType
    async with ctx.spend(site, key="example.org"):
        pass
    async with ctx.spend(gemini, tokens=4_000):
        pass
    async with ctx.spend("gemini", tokens=4_000):  # expect: arg-type, reportArgumentType
        pass
    return len(songs)


@app.task(pool=[gemini, site.by(lambda host: host)], cost={gemini: {"tokens": 5}})
def fetch(host: str) -> None: ...


@app.task(pool=(gemini, site.by(lambda host: host)), cost={"gemini": {"tokens": 5}})
def fetch_too(host: str) -> None: ...


@app.task(pool="gemini")  # expect: arg-type, reportArgumentType
def named(host: str) -> None: ...


reveal_type(describe.using(cost={"tokens": 5}))  # reveals: Task[(songs: list[str]), int]
describe.using(cost=5)  # expect: arg-type, reportArgumentType
site.by("host")  # expect: arg-type, reportArgumentType
