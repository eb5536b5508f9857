"""The list of songs: its search makes no provider call."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from urllib.parse import quote

from tests.apps.music.library_fixtures import track
from tests.apps.music.virtual_kit import music_environment
from tidemill_apps.music.library import Library
from tidemill_apps.music.search import SONGS_PER_PAGE, SongListQuery, load_song_list
from tidemill_apps.music.tables import SongStatus, Track


def songs_on(page: str) -> list[str]:
    return re.findall(r'href="/music/songs/([^"?]+)"', page)


async def test_every_song_is_on_one_page_and_a_page_has_fifty(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 120) as env:
        browser = await env.visitors.browser("viewer")
        assert 'href="/music/songs"' in (await browser.get("/music")).text
        seen: list[str] = []
        path: str | None = "/music/songs"
        while path:
            page = (await browser.get(path)).text
            assert len(songs_on(page)) <= SONGS_PER_PAGE
            seen += songs_on(page)
            following = re.search(r'href="([^"]+)" rel="next"', page)
            path = unescape(following[1]) if following else None
        assert sorted(seen) == sorted(f"s{number}" for number in range(120))
        assert not env.provider.request_log.bills


async def test_the_newest_change_comes_first_and_a_status_is_chosen(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 30) as env:
        await env.start(limit=10)
        await env.run_until_idle()
        browser = await env.visitors.browser()
        assert 'href="/music/songs?status=COMPLETED"' in (await browser.get("/music")).text
        done = songs_on((await browser.get("/music/songs?status=COMPLETED")).text)
        assert len(done) == 10
        assert songs_on((await browser.get("/music/songs")).text)[:10] == done
        assert (await browser.get("/music/songs?status=NONE")).status == 422
        assert "No matching songs" in (await browser.get("/music/songs?status=FAILED")).text


async def test_a_text_is_looked_for_in_title_and_artist_in_either_language(either: Library) -> None:
    await either.upsert(
        [
            Track(id="rain", title="Raindrop at Midnight", artist="Mara Quill"),
            Track(id="雨", title="雨夜的钢琴", artist="林晚"),
            Track(id="100", title="100% wool", artist="Nobody"),
            Track(id="none"),
        ]
    )

    async def found(text: str) -> set[str]:
        return {line.navidrome_id for line in (await load_song_list(either, SongListQuery(text=text))).songs}

    assert await found("RAINdrop") == {"rain"}
    assert await found("quill") == {"rain"}
    assert await found(" 钢琴 ") == {"雨"}
    assert await found("林晚") == {"雨"}
    assert await found("%") == {"100"}
    assert await found("_") == set()
    assert await found("\0") == await found("") == {"rain", "雨", "100", "none"}


async def test_songs_that_changed_at_the_same_moment_are_on_one_page_each(either: Library) -> None:
    await either.upsert([track(number) for number in range(SONGS_PER_PAGE + 10)])
    first = await load_song_list(either, SongListQuery(status=SongStatus.PENDING))
    assert first.next is not None
    second = await load_song_list(either, first.next)
    ids = [line.navidrome_id for line in (*first.songs, *second.songs)]
    assert (len(ids), len(set(ids)), second.next) == (SONGS_PER_PAGE + 10, SONGS_PER_PAGE + 10, None)


async def test_the_search_text_is_escaped_and_kept_in_the_page_links(tmp_path: Path) -> None:
    async with music_environment(tmp_path, 120) as env:
        browser = await env.visitors.browser()
        page = (await browser.get(f"/music/songs?text={quote('潮汐')}")).text
        assert len(songs_on(page)) == SONGS_PER_PAGE
        assert re.search(rf'href="[^"]*text={quote("潮汐")}[^"]*" rel="next"', page)
        harm = "<i>x</i>"
        assert harm not in (await browser.get(f"/music/songs?text={quote(harm)}")).text
        gone = await env.music.library.hide(["s1"])
        assert gone == 1
        assert "s1" not in songs_on((await browser.get(f"/music/songs?text={quote('第1首')}")).text)
