"""Whether what was confirmed is still what is meant."""

from __future__ import annotations

_TENTH = 10


def still_meant(matching: int, confirmed: int) -> bool:
    """Fewer are no surprise, and a few more come while somebody reads the question. More than a tenth more is
    another question."""
    return matching <= confirmed + confirmed // _TENTH
