"""What a mistyped name was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable


def close_to(name: str, known: Iterable[str], *, most: int = 1) -> list[str]:
    """The known names most like it, the likeliest first."""
    import difflib  # costs a start-up that makes no mistake a millisecond

    return difflib.get_close_matches(name, list(known), n=most)
