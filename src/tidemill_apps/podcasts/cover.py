"""The cover of the podcast: a square PNG file of 1400 to 3000 pixels, as Apple asks for."""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path

from tidemill import ConfigurationError
from tidemill_apps.podcasts.settings import PREFIX

MIN_SIZE, MAX_SIZE = 1400, 3000
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


@cache
def load_cover(path: str) -> bytes:
    """Returns the PNG file at `path`, or the bundled cover if `path` is empty. Checks its size and format."""
    file = Path(path) if path else Path(__file__).with_name("cover.png")
    try:
        found = file.read_bytes()
    except OSError as error:
        problem = f"{PREFIX}COVER: {path} cannot be read: {error.strerror}; name a PNG file"
        raise ConfigurationError(problem) from None
    width, height = struct.unpack(">II", found[16:24]) if found.startswith(PNG_SIGNATURE) else (0, 0)
    if width != height or not MIN_SIZE <= width <= MAX_SIZE:
        raise ConfigurationError(
            f"{PREFIX}COVER: must be a square PNG of {MIN_SIZE} to {MAX_SIZE} pixels, is {width} by "
            f"{height}; name another file"
        )
    return found
