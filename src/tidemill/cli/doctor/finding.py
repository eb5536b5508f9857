"""What the doctor says about one thing."""

from __future__ import annotations

from typing import Literal

import msgspec

Level = Literal["ok", "note", "bad"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """`note` is worth reading, `bad` needs somebody. `remedy` says what to do."""

    about: str
    level: Level
    says: str
    remedy: str | None = None
