"""The API as its clients call it, and who may."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from tests.apps.music.world import world
from tidemill.testing.providers import Options, Reason, Trouble

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
    async with world(tmp_path, 40) as its:
        status = (await its.call("GET", "/api/queue/status", who="viewer")).json
        assert status.keys() >= SOURCE | EXTENSION
        assert (status["pendingSongs"], status["totalSongs"], status["state"]) == (40, 40, "idle")
        started = await its.call("POST", "/api/queue/start", {"skipSync": True})
        assert started.status == 200
        assert started.json["started"]["stage"] == "enqueuing"
        during = (await its.call("GET", "/api/queue/status")).json
        assert (during["pipelineState"], during["state"]) == ("enqueuing", "enqueuing")
        await its.kit.run_until_idle()
        during = (await its.call("GET", "/api/queue/status")).json
        assert (during["pipelineState"], during["state"]) == ("idle", "running")
        assert during["waitingJobs"] + during["completedJobs"] == 4


async def test_completed_jobs_are_counted_though_their_records_go(tmp_path: Path) -> None:
    async with world(tmp_path, 40) as its:
        await its.start()
        await its.run_until_idle()
        await its.music.app.inspect.empty("metadata-generation", confirm="metadata-generation")
        assert (await its.call("GET", "/api/queue/status")).json["completedJobs"] == 4


async def test_the_breaker_says_why_and_until_when(tmp_path: Path) -> None:
    async with world(tmp_path, 10, options=Options(troubles=(Trouble(Reason.RATE, 0.0, 30.0),))) as its:
        await its.start()
        status = (await its.call("GET", "/api/queue/status")).json
        assert (status["state"], status["isPaused"]) == ("breaker", False)
        assert datetime.fromisoformat(status["resumeAt"]).timestamp() > its.kit.now
        assert "quota" in status["pauseReason"].lower()


async def test_pause_resume_and_stop(tmp_path: Path) -> None:
    async with world(tmp_path, 100) as its:
        await its.start()
        assert (await its.call("POST", "/api/queue/pause")).json == {"state": "paused"}
        status = (await its.call("GET", "/api/queue/status")).json
        assert (status["isPaused"], status["pauseReason"]) == (True, "paused by operator")
        assert (await its.call("POST", "/api/queue/resume")).json == {"state": "running"}
        stopped = (await its.call("POST", "/api/queue/stop")).json
        assert stopped["state"] == "idle"
        assert stopped["released"] == 10 * stopped["cancelled"] > 0


async def test_a_dry_run_sends_nothing(tmp_path: Path) -> None:
    async with world(tmp_path, 40) as its:
        answer = (await its.call("POST", "/api/queue/start", {"dryRun": True, "limit": 25})).json
        preview = answer["preview"]
        assert (preview["songs"], preview["jobs"], preview["calls"]) == (25, 3, 6)
        assert "started" not in answer
        assert (await its.call("GET", "/api/queue/status")).json["state"] == "idle"


async def test_who_may(tmp_path: Path) -> None:
    async with world(tmp_path) as its:
        for verb in STEERING:
            body: dict[str, object] | None = {} if verb == "start" else None
            assert (await its.call("POST", f"/api/queue/{verb}", body, who="")).status == 401
            assert (await its.call("POST", f"/api/queue/{verb}", body, who="viewer")).status == 403
        assert (await its.call("GET", "/api/queue/status", who="")).status == 401


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
    async with world(tmp_path, 10) as its:
        answer = await its.call("POST", "/api/queue/start", body)
        assert (answer.status, answer.json["field"]) == (422, field)
        assert (await its.call("GET", "/api/queue/status")).json["state"] == "idle"


async def test_what_cannot_be_paused_is_told(tmp_path: Path) -> None:
    async with world(tmp_path) as its:
        answer = await its.call("POST", "/api/queue/pause")
        assert answer.status == 422
        assert answer.json["detail"].startswith("pause: the pipeline is idle")


async def test_songs_like_a_song(tmp_path: Path) -> None:
    async with world(tmp_path, 20) as its:
        await its.start()
        await its.run_until_idle()
        songs = (await its.call("GET", "/api/songs/s3/similar?count=4", who="viewer")).json["songs"]
        assert len(songs) == 4
        assert "s3" not in [song["navidrome_id"] for song in songs]
        likeness = [song["likeness"] for song in songs]
        assert likeness == sorted(likeness, reverse=True)
        assert songs[0]["title"].startswith("潮汐之歌")
        missing = await its.call("GET", "/api/songs/nobody/similar")
        assert missing.status == 404
        assert missing.json["detail"] == "song: there is no 'nobody'; GET /api/songs/search finds ids"


async def test_a_search_without_a_text_is_refused(tmp_path: Path) -> None:
    async with world(tmp_path) as its:
        answer = await its.call("GET", "/api/songs/search")
        assert (answer.status, answer.json["field"]) == (422, "text")
