"""Sample articles in English and Chinese, each with a question that it answers."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import msgspec

from tidemill_apps.articles.post_summaries import PostSummaries
from tidemill_apps.articles.service import Articles


class SampleArticle(msgspec.Struct, frozen=True):
    title: str
    content: str
    question: str


class _SampleFile(msgspec.Struct, frozen=True):
    article: tuple[SampleArticle, ...]


@cache
def load_samples() -> tuple[SampleArticle, ...]:
    """Returns the samples, alternating between English and Chinese."""
    text = Path(__file__).with_name("samples.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), _SampleFile).article


async def add_samples(articles: Articles) -> int:
    """Creates the sample articles whose titles do not exist yet. Returns the number of created articles."""
    known = await PostSummaries(articles.posts).find_titles([sample.title for sample in load_samples()])
    new = [sample for sample in load_samples() if sample.title not in known]
    for sample in new:
        await articles.create(sample.title, sample.content)
    return len(new)
