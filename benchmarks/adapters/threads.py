"""Blocking calls from many threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable


def together(jobs: int, producers: int, send: Callable[[], None]) -> None:
    """`producers` threads share `jobs` evenly. An error in any of them is raised here."""
    errors: list[BaseException] = []

    def produce() -> None:
        try:
            for _ in range(jobs // producers):
                send()
        except Exception as error:  # noqa: BLE001 - handed to the caller below
            errors.append(error)

    threads = [threading.Thread(target=produce) for _ in range(producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
