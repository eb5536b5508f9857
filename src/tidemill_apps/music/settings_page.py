"""The live settings on the dashboard's page of settings. What is written there goes to the table, and from
the table to the workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tidemill_apps.music.system_settings import SAYS, TYPES

if TYPE_CHECKING:
    from tidemill_apps.music.music import Music


def declare(music: Music) -> None:
    for key in TYPES:
        music.app.web.setting(
            key, TYPES[key], says=SAYS[key], read=_reader(music, key), write=_writer(music, key)
        )


def _reader(music: Music, key: str) -> Callable[[], Awaitable[int]]:
    async def read() -> int:
        await music.prepare()
        value: int = getattr((await music.system_settings.read()).live, key)
        return value

    return read


def _writer(music: Music, key: str) -> Callable[[int], Awaitable[None]]:
    async def write(value: int) -> None:
        await music.prepare()
        await music.system_settings.write(key, value)

    return write
