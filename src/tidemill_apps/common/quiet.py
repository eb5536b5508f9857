"""Log lines that tell nobody anything: one for every request that a client makes."""

from __future__ import annotations

import logging

TALKATIVE = ("httpx", "httpx2")


def quieten_clients() -> None:
    """Of those that nobody has set: what a program says of its own logs is left alone."""
    for name in TALKATIVE:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)
