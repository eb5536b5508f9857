"""What the provider simulator says about songs: made up from the words of their titles, so that likeness has
something to find. In Chinese about a Chinese title."""

from __future__ import annotations

import hashlib
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from tidemill.testing.providers import Asked

_CHINESE = re.compile(r"[\u3400-\u9fff]")


class _Scene(msgspec.Struct, frozen=True):
    words: tuple[str, ...]
    english: tuple[str, str, str]
    chinese: tuple[str, str, str]
    energy: int


class _Scenes(msgspec.Struct, frozen=True):
    scene: tuple[_Scene, ...]


def describe_songs(asked: Asked) -> str:
    """The model's answer to `prompt.question`, which is the last text of what was asked."""
    listed = msgspec.json.decode(asked.texts[-1], type=list[dict[str, str]])
    return msgspec.json.encode({"songs": [_entry(song) for song in listed]}).decode()


@cache
def _scenes() -> tuple[_Scene, ...]:
    text = (Path(__file__).parent / "sample" / "scenes.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), _Scenes).scene


def _entry(song: dict[str, str]) -> dict[str, Any]:
    title, artist = song["title"], song["artist"]
    scene = next(one for one in _scenes() if any(word in title.lower() for word in one.words))
    chinese = _CHINESE.search(title) is not None
    mood, thing, where = scene.chinese if chinese else scene.english
    genre = _drawn(artist, ("民乐", "独奏", "合奏") if chinese else ("Folk", "Chamber", "Orchestral"))
    return {
        "id": song["id"],
        "vector_anchor": {
            "acoustic_model": f"《{title}》 {artist} {mood}" if chinese else f"{title} by {artist}, {mood}",
            "semantic_push": f"{thing} {where}" if chinese else f"{thing}, {where}",
        },
        "embedding_tags": {
            "mood_coord": [mood],
            "objects": [thing, f"#Genre:{genre}"],
            "scene_tag": where,
            "spectrum": _drawn(title, ("low", "mid", "high", "full")),
            "energy": scene.energy,
        },
        "is_instrumental": _drawn(f"{title}{artist}", ("no", "yes")) == "yes",
    }


def _drawn(seed: str, among: tuple[str, ...]) -> str:
    return among[hashlib.sha256(seed.encode()).digest()[0] % len(among)]
