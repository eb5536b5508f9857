"""The library follows the music server, and a second look costs little."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from tests.apps.music.audio import Recording
from tests.apps.music.libraries import column, put, track
from tests.apps.music.listing import Listing
from tests.apps.music.music_server import MusicServer
from tidemill_apps.music.library import Library
from tidemill_apps.music.sample import Sample
from tidemill_apps.music.songs import Status
from tidemill_apps.music.subsonic import Subsonic
from tidemill_apps.music.syncing import Foreseen, Synced, foresee, sync


class Counting(httpx2.AsyncClient):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def post(self, url: Any, **more: Any) -> httpx2.Response:
        self.asked.append(str(url).rpartition("/")[2].removesuffix(".view"))
        return await super().post(url, **more)


@pytest.fixture
async def client(subsonic: MusicServer) -> AsyncIterator[tuple[Subsonic, Counting]]:
    async with Counting() as http:
        given = (subsonic.url, subsonic.user, subsonic.password)
        yield Subsonic(*given, http, lambda: "salt", token=False), http


async def test_a_real_server_is_read_once_and_then_asked_little(
    subsonic: MusicServer, client: tuple[Subsonic, Counting], either: Library
) -> None:
    held = subsonic.hold(12)
    server, http = client
    assert await sync(server, either) == Synced(seen=12, new=12, changed=0)
    songs = await either.pending()
    assert sorted((song.title, song.artist) for song in songs) == sorted(
        (one.title, one.artist) for one in held
    )
    before = await column(either, "changed_at")
    http.asked.clear()
    assert await sync(server, either) == Synced()
    assert http.asked == ["getIndexes", "getScanStatus"]
    subsonic.rescan()
    assert await sync(server, either) == Synced(seen=12)
    assert await column(either, "changed_at") == before


async def test_new_songs_and_new_names_come_with_the_next_sync(
    subsonic: MusicServer, client: tuple[Subsonic, Counting], library: Library
) -> None:
    subsonic.hold(4)
    server, _ = client
    await sync(server, library)
    ids = {row.title: row.navidrome_id for row in await library.stored(list(await column(library, "title")))}
    await put(library, list(ids.values()), status=Status.COMPLETED, job_id="before", description="听过")
    subsonic.hold(5)
    subsonic.rename(3, Recording("改了名字的歌", "林晚", "潮汐 3", "民谣"))
    assert await sync(server, library) == Synced(seen=5, new=1, changed=1)
    assert {song.title for song in await library.pending()} == {"Tide Song 4", "改了名字的歌"}
    again = await library.song(ids["潮汐之歌 第3首"])
    assert again is not None
    assert (again.status, again.job_id) == (Status.PENDING, None)


async def test_progress_is_told_after_every_page(library: Library) -> None:
    told: list[Synced] = []
    listing = Listing([track(0), track(1)], [track(2)])
    await sync(listing, library, told.append)
    assert told == [Synced(2, 2, 0), Synced(3, 3, 0)]


async def test_a_sync_that_was_interrupted_reads_all_again_and_writes_what_is_missing(
    library: Library,
) -> None:
    listing = Listing([track(0), track(1)], [])
    with pytest.raises(ConnectionError):
        await sync(listing, library)
    assert len(await library.pending()) == 2
    listing.listed = [[track(0), track(1)], [track(2)]]
    assert await sync(listing, library) == Synced(seen=3, new=1)
    assert listing.reads == 2


async def test_a_server_that_does_not_say_when_it_changed_is_read_every_time(library: Library) -> None:
    listing = Listing([track(0)], modified=0)
    await sync(listing, library)
    assert await sync(listing, library) == Synced(seen=1)
    assert listing.reads == 2


async def test_what_one_server_said_does_not_count_for_another(library: Library) -> None:
    first, second = Listing([track(0)]), Listing([track(1)])
    second.url = "http://another"
    await sync(first, library)
    assert await sync(second, library) == Synced(seen=1, new=1, hidden=1)
    assert await sync(first, library) == Synced(seen=1, changed=1, hidden=1)


async def test_what_a_sync_would_bring_is_foreseen_and_nothing_is_written(either: Library) -> None:
    listing = Listing([track(0), track(1)], [track(2), track(3)])
    assert await foresee(listing, either) == Foreseen(4)
    assert await column(either, "title") == {}
    await sync(listing, either)
    assert await foresee(listing, either) == Foreseen(0)
    await put(either, ["s0", "s1"], status=Status.COMPLETED)
    listing.listed = [
        [track(0), track(1, title="改名")],
        [track(2, title="x"), track(3, album="y"), track(4)],
    ]
    listing.modified = 2
    assert await foresee(listing, either) == Foreseen(2)
    assert len(await either.pending()) == 2
    await sync(listing, either)
    assert len(await either.pending()) == 4


async def test_the_sample_is_a_source_too_and_half_of_it_is_chinese(library: Library) -> None:
    assert await sync(Sample(), library) == Synced(seen=60, new=60)
    assert await sync(Sample(), library) == Synced()
    titles = (await column(library, "title")).values()
    assert (
        sum(not title.isascii() and any("\u3400" < one < "\u9fff" for one in title) for title in titles) == 30
    )
