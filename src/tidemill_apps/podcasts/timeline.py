"""When each chapter and sentence of an episode is spoken: the transcript as WebVTT, and ID3 tags with
chapters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from mutagen.id3 import APIC, CHAP, CTOC, ID3, TALB, TENC, TIT2, TLAN, TPE1, CTOCFlags

from tidemill_apps.common.sentences import count_chinese
from tidemill_apps.podcasts.text import ScriptPart, ScriptSection

CHINESE_WEIGHT = 4
"""A Chinese character takes as long as four letters."""
NO_OFFSETS = {"start_offset": 0xFFFFFFFF, "end_offset": 0xFFFFFFFF}
"""Players use the times of a chapter."""
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


class Chapter(msgspec.Struct, frozen=True):
    title: str
    start: float
    end: float


class TimedPart(msgspec.Struct, frozen=True):
    """A part with its start in the episode and its length, both measured in seconds."""

    part: ScriptPart
    start: float
    seconds: float


def time_parts(parts: Sequence[ScriptPart], seconds: Sequence[float]) -> list[TimedPart]:
    timed, start = [], 0.0
    for part, length in zip(parts, seconds, strict=True):
        timed.append(TimedPart(part, start, length))
        start += length
    return timed


def build_chapters(sections: Sequence[ScriptSection], timed: Sequence[TimedPart]) -> list[Chapter]:
    """Returns one chapter per section. It begins with the section's first part."""
    chapters = []
    for number, section in enumerate(sections):
        mine = [each for each in timed if each.part.section == number]
        chapters.append(Chapter(section.title, mine[0].start, mine[-1].start + mine[-1].seconds))
    return chapters


def format_vtt(timed: Sequence[TimedPart]) -> str:
    """Returns the transcript as WebVTT, with one cue per sentence. The measured length of a part is divided
    among its sentences by their number of letters."""
    lines = ["WEBVTT", ""]
    for each in timed:
        weights = [_weigh(sentence) for sentence in each.part.sentences]
        start = each.start
        for sentence, weight in zip(each.part.sentences, weights, strict=True):
            end = start + each.seconds * weight / sum(weights)
            lines += [f"{_format_time(start)} --> {_format_time(end)}", sentence.translate(_ESCAPES), ""]
            start = end
    return "\n".join(lines)


def _weigh(sentence: str) -> int:
    return len(sentence) + (CHINESE_WEIGHT - 1) * count_chinese(sentence)


def _format_time(seconds: float) -> str:
    whole = round(seconds * 1000)
    return f"{whole // 3_600_000:02}:{whole // 60_000 % 60:02}:{whole // 1000 % 60:02}.{whole % 1000:03}"


class EpisodeTags(msgspec.Struct, frozen=True, kw_only=True):
    """The tags of an MP3 file. `cover` is a PNG file."""

    title: str
    author: str
    album: str
    language: str
    speaker: str
    cover: bytes
    chapters: Sequence[Chapter]


def write_tags(mp3: Path, tags: EpisodeTags) -> None:
    """Writes the title, the cover and the chapters into an MP3 file (ID3 v2.4)."""
    names = [f"chp{number}" for number in range(len(tags.chapters))]
    flags, title = CTOCFlags.TOP_LEVEL | CTOCFlags.ORDERED, TIT2(text=tags.title)
    texts = (title, TPE1(text=tags.author), TALB(text=tags.album), TENC(text=f"Tidemill, {tags.speaker}"))
    language = TLAN(text="zho" if tags.language == "zh" else "eng")
    contents = CTOC(element_id="toc", flags=flags, child_element_ids=names, sub_frames=[title])
    found = ID3()
    for frame in (*texts, language, contents, APIC(mime="image/png", type=3, desc="cover", data=tags.cover)):
        found.add(frame)
    for name, chapter in zip(names, tags.chapters, strict=True):
        times = {"start_time": round(chapter.start * 1000), "end_time": round(chapter.end * 1000)}
        found.add(CHAP(element_id=name, **times, **NO_OFFSETS, sub_frames=[TIT2(text=chapter.title)]))
    found.save(mp3)
