"""Articles to begin with: half of them Chinese, each with a question that it answers."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import msgspec


class Sample(msgspec.Struct, frozen=True):
    title: str
    content: str
    question: str


class _File(msgspec.Struct, frozen=True):
    article: tuple[Sample, ...]


@cache
def samples() -> tuple[Sample, ...]:
    """English and Chinese by turns."""
    text = Path(__file__).with_name("samples.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), _File).article
