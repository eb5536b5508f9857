"""I30: no page, API response or metric contains a job's secret."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from tests.web.asgi_client import send_request
from tests.web.populated_store import PopulatedStore
from tidemill import Context, Retry, Secret
from tidemill.http_routes.routes import Role
from tidemill.web.asgi import Dashboard

BY_NAME, ANNOTATED = "canary-8c1f5e", "canary-d94b27"


async def test_no_route_shows_a_secret() -> None:
    world = PopulatedStore("memory://")

    @world.app.task(name="leaks", queue="leaky", retry=Retry(attempts=2, first=0.0))
    async def leaks(ctx: Context, api_key: str, card: Annotated[str, Secret]) -> None:
        ctx.log(f"paying with {card}, as {api_key}")
        await ctx.progress(0.5, f"paying with {card}")
        await ctx.step("pay", lambda: {"token": api_key, "card": card})
        raise LookupError(f"{api_key} may not use {card}; password={BY_NAME}")

    async with world.app:
        await world.populate()
        job = await leaks.enqueue(BY_NAME, card=ANNOTATED)
        await world.app.schedules.upsert("leaking", leaks.job(BY_NAME, card=ANNOTATED), every=3600.0)
        await world.app.worker(until_idle=True).run()
        assert (await world.app.inspect.job(job.id)).job.error is not None
        server, admin = Dashboard(world.app), await world.token(Role.ADMIN)
        own = [f"/jobs/{job.id}", f"/api/v1/jobs/{job.id}", f"/api/v1/jobs/{job.id}/explain"]
        own += ["/schedules/leaking", "/api/v1/schedules/leaking"]
        paths = [path for route in server.routes if not route.writes for path in world.paths(route.path)]
        errors = 0
        for path in (*own, *paths):
            for accept in ("text/html", "application/json"):
                answer = await send_request(
                    server.starlette, "GET", path, headers={**admin, "accept": accept}
                )
                assert BY_NAME not in answer.text, path
                assert ANNOTATED not in answer.text, path
                errors += "LookupError" in answer.text
        for text, found in ((BY_NAME, False), (ANNOTATED[:9], False), ("may not use", True)):
            page = await send_request(server.starlette, "GET", f"/jobs?text={quote(text)}", headers=admin)
            assert (job.id in page.text) is found, text
    assert errors > len(("job page", "job of the API", "dead letters"))
