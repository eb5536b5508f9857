"""Songs that the music server no longer lists are neither processed nor found; paid results are kept.

A server that suddenly lists far fewer songs is not trusted."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import httpx2
import pytest

from tests.apps.music.fake_source import Listing
from tests.apps.music.library_fixtures import add_songs, column, track
from tests.apps.music.subsonic_server import MusicServer
from tests.apps.music.virtual_kit import MusicEnvironment, music_environment
from tidemill_apps.music.library import Library
from tidemill_apps.music.pipeline_control import PipelineStartRequest
from tidemill_apps.music.search import SimilarityIndex
from tidemill_apps.music.subsonic import SubsonicClient
from tidemill_apps.music.sync import (
    SyncPreview,
    SyncResult,
    count_unlisted,
    preview_sync,
    store_missing_count,
    sync_library,
)
from tidemill_apps.music.tables import SongOutcome, SongStatus


def listing(numbers: Iterable[int], modified: int) -> Listing:
    return Listing([track(number) for number in numbers], modified=modified)


async def completed(library: Library, count: int) -> None:
    songs = await add_songs(library, count)
    await library.mark_processing(songs, "job")
    vectors = {song.navidrome_id: [1.0, float(number)] for number, song in enumerate(songs)}
    await library.save("job", [SongOutcome(navidrome_id=id_, vector=vectors[id_]) for id_ in vectors])


async def found(library: Library) -> set[str]:
    return {match.song.navidrome_id for match in await SimilarityIndex(library).to_vector([1.0, 1.0], 100)}


async def test_a_song_that_the_server_deleted_is_neither_worked_on_nor_found(
    subsonic: MusicServer, library: Library
) -> None:
    async with httpx2.AsyncClient() as http:
        given = (subsonic.url, subsonic.user, subsonic.password)
        server = SubsonicClient(*given, http, lambda: "salt", token=False)
        subsonic.hold(6)
        await sync_library(server, library)
        subsonic.hold(4)
        assert await sync_library(server, library) == SyncResult(seen=4, hidden=2)
        assert {song.title for song in await library.load_pending()} == {
            "Tide Song 0",
            "潮汐之歌 第1首",
            "Tide Song 2",
            "潮汐之歌 第3首",
        }


async def test_a_hidden_song_keeps_its_vector_and_is_complete_when_listed_again(
    either: Library,
) -> None:
    await completed(either, 6)
    vectors, similar = await column(either, "vector"), SimilarityIndex(either)
    assert await sync_library(listing(range(4), 2), either) == SyncResult(seen=4, hidden=2)
    assert await found(either) == {"s0", "s1", "s2", "s3"}
    assert await similar.to_song("s5") == []
    assert (await either.count_by_status())[SongStatus.COMPLETED] == 4
    assert await count_unlisted(either) == 2
    assert await column(either, "vector") == vectors
    assert await sync_library(listing(range(6), 3), either) == SyncResult(seen=6, changed=2)
    assert await found(either) == {f"s{number}" for number in range(6)}
    assert await either.load_pending() == []
    assert await count_unlisted(either) == 0


async def test_a_song_that_comes_back_and_was_not_done_is_foreseen(either: Library) -> None:
    await add_songs(either, 6)
    assert await preview_sync(listing(range(4), 2), either) == SyncPreview(0, {"PENDING": 2})
    await sync_library(listing(range(4), 2), either)
    assert await either.count_waiting(SongStatus.PENDING) == 4
    assert await preview_sync(listing(range(6), 3), either) == SyncPreview(2)
    await sync_library(listing(range(6), 3), either)
    assert await either.count_waiting(SongStatus.PENDING) == 6


async def test_a_song_of_a_job_that_waits_is_not_paid_for_once_it_is_gone(either: Library) -> None:
    songs = await add_songs(either, 3)
    await either.mark_queued({"job": ["s0", "s1", "s2"]})
    await sync_library(listing(range(2), 2), either)
    assert await either.mark_processing(songs, "job") == songs[:2]


async def test_the_result_of_a_song_hidden_during_its_job_is_kept(either: Library) -> None:
    songs = await add_songs(either, 3)
    await either.mark_processing(songs, "job")
    await sync_library(listing(range(2), 2), either)
    await either.save("job", [SongOutcome(navidrome_id="s2", vector=[1.0])])
    assert (await column(either, "status"))["s2"] == "COMPLETED"
    assert await count_unlisted(either) == 1


async def test_a_server_that_lists_much_less_or_nothing_hides_nothing_and_is_read_again(
    either: Library,
) -> None:
    await add_songs(either, 60)
    less = listing(range(45), 2)
    assert await sync_library(less, either) == SyncResult(seen=45, missing=15)
    assert await sync_library(less, either) == SyncResult(seen=45, missing=15)
    assert less.reads == 2
    assert await sync_library(Listing(modified=3), either) == SyncResult(missing=60)
    assert (await either.count_waiting(SongStatus.PENDING), await count_unlisted(either)) == (60, 0)
    assert await sync_library(listing(range(50), 4), either) == SyncResult(seen=50, hidden=10)


async def test_nothing_is_not_believed_of_a_small_library_either(library: Library) -> None:
    await add_songs(library, 2)
    assert await sync_library(Listing(modified=2), library) == SyncResult(missing=2)
    assert await count_unlisted(library) == 0


async def test_a_person_who_is_sure_hides_them_all(either: Library) -> None:
    await add_songs(either, 60)
    assert await sync_library(listing(range(5), 2), either, confirmed=True) == SyncResult(seen=5, hidden=55)
    assert await either.count_waiting(SongStatus.PENDING) == 5


async def test_a_list_that_changed_while_it_was_read_hides_nothing(library: Library) -> None:
    """A song may have moved from an unread page to a page that was already read."""
    await add_songs(library, 4)

    class Busy(Listing):
        async def last_modified(self) -> int:
            self.modified += 1
            return self.modified

    assert await sync_library(Busy([track(0), track(1)]), library) == SyncResult(seen=2)
    assert await sync_library(Listing([track(0)], modified=0), library) == SyncResult(seen=1)
    assert await count_unlisted(library) == 0


async def test_a_sync_that_did_not_come_to_its_end_hides_nothing(library: Library) -> None:
    await add_songs(library, 4)
    with pytest.raises(ConnectionError):
        await sync_library(Listing([track(0)], [], modified=2), library)
    assert await count_unlisted(library) == 0


async def test_a_dry_run_counts_no_song_that_its_sync_would_hide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with music_environment(tmp_path, 40) as env:
        at(env, listing(range(32), 2), monkeypatch)
        preview = await env.pipeline.preview(PipelineStartRequest())
        assert (preview.songs, preview.new, preview.calls) == (32, 0, 8)
        await env.pipeline.start(PipelineStartRequest())
        await env.run_until_idle()
        assert len(env.provider.request_log.bills) == preview.calls


async def test_a_dry_run_of_hiding_all_that_is_missing_counts_none_of_it_and_goes_on_to_hide_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with music_environment(tmp_path, 40) as env:
        at(env, listing(range(10), 2), monkeypatch)
        assert (await env.pipeline.preview(PipelineStartRequest())).songs == 40
        assert (await env.pipeline.preview(PipelineStartRequest(hide_missing=True))).songs == 10
        await store_missing_count(env.music.library, 30)
        browser = await env.visitors.browser()
        form = {"csrf": await browser.csrf(), "sync": "true", "hide_missing": "true"}
        planned = (await browser.post("/music/plan", form)).headers["location"]
        page = (await browser.get(planned)).text
        assert 'name="hide_missing" value="true" checked' in page


async def test_the_page_shows_missing_songs_in_its_language_with_the_hide_option(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 40) as env:
        await store_missing_count(env.music.library, 37)
        browser = await env.visitors.browser()
        english = (await browser.get("/music")).text
        box = english.partition('sse-swap="missing"')[2].partition("</form>")[0]
        assert 'name="hide_missing"' in box  # it appears together with the sentence, without a reload
        assert "no longer lists 37 songs" in english
        assert "tick “hide” below" in english
        assert "hideMissing" not in english
        chinese = (await browser.get("/music", accept_language="zh")).text
        assert "音乐服务器不再列出原有的 37 首歌曲" in chinese
        assert "no longer lists" not in chinese


def at(env: MusicEnvironment, source: Listing, monkeypatch: pytest.MonkeyPatch) -> None:
    async def listed() -> Listing:
        return source

    monkeypatch.setattr(env.music.connections, "_open_source", listed)


async def test_the_status_and_the_page_say_what_is_missing_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with music_environment(tmp_path, 40) as env:
        at(env, listing(range(3), 2), monkeypatch)
        assert (await env.call("POST", "/api/queue/start", {"limit": 1})).status == 200
        await env.run_until_idle()
        status = (await env.call("GET", "/api/queue/status")).json
        (problem,) = status["problems"]
        assert problem.startswith("the music server no longer lists 37 songs; ")
        assert problem.endswith("or start with hideMissing")
        browser = await env.visitors.browser()
        page = (await browser.get("/music")).text
        assert "no longer lists 37 songs" in page
        assert 'name="hide_missing"' in page
        form = {"csrf": await browser.csrf(), "sync": "true", "limit": "1", "hide_missing": "true"}
        assert (await browser.post("/music/start", form)).status == 303
        await env.run_until_idle()
        status = (await env.call("GET", "/api/queue/status")).json
        assert (status["problems"], status["totalSongs"], status["unlistedSongs"]) == ([], 3, 37)
        page = (await browser.get("/music")).text
        assert 'name="hide_missing"' not in page
        song = (await browser.get("/music/songs/s39")).text
        assert "The music server no longer lists this song" in song


async def test_hide_missing_without_a_sync_is_422(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 1) as env:
        body = {"skipSync": True, "hideMissing": True}
        answer = await env.call("POST", "/api/queue/start", body)
        assert answer.status == 422
        assert answer.json["detail"].startswith("hideMissing: only a sync finds what is missing")
