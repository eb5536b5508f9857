"""What numbers and texts of a request may be: those that every store can keep and every calendar knows."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from tidemill.core.job import PRIORITY_RANGE
from tidemill.core.names import MAX_NAME

CENTURY = 100 * 365 * 86_400
LATEST = 220_000_000_000
"""In the year 8941: calendars end with the year 9999."""
MOST = 2**53 - 1
"""A whole number that every language's JSON can carry."""

Seconds = Annotated[float, Meta(ge=0, le=CENTURY, description="Seconds.")]
Time = Annotated[float, Meta(ge=0, le=LATEST, description="Unix time in seconds.")]
Whole = Annotated[int, Meta(ge=0, le=MOST)]
Priority = Annotated[int, Meta(ge=PRIORITY_RANGE[0], le=PRIORITY_RANGE[1], description="Smaller runs first.")]
WITHOUT_NUL = r"^[^\x00]*$"
"""No store could keep it as it is."""
Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME, pattern=WITHOUT_NUL)]
Sentence = Annotated[str, Meta(min_length=1, max_length=1000, pattern=WITHOUT_NUL)]
Limit = Annotated[int, Meta(ge=1, le=1000, description="How many at most.")]
Cursor = Annotated[int, Meta(ge=0, le=MOST, description="Where the page before ended.")]
TextCursor = Annotated[str, Meta(max_length=1000, description="Where the page before ended.")]


class Body(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A field nobody knows is a mistake, and named."""


class Query(Struct, frozen=True, kw_only=True):
    """What may follow the question mark; `reading` refuses what is not here."""


class Answer(Struct, frozen=True, kw_only=True):
    """What is sent back."""
