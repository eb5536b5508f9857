"""The demo is the same everywhere: what is set for an application of yours is not meant for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OWN_SETTINGS = Path(__file__).with_name("tidemill.toml")
"""Read in the place of the one in the working directory."""


@contextmanager
def as_if_nothing_were_set() -> Iterator[None]:
    """Without the variables that an application reads when it is made."""
    ours = {name: value for name, value in os.environ.items() if name.startswith("TIDEMILL_")}
    for name in ours:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(ours)
