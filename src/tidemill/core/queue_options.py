"""A queue's settings as keyword arguments, for whoever declares or overrides them."""

from __future__ import annotations

from typing import TypedDict

from tidemill.core.queues import Retention


class QueueOptions(TypedDict, total=False):
    """See `core.queues.QueueSettings`, which these become."""

    weight: int
    concurrency: int | None
    key_concurrency: int | None
    max_length: int | None
    crash_limit: int
    keep_done: Retention
    keep_failed: Retention
    keep_cancelled: Retention
