"""What a step changes: whether there is anything to write."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill.engine.changes import Changes


def changes(**given: Any) -> Changes:
    nothing: dict[str, Any] = dict.fromkeys(Changes.__struct_fields__, ())
    return Changes(**nothing | given)


def test_what_was_read_and_who_is_woken_is_nothing_to_write() -> None:
    assert changes().is_empty
    assert changes(read=("a",), topics=("queue q",)).is_empty


@pytest.mark.parametrize("field", sorted(set(Changes.__struct_fields__) - {"read", "topics"}))
def test_anything_else_is_written(field: str) -> None:
    assert not changes(**{field: ("something",)}).is_empty
