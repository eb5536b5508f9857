"""What the peers have in common: blocking calls, and threads around them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def together(jobs: int, producers: int, send: Callable[[float], None]) -> None:
    """`producers` threads share `jobs` evenly. An error in any of them is raised here."""
    errors: list[BaseException] = []

    def produce() -> None:
        try:
            for _ in range(jobs // producers):
                send(0.0)
        except Exception as error:  # noqa: BLE001 - handed to the caller below
            errors.append(error)

    threads = [threading.Thread(target=produce) for _ in range(producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@contextmanager
def background(loop: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run `loop` in a thread until the block ends; it must watch the event it is given."""
    stop = threading.Event()
    thread = threading.Thread(target=loop, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
