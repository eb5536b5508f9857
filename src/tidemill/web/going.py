"""Where somebody is led after something was done, and what they are told there."""

from __future__ import annotations

from typing import Any

from tidemill.seam.answers import Go
from tidemill.web.asked import Asked
from tidemill.web.drawing import address
from tidemill.web.wording import words


def go(asked: Asked, path: str, *parts: str, told: str, query: str = "", **values: Any) -> Go:
    """`go(asked, "/pools/{}", name, told="pool.was_opened")`: each {} is a part, whatever it is made of."""
    return Go(f"{address(path, *parts)}{query}", words(asked.language)(told, **values))
