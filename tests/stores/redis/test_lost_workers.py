"""S12: a worker that lost its connections recovers in every part: claims, heartbeats, wake-ups."""

from __future__ import annotations

import asyncio

from tests.servers.redis import Redis
from tidemill import Context, Tidemill


async def test_s12_i7_heartbeats_come_back_with_the_connection(redis_url: str, redis_server: Redis) -> None:
    """A worker that could not arm its listener woke at once, armed again, and starved all other tasks."""
    app = Tidemill(redis_url)

    @app.task(name="says", queue="q")
    async def says(ctx: Context, words: str) -> str:
        ctx.log(words)
        return words

    async with app:
        work = asyncio.create_task(app.work(lease=3.0, heartbeat=0.5, reclaim_every=0.5))
        try:
            async with asyncio.timeout(30):
                await (await says.enqueue("before")).result()
                with redis_server.client() as client:
                    for kind in ("normal", "pubsub"):
                        client.client_kill_filter(_type=kind)
                seen = (await app.inspect.workers())[0].seen
                await (await says.enqueue("after")).result()
                while not any(one.seen > seen + 1 for one in await app.inspect.workers()):  # noqa: ASYNC110 - looks
                    await asyncio.sleep(0.1)
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
