"""Songs that the music server no longer lists are neither worked on nor found, and nothing that was paid for
is lost. A server that suddenly lists much less is not believed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import httpx2
import pytest

from tests.apps.music.libraries import column, stocked, track
from tests.apps.music.listing import Listing
from tests.apps.music.music_server import MusicServer
from tests.apps.music.world import World, world
from tidemill_apps.music.library import Library
from tidemill_apps.music.missing import gone, note
from tidemill_apps.music.outcomes import Outcome
from tidemill_apps.music.pipeline import Start
from tidemill_apps.music.similar import Similar
from tidemill_apps.music.songs import Status
from tidemill_apps.music.subsonic import Subsonic
from tidemill_apps.music.syncing import Foreseen, Synced, foresee, sync


def listing(numbers: Iterable[int], modified: int) -> Listing:
    return Listing([track(number) for number in numbers], modified=modified)


async def completed(library: Library, count: int) -> None:
    songs = await stocked(library, count)
    await library.mark_processing(songs, "job")
    vectors = {song.navidrome_id: [1.0, float(number)] for number, song in enumerate(songs)}
    await library.save("job", [Outcome(navidrome_id=id_, vector=vectors[id_]) for id_ in vectors])


async def found(library: Library) -> set[str]:
    return {match.song.navidrome_id for match in await Similar(library).to_vector([1.0, 1.0], 100)}


async def test_a_song_that_the_server_deleted_is_neither_worked_on_nor_found(
    subsonic: MusicServer, library: Library
) -> None:
    async with httpx2.AsyncClient() as http:
        given = (subsonic.url, subsonic.user, subsonic.password)
        server = Subsonic(*given, http, lambda: "salt", token=False)
        subsonic.hold(6)
        await sync(server, library)
        subsonic.hold(4)
        assert await sync(server, library) == Synced(seen=4, hidden=2)
        assert {song.title for song in await library.pending()} == {
            "Tide Song 0",
            "潮汐之歌 第1首",
            "Tide Song 2",
            "潮汐之歌 第3首",
        }


async def test_what_was_paid_for_is_kept_and_a_song_that_comes_back_is_complete_at_once(
    either: Library,
) -> None:
    await completed(either, 6)
    vectors, similar = await column(either, "vector"), Similar(either)
    assert await sync(listing(range(4), 2), either) == Synced(seen=4, hidden=2)
    assert await found(either) == {"s0", "s1", "s2", "s3"}
    assert await similar.to_song("s5") == []
    assert (await either.counts())[Status.COMPLETED] == 4
    assert await gone(either) == 2
    assert await column(either, "vector") == vectors
    assert await sync(listing(range(6), 3), either) == Synced(seen=6, changed=2)
    assert await found(either) == {f"s{number}" for number in range(6)}
    assert await either.pending() == []
    assert await gone(either) == 0


async def test_a_song_that_comes_back_and_was_not_done_is_foreseen(either: Library) -> None:
    await stocked(either, 6)
    assert await foresee(listing(range(4), 2), either) == Foreseen(0, {"PENDING": 2})
    await sync(listing(range(4), 2), either)
    assert await either.waiting(Status.PENDING) == 4
    assert await foresee(listing(range(6), 3), either) == Foreseen(2)
    await sync(listing(range(6), 3), either)
    assert await either.waiting(Status.PENDING) == 6


async def test_a_song_of_a_job_that_waits_is_not_paid_for_once_it_is_gone(either: Library) -> None:
    songs = await stocked(either, 3)
    await either.mark_queued({"job": ["s0", "s1", "s2"]})
    await sync(listing(range(2), 2), either)
    assert await either.mark_processing(songs, "job") == songs[:2]


async def test_what_a_job_found_out_of_a_song_that_went_meanwhile_is_kept(either: Library) -> None:
    songs = await stocked(either, 3)
    await either.mark_processing(songs, "job")
    await sync(listing(range(2), 2), either)
    await either.save("job", [Outcome(navidrome_id="s2", vector=[1.0])])
    assert (await column(either, "status"))["s2"] == "COMPLETED"
    assert await gone(either) == 1


async def test_a_server_that_lists_much_less_or_nothing_hides_nothing_and_is_read_again(
    either: Library,
) -> None:
    await stocked(either, 60)
    less = listing(range(45), 2)
    assert await sync(less, either) == Synced(seen=45, missing=15)
    assert await sync(less, either) == Synced(seen=45, missing=15)
    assert less.reads == 2
    assert await sync(Listing(modified=3), either) == Synced(missing=60)
    assert (await either.waiting(Status.PENDING), await gone(either)) == (60, 0)
    assert await sync(listing(range(50), 4), either) == Synced(seen=50, hidden=10)


async def test_nothing_is_not_believed_of_a_small_library_either(library: Library) -> None:
    await stocked(library, 2)
    assert await sync(Listing(modified=2), library) == Synced(missing=2)
    assert await gone(library) == 0


async def test_a_person_who_is_sure_hides_them_all(either: Library) -> None:
    await stocked(either, 60)
    assert await sync(listing(range(5), 2), either, sure=True) == Synced(seen=5, hidden=55)
    assert await either.waiting(Status.PENDING) == 5


async def test_a_list_that_changed_while_it_was_read_hides_nothing(library: Library) -> None:
    """A song may have moved from a page that was not read yet to one that was."""
    await stocked(library, 4)

    class Busy(Listing):
        async def last_modified(self) -> int:
            self.modified += 1
            return self.modified

    assert await sync(Busy([track(0), track(1)]), library) == Synced(seen=2)
    assert await sync(Listing([track(0)], modified=0), library) == Synced(seen=1)
    assert await gone(library) == 0


async def test_a_sync_that_did_not_come_to_its_end_hides_nothing(library: Library) -> None:
    await stocked(library, 4)
    with pytest.raises(ConnectionError):
        await sync(Listing([track(0)], [], modified=2), library)
    assert await gone(library) == 0


async def test_a_dry_run_counts_no_song_that_its_sync_would_hide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, 40) as its:
        at(its, listing(range(32), 2), monkeypatch)
        foretold = await its.pipeline.preview(Start())
        assert (foretold.songs, foretold.new, foretold.calls) == (32, 0, 8)
        await its.pipeline.start(Start())
        await its.run_until_idle()
        assert len(its.provider.ledger.bills) == foretold.calls


async def test_a_dry_run_of_hiding_all_that_is_missing_counts_none_of_it_and_goes_on_to_hide_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, 40) as its:
        at(its, listing(range(10), 2), monkeypatch)
        assert (await its.pipeline.preview(Start())).songs == 40
        assert (await its.pipeline.preview(Start(hide_missing=True))).songs == 10
        await note(its.music.library, 30)
        browser = await its.visitors.browser()
        form = {"csrf": await browser.csrf(), "sync": "true", "hide_missing": "true"}
        planned = (await browser.post("/music/plan", form)).headers["location"]
        page = (await browser.get(planned)).text
        assert 'name="hide_missing" value="true" checked' in page


async def test_on_the_page_it_is_told_in_its_language_and_by_what_is_there_to_do_it(tmp_path: Path) -> None:
    async with world(tmp_path, 40) as its:
        await note(its.music.library, 37)
        browser = await its.visitors.browser()
        english = (await browser.get("/music")).text
        box = english.partition('sse-swap="missing"')[2].partition("</form>")[0]
        assert 'name="hide_missing"' in box  # it is there as soon as the sentence is, without a reload
        assert "does not list 37 songs that it had" in english
        assert "tick that below" in english
        assert "hideMissing" not in english
        chinese = (await browser.get("/music", accept_language="zh")).text
        assert "音乐服务器不再列出原有的 37 首歌曲" in chinese
        assert "does not list" not in chinese


def at(its: World, source: Listing, monkeypatch: pytest.MonkeyPatch) -> None:
    async def listed() -> Listing:
        return source

    monkeypatch.setattr(its.music.connections, "_source", listed)


async def test_the_status_and_the_page_say_what_is_missing_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, 40) as its:
        at(its, listing(range(3), 2), monkeypatch)
        assert (await its.call("POST", "/api/queue/start", {"limit": 1})).status == 200
        await its.run_until_idle()
        status = (await its.call("GET", "/api/queue/status")).json
        (told,) = status["problems"]
        assert told.startswith("the music server does not list 37 songs that it had: ")
        assert told.endswith("or start with hideMissing if they are gone")
        browser = await its.visitors.browser()
        page = (await browser.get("/music")).text
        assert "does not list 37 songs that it had" in page
        assert 'name="hide_missing"' in page
        form = {"csrf": await browser.csrf(), "sync": "true", "limit": "1", "hide_missing": "true"}
        assert (await browser.post("/music/start", form)).status == 303
        await its.run_until_idle()
        status = (await its.call("GET", "/api/queue/status")).json
        assert (status["problems"], status["totalSongs"], status["goneSongs"]) == ([], 3, 37)
        page = (await browser.get("/music")).text
        assert 'name="hide_missing"' not in page
        song = (await browser.get("/music/songs/s39")).text
        assert "The music server no longer lists it" in song


async def test_who_does_not_sync_cannot_hide(tmp_path: Path) -> None:
    async with world(tmp_path, 1) as its:
        body = {"skipSync": True, "hideMissing": True}
        answer = await its.call("POST", "/api/queue/start", body)
        assert answer.status == 422
        assert answer.json["detail"].startswith("hideMissing: only a sync finds what is missing")
