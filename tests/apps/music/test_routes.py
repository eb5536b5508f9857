"""The API as its clients call it, and its permissions."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from tests.apps.music.virtual_kit import music_environment
from tidemill.testing.simulator import Disruption, RefusalCause, SimulatorOptions

STEERING = ("start", "pause", "resume", "stop")
SOURCE = {
    "isPaused",
    "isWorkerRunning",
    "activeJobs",
    "waitingJobs",
    "completedJobs",
    "failedJobs",
    "delayedJobs",
}
EXTENSION = {"pendingSongs", "totalSongs", "pipelineState", "state", "resumeAt", "pauseReason"}


async def test_the_status_has_the_names_its_clients_know(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 40) as env:
        status = (await env.call("GET", "/api/queue/status", who="viewer")).json
        assert status.keys() >= SOURCE | EXTENSION
        assert (status["pendingSongs"], status["totalSongs"], status["state"]) == (40, 40, "idle")
        started = await env.call("POST", "/api/queue/start", {"skipSync": True})
        assert started.status == 200
        assert started.json["started"]["stage"] == "enqueuing"
        during = (await env.call("GET", "/api/queue/status")).json
        assert (during["pipelineState"], during["state"]) == ("enqueuing", "enqueuing")
        await env.kit.run_until_idle()
        during = (await env.call("GET", "/api/queue/status")).json
        assert (during["pipelineState"], during["state"]) == ("idle", "running")
        assert during["waitingJobs"] + during["completedJobs"] == 4


async def test_completed_jobs_are_counted_though_their_records_go(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 40) as env:
        await env.start()
        await env.run_until_idle()
        await env.music.app.inspect.empty("metadata-generation", confirm="metadata-generation")
        assert (await env.call("GET", "/api/queue/status")).json["completedJobs"] == 4


async def test_the_breaker_says_why_and_until_when(tmp_path: Path) -> None:
    async with music_environment(
        tmp_path, 10, options=SimulatorOptions(disruptions=(Disruption(RefusalCause.RATE, 0.0, 30.0),))
    ) as env:
        await env.start()
        status = (await env.call("GET", "/api/queue/status")).json
        assert (status["state"], status["isPaused"]) == ("breaker", False)
        assert datetime.fromisoformat(status["resumeAt"]).timestamp() > env.kit.now
        assert "quota" in status["pauseReason"].lower()


async def test_pause_resume_and_stop(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 100) as env:
        await env.start()
        assert (await env.call("POST", "/api/queue/pause")).json == {"state": "paused"}
        status = (await env.call("GET", "/api/queue/status")).json
        assert (status["isPaused"], status["pauseReason"]) == (True, "paused by operator")
        assert (await env.call("POST", "/api/queue/resume")).json == {"state": "running"}
        stopped = (await env.call("POST", "/api/queue/stop")).json
        assert stopped["state"] == "idle"
        assert stopped["released"] == 10 * stopped["cancelled"] > 0


async def test_a_dry_run_sends_nothing(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 40) as env:
        answer = (await env.call("POST", "/api/queue/start", {"dryRun": True, "limit": 25})).json
        preview = answer["preview"]
        assert (preview["songs"], preview["jobs"], preview["calls"]) == (25, 3, 6)
        assert "started" not in answer
        assert (await env.call("GET", "/api/queue/status")).json["state"] == "idle"


async def test_anonymous_requests_are_401_and_viewers_cannot_change_the_queue(tmp_path: Path) -> None:
    async with music_environment(tmp_path) as env:
        for verb in STEERING:
            body: dict[str, object] | None = {} if verb == "start" else None
            assert (await env.call("POST", f"/api/queue/{verb}", body, who="")).status == 401
            assert (await env.call("POST", f"/api/queue/{verb}", body, who="viewer")).status == 403
        assert (await env.call("GET", "/api/queue/status", who="")).status == 401


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": "all"}, "limit"),
        ({"skipsync": True}, "skipsync"),
        ({"work": "x"}, "work"),
    ],
)
async def test_a_bad_start_names_the_field_and_begins_nothing(
    tmp_path: Path, body: object, field: str
) -> None:
    async with music_environment(tmp_path, 10) as env:
        answer = await env.call("POST", "/api/queue/start", body)
        assert (answer.status, answer.json["field"]) == (422, field)
        assert (await env.call("GET", "/api/queue/status")).json["state"] == "idle"


async def test_pausing_an_idle_pipeline_is_422(tmp_path: Path) -> None:
    async with music_environment(tmp_path) as env:
        answer = await env.call("POST", "/api/queue/pause")
        assert answer.status == 422
        assert answer.json["detail"].startswith("pause: the pipeline is idle")


async def test_songs_like_a_song(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 20) as env:
        await env.start()
        await env.run_until_idle()
        songs = (await env.call("GET", "/api/songs/s3/similar?count=4", who="viewer")).json["songs"]
        assert len(songs) == 4
        assert "s3" not in [song["navidrome_id"] for song in songs]
        similarity = [song["similarity"] for song in songs]
        assert similarity == sorted(similarity, reverse=True)
        assert songs[0]["title"].startswith("潮汐之歌")
        missing = await env.call("GET", "/api/songs/nobody/similar")
        assert missing.status == 404
        assert missing.json["detail"] == "song: there is no 'nobody'; GET /api/songs/search finds ids"


async def test_a_search_without_a_text_is_refused(tmp_path: Path) -> None:
    async with music_environment(tmp_path) as env:
        answer = await env.call("GET", "/api/songs/search")
        assert (answer.status, answer.json["field"]) == (422, "text")
