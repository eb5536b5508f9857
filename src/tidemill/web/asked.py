"""What a handler gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidemill.app import Tidemill
from tidemill.seam.roles import NOBODY, Who
from tidemill.web.inspecting import Shown
from tidemill.web.live import Looks
from tidemill.web.signing import Signing


@dataclass(frozen=True, kw_only=True)
class Asked:
    """`path` has the parameters of the route's path, `query` and `body` are what its `query` and `takes`
    say. `inspect` is shared by all requests, so that a forecast that took long is not made for each, and
    shows nothing secret.
    `language` is one there are words in. `headers` are in small letters.
    `prefix` is where the dashboard is mounted; `looks` are what is watched there. `signing` is how people
    come in and go out, None where that is not ours to do. `secure`: the browser speaks https."""

    app: Tidemill
    inspect: Shown
    looks: Looks
    who: Who = NOBODY
    path: Mapping[str, str] = field(default_factory=dict)
    query: Any = None
    body: Any = None
    language: str = "en"
    headers: Mapping[str, str] = field(default_factory=dict)
    address: str | None = None
    prefix: str = ""
    secure: bool = False
    signing: Signing | None = None
