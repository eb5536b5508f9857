"""N7: items are split into chunks of a size, and no two chunks share an id."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill
from tidemill.core.batching import split_into_chunks
from tidemill.errors import ConfigurationError

SIZES = st.integers(1, 40)
TIMES = st.floats(0, 4e9)


@given(st.lists(st.integers(), max_size=300), SIZES, TIMES)
def test_n7_every_item_is_in_one_chunk_in_order(items: list[int], size: int, at: float) -> None:
    batches = split_into_chunks(items, size, at=at)
    assert [item for batch in batches for item in batch.items] == items
    assert all(len(batch.items) == size for batch in batches[:-1])
    assert all(1 <= len(batch.items) <= size for batch in batches)
    assert len(batches) == math.ceil(len(items) / size)


@given(st.integers(0, 200), SIZES, TIMES)
def test_n7_ids_never_repeat_within_a_loop(count: int, size: int, at: float) -> None:
    ids = [batch.id for batch in split_into_chunks(range(count), size, at=at)]
    assert len(set(ids)) == len(ids)
    begin = f"batch_{math.floor(at * 1000)}_"
    assert ids == [f"{begin}{number}" for number in range(1, len(ids) + 1)]


def test_n7_the_format_of_the_music_application() -> None:
    songs = [{"navidrome_id": str(n), "title": f"t{n}", "artist": "a"} for n in range(23)]
    jobs = [
        {"correlationId": id_, "songs": chunk}
        for id_, chunk in tidemill.split_into_chunks(songs, 10, at=datetime(2026, 11, 16, tzinfo=UTC))
    ]
    assert [job["correlationId"] for job in jobs] == [
        "batch_1794787200000_1",
        "batch_1794787200000_2",
        "batch_1794787200000_3",
    ]
    assert [len(job["songs"]) for job in jobs] == [10, 10, 3]


def test_an_iterable_is_read_once_and_chunks_are_separate_lists() -> None:
    source = [1, 2, 3]
    [batch] = split_into_chunks(source, 5, at=0)
    batch.items.append(4)
    assert source == [1, 2, 3]
    assert [one.items for one in split_into_chunks(iter("abc"), 2, at=0)] == [["a", "b"], ["c"]]
    assert split_into_chunks([], 5, at=0) == []


@pytest.mark.parametrize("size", [0, -1, 2.0, True, "10", None, math.inf])
def test_an_invalid_size_is_refused(size: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^size: must be a whole number, 1 or more, is "):
        split_into_chunks([1], size, at=0)


@pytest.mark.parametrize("at", [math.nan, math.inf, "now", None, datetime(2026, 1, 1)])  # noqa: DTZ001 - refused
def test_an_invalid_time_is_refused(at: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^at: "):
        split_into_chunks([1], 1, at=at)


def test_a_string_is_not_a_list_of_items() -> None:
    with pytest.raises(ConfigurationError, match=r"^items: must be a list of things, is one str; wrap it$"):
        split_into_chunks("songs", 2, at=0)
