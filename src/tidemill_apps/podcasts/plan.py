"""The script of an episode, and the plan that predicts its cost and length before anything is spoken."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec

from tidemill_apps.common.object_storage import ObjectStorage
from tidemill_apps.common.sentences import Language
from tidemill_apps.common.speech import SpeechAdapter, hash_part, measure, predict_seconds
from tidemill_apps.podcasts.tables import NewPodcast
from tidemill_apps.podcasts.text import (
    ScriptPart,
    ScriptSection,
    pack_parts,
    read_sections,
)

CHARACTERS_PER_PRICE = 1_000_000


class Script(msgspec.Struct, frozen=True):
    """The parts of an episode, each with the digest under which its audio is stored."""

    sections: tuple[ScriptSection, ...]
    parts: tuple[ScriptPart, ...]
    digests: tuple[str, ...]


class GenerationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The cost and length of a generation, predicted.

    - `characters`: the length of the spoken text, in the unit of the speech service.
    - `parts`: the number of calls of a first generation.
    - `calls`: the calls whose audio is not stored yet; `cost_usd` is their price.
    - `seconds`: the predicted length of the episode.
    """

    speaker: str
    language: Language
    characters: int
    parts: int
    calls: int
    cost_usd: float
    seconds: float


def part_key(digest: str) -> str:
    return f"parts/{digest[:2]}/{digest}"


def write_script(adapter: SpeechAdapter, podcast: NewPodcast) -> Script:
    sections = read_sections(podcast.text, podcast.format, podcast.title)
    parts = pack_parts(sections, partial(measure, adapter.unit), adapter.limit)
    digests = tuple(hash_part(adapter, podcast.language, part.text) for part in parts)
    return Script(tuple(sections), tuple(parts), digests)


def price(adapter: SpeechAdapter, text: str) -> float:
    return measure(adapter.unit, text) * adapter.usd_per_million / CHARACTERS_PER_PRICE


async def plan_generation(
    adapter: SpeechAdapter, storage: ObjectStorage, script: Script, language: Language
) -> GenerationPlan:
    texts = {digest: part.text for digest, part in zip(script.digests, script.parts, strict=True)}
    sizes = await asyncio.gather(*(storage.size(part_key(digest)) for digest in texts))
    missing = [text for text, size in zip(texts.values(), sizes, strict=True) if size is None]
    return GenerationPlan(
        speaker=adapter.label(language),
        language=language,
        characters=count_characters(adapter, script),
        parts=len(script.parts),
        calls=len(missing),
        cost_usd=round(sum(price(adapter, text) for text in missing), 6),
        seconds=round(sum(predict_seconds(adapter, part.text) for part in script.parts), 1),
    )


def count_characters(adapter: SpeechAdapter, script: Script) -> int:
    return sum(measure(adapter.unit, part.text) for part in script.parts)
