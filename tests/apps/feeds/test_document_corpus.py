"""Titles, links, dates and texts of more than 200 generated documents, half of them Chinese."""

from __future__ import annotations

import pytest

from tests.apps.feeds.generated_documents import BASE, SAMPLES, Sample
from tidemill_apps.feeds.documents import parse_document
from tidemill_apps.feeds.parser_process import FeedParser


def test_the_corpus_is_large_and_half_chinese() -> None:
    chinese = [sample for sample in SAMPLES if "-zh-" in sample.name]
    assert len(SAMPLES) >= 400
    assert len(chinese) >= len(SAMPLES) / 2
    assert len({sample.name for sample in SAMPLES}) == len(SAMPLES)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_document_is_read_as_it_was_written(sample: Sample) -> None:
    document = parse_document(sample.body, sample.content_type, BASE)
    assert document.title == sample.title
    assert [entry.title for entry in document.entries] == [story.title for story in sample.stories]
    assert [entry.url for entry in document.entries] == [story.url for story in sample.stories]
    published = [story.moment.timestamp() if sample.has_dates else None for story in sample.stories]
    assert [entry.published for entry in document.entries] == published
    texts = [story.text if sample.has_content else "" for story in sample.stories]
    assert [entry.text for entry in document.entries] == texts
    assert len({entry.digest for entry in document.entries}) == len(sample.stories)


async def test_the_parser_process_reads_them_alike(parser: FeedParser) -> None:
    for sample in SAMPLES[::17]:
        expected = parse_document(sample.body, sample.content_type, BASE)
        assert await parser.parse(sample.body, sample.content_type, BASE) == expected
