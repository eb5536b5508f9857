"""What a handler gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidemill.app import Tidemill
from tidemill.inspect.inspector import Inspector
from tidemill.seam.roles import NOBODY, Who
from tidemill.web.live import Looks


@dataclass(frozen=True, kw_only=True)
class Asked:
    """`path` has the parameters of the route's path, `query` and `body` are what its `query` and `takes`
    say. `inspect` is shared by all requests, so that a forecast that took long is not made for each.
    `language` is one there are words in. `headers` are in small letters.
    `prefix` is where the dashboard is mounted; `looks` are what is watched there."""

    app: Tidemill
    inspect: Inspector
    looks: Looks
    who: Who = NOBODY
    path: Mapping[str, str] = field(default_factory=dict)
    query: Any = None
    body: Any = None
    language: str = "en"
    headers: Mapping[str, str] = field(default_factory=dict)
    address: str | None = None
    prefix: str = ""
