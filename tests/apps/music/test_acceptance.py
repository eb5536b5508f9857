"""Acceptance tests of music: a real music server, a simulated Gemini over HTTP, and worker processes that
are killed.

The provider's log counts the calls, refusals and bills."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

import pytest

from tests.apps.music.process_kit import CALLS, FULL_LENGTH, MINUTE, gemini, studio, wrong_vectors
from tests.apps.music.subsonic_server import MusicServer
from tests.apps.music.worker_process import Shifted
from tidemill import TimeOfDay
from tidemill.testing.simulator import Quota, RefusalCause
from tidemill_apps.music.pipeline_control import PipelineStartRequest
from tidemill_apps.music.pipeline_state import PipelineStage, PipelineState
from tidemill_apps.music.sync import sync_library

SONGS = 500
BATCH = 10 if FULL_LENGTH else 20
JOBS = SONGS // BATCH
TO_MIDNIGHT = 300.0 if FULL_LENGTH else 15.0
"""Seconds in which workers start and use up the daily quota."""

pytestmark = [pytest.mark.alone, pytest.mark.timeout(4000)]


def at(server: MusicServer) -> dict[str, str]:
    return {
        "MUSIC_SUBSONIC_URL": server.url,
        "MUSIC_SUBSONIC_USER": server.user,
        "MUSIC_SUBSONIC_PASSWORD": server.password,
        "MUSIC_SUBSONIC_AUTH": "password",
    }


async def test_five_hundred_songs_stay_within_the_quota_and_the_preview(
    tmp_path: Path, subsonic: MusicServer
) -> None:
    provider = gemini()
    async with studio(tmp_path, provider, at(subsonic)) as env:
        await env.processes.start(2)
        subsonic.hold(SONGS)  # while they start
        await env.music.live_settings.write("queue_batch_size", BATCH)
        await env.until_served()
        await sync_library((await env.music.connections.open()).source, env.music.library)
        preview = await env.music.pipeline.preview(PipelineStartRequest())
        began = monotonic()
        await env.music.pipeline.start(PipelineStartRequest())
        await env.until_idle()
        took = monotonic() - began
        assert await env.counts() == {"COMPLETED": SONGS}
        assert await wrong_vectors(env.music.library) == []
    books = provider.request_log
    assert books.refused == []
    assert books.duplicate_payments() == {}
    assert books.max_units_in_window("requests", 60) <= CALLS
    assert (preview.songs, preview.jobs, preview.calls) == (SONGS, JOBS, 2 * JOBS)
    assert len(books.bills) == preview.calls
    assert preview.seconds == pytest.approx(took, rel=0.1)


async def test_nothing_is_paid_twice_though_workers_die_between_the_calls(
    tmp_path: Path, subsonic: MusicServer
) -> None:
    provider = gemini()
    async with studio(tmp_path, provider, at(subsonic)) as env:
        await env.processes.start(3)
        subsonic.hold(60)
        await env.music.pipeline.start(PipelineStartRequest())
        for _ in range(2):
            await env.kill_between_calls()
        await env.until_idle()
        assert await env.counts() == {"COMPLETED": 60}
        assert await wrong_vectors(env.music.library) == []
    assert provider.request_log.refused == []
    assert provider.request_log.duplicate_payments() == {}
    assert len(provider.request_log.bills) == 12


async def test_a_day_that_is_used_up_ends_at_the_stored_time_after_a_restart_of_everything(
    tmp_path: Path, subsonic: MusicServer
) -> None:
    """Midnight in Los Angeles is a few seconds away; for the provider it comes slightly earlier than for
    us."""
    subsonic.hold(80)
    clock = Shifted(0.0)
    midnight = TimeOfDay(0, 0, "America/Los_Angeles").after(clock.wall())
    shift = midnight - TO_MIDNIGHT - clock.wall()
    start = midnight - (TO_MIDNIGHT - 1.0) * 60.0 / MINUTE
    provider = gemini(Quota.day("requests", 8, zone="America/Los_Angeles"), start=start)
    given = at(subsonic) | {"MUSIC_RESUME_AT": "0:00 America/Los_Angeles"}
    async with studio(tmp_path, provider, given, shift=shift) as env:
        await env.processes.start(2)
        await env.music.pipeline.start(PipelineStartRequest())
        state = await env.until(lambda state: _waits_for(state, midnight), "the breaker")
        assert state.breaker is not None
        refused = len(provider.request_log.refused)
        await env.restart(2)
        again = await env.music.pipeline.load_state()
        assert (again.stage, again.breaker) == (PipelineStage.BREAKER, state.breaker)
        await env.until_idle()
        assert await env.counts() == {"COMPLETED": 80}
    books = provider.request_log
    assert {refusal.reason for refusal in books.refused} == {RefusalCause.DAY}
    assert len(books.refused) == refused
    assert len(books.bills) == 16
    assert books.duplicate_payments() == {}


def _waits_for(state: PipelineState, wall: float) -> bool:
    return state.stage is PipelineStage.BREAKER and state.breaker is not None and state.breaker.until == wall


@pytest.mark.parametrize("store", ["redis", "postgres"])
async def test_the_same_on_servers(
    store: str, tmp_path: Path, subsonic: MusicServer, request: pytest.FixtureRequest
) -> None:
    """The jobs are on the server; with PostgreSQL, the songs too."""
    subsonic.hold(60)
    url = request.getfixturevalue(f"{store}_url")
    given = at(subsonic) | ({"MUSIC_DATABASE_URL": url} if store == "postgres" else {})
    provider = gemini()
    async with studio(tmp_path, provider, given, jobs=url) as env:
        await env.processes.start(2)
        await env.music.pipeline.start(PipelineStartRequest())
        await env.until_idle()
        assert await env.counts() == {"COMPLETED": 60}
        assert await wrong_vectors(env.music.library) == []
    assert provider.request_log.refused == []
    assert provider.request_log.duplicate_payments() == {}
    assert len(provider.request_log.bills) == 12
