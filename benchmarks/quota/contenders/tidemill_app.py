"""The application of `tidemill worker`: the account's limits, in the shape that each provider documents."""

from __future__ import annotations

from collections.abc import AsyncIterator

from benchmarks.quota.process_settings import ProcessSettings
from benchmarks.quota.provider_client import build_request, create_client
from tidemill import Context, Limit, Tidemill

setting = ProcessSettings.here()
app = Tidemill(f"sqlite:///{setting.folder}/tidemill.db")


def limits() -> tuple[Limit, ...]:
    minute = setting.real(60.0)
    match setting.dialect:
        case "openai":
            return (
                Limit.requests(60, per=minute, shape="bucket", charge="reserved"),
                Limit.tokens(40_000, per=minute, shape="bucket", charge="reserved"),
            )
        case "anthropic":
            return (
                Limit.requests(5, per=setting.real(5.0), shape="bucket"),
                Limit.of("input_tokens", 30_000, per=minute, shape="bucket"),
                Limit.of("output_tokens", 12_000, per=minute, shape="bucket", charge="completed"),
            )
        case "gemini":
            return (
                Limit.requests(50, per=minute, shape="paced"),
                Limit.of("input_tokens", 250_000, per=minute, shape="paced"),
            )
        case _:
            return (Limit.concurrent(5), Limit.requests(120, per=minute))


pool = app.pool(setting.dialect, *limits(), jitter=0.25)
calls = create_client(setting)


@app.lifespan
async def connected() -> AsyncIterator[None]:
    """Opens the connections at the start, as the how-to recommends: the first call of a cold process takes
    longer than the jitter."""
    await calls.get("/")
    yield


@app.task(name="ask", pool=pool, cost={unit: float(units) for unit, units in setting.account.units.items()})
async def ask(ctx: Context, job: int) -> None:
    response = await calls.post(**build_request(setting, job))
    response.raise_for_status()
    ctx.used(response)


if __name__ == "__main__":
    app.enqueue_many_sync(ask.job(job) for job in range(setting.jobs))
    app.close_sync()
