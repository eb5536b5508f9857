"""Audio files for a music server: silent, valid, tagged, half of them Chinese."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import mutagen.id3
from mutagen.id3 import TALB, TCON, TIT2, TPE1, TRCK

# MPEG 1 layer III, 128 kbit/s at 44.1 kHz, mono: a frame has 417 bytes, and a frame of zeros is silent.
FRAME = bytes([0xFF, 0xFB, 0x90, 0xC0]) + bytes(413)
SILENCE = FRAME * 8
UTF8 = 3

ENGLISH = ("The Lanterns", "Mara Quill", "North Pier")
CHINESE = ("海风乐队", "林晚", "灯塔少年")


class Recording(NamedTuple):
    title: str
    artist: str
    album: str
    genre: str


def recording(number: int) -> Recording:
    """Returns a recording; its title contains its number, so that all titles differ."""
    if number % 2:
        return Recording(f"潮汐之歌 第{number}首", CHINESE[number % 3], f"潮汐 {number % 5}", "民谣")
    return Recording(f"Tide Song {number}", ENGLISH[number % 3], f"Tides {number % 5}", "Folk")


def write(file: Path, what: Recording, number: int) -> None:
    file.write_bytes(SILENCE)
    tags: Any = mutagen.id3.ID3()
    for frame, text in zip((TIT2, TPE1, TALB, TCON, TRCK), (*what, str(number)), strict=True):
        tags.add(frame(encoding=UTF8, text=text))  # type: ignore[no-untyped-call]  # mutagen is typed in part
    tags.save(file)
