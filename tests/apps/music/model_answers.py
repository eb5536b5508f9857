"""Correct and incorrect answers of a model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def entry(id_: str, **more: Any) -> dict[str, Any]:
    """Returns a model's answer about a song. Keyword arguments replace fields of that name at any depth."""
    made: dict[str, Any] = {
        "id": id_,
        "vector_anchor": {"acoustic_model": f"钢琴与弦乐 {id_}", "semantic_push": f"the sea at night, {id_}"},
        "embedding_tags": {
            "mood_coord": ["宁静", "wistful"],
            "objects": ["lighthouse", "#Genre:Ambient"],
            "scene_tag": "深夜",
            "spectrum": "low",
            "energy": 3,
        },
        "is_instrumental": True,
    }
    for place in (made["vector_anchor"], made["embedding_tags"], made):
        place.update({name: more[name] for name in more if name in place})
    return made


def answer(entries: Sequence[Mapping[str, Any] | str | int | None]) -> str:
    return json.dumps({"songs": list(entries)}, ensure_ascii=False)
