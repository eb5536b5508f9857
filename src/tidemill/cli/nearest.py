"""What a mistyped name was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable

from tidemill.hints import close_to

SHOWN = 20
"""So many names are listed; a longer list buries the sentence."""


def instead_of(name: str, known: Iterable[str], *, shown: int = SHOWN) -> str:
    """`did you mean …? there are …`, to end a sentence with."""
    names = sorted(known)
    if not names:
        return "there are none yet"
    last = [full for full in names if full.replace(":", ".").rpartition(".")[2] == name]
    near = last or close_to(name, names, most=3)
    asked = f"did you mean {' or '.join(near)}? " if near else ""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return f"{asked}there are {', '.join(names[:shown])}{more}"
