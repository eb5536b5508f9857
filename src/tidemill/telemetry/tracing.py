"""What the client asks of whoever traces it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from tidemill.core.job import NewJob


class Tracing(Protocol):
    """A job that was given a trace by its sender keeps it."""

    def sending(self, queue: str, job: NewJob) -> AbstractContextManager[NewJob]:
        """Around the sending of one job: it is sent as the one that is answered."""
        ...

    def sending_many(self) -> AbstractContextManager[Callable[[str, NewJob], NewJob]]:
        """Around the sending of many: each is sent as what the function makes of it."""
        ...

    def here(self) -> str | None:
        """Where the caller is in its trace, for jobs that somebody else will send; None for nowhere."""
        ...
