"""A message as a job of our own, one for each channel: one that is down repeats nothing on another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b

import msgspec

from tidemill.clock import Clock
from tidemill.core.courses import Made
from tidemill.core.job import NewJob
from tidemill.core.retry import Retry
from tidemill.errors import GiveUp
from tidemill.tasks.definition import TaskDefinition, define
from tidemill.telling.alerts.channels import Channel
from tidemill.telling.alerts.wording import Message
from tidemill.telling.calling import called
from tidemill.telling.webhook import OWN_QUEUE

TASK = "tidemill:alert"
PRIORITY = 1
RETRY = Retry(attempts=12, first=5.0, factor=2.0, cap=600.0)
TIMEOUT = 120.0

Channels = Mapping[str, Channel]


def task(channels: Callable[[], Channels], clock: Callable[[], Clock]) -> TaskDefinition:
    async def send(channel: str, message: Message) -> None:
        found = channels().get(channel)
        if found is None:
            raise GiveUp(f"the channel {channel!r} is not set here; see the settings of alerts")
        await called(lambda: found.send(message, clock().wall()))

    return define(send, name=TASK, queue=OWN_QUEUE, retry=RETRY, timeout=TIMEOUT)


def made(channels: Channels, message: Message, told: str) -> tuple[Made, ...]:
    """`told` is what the ids come of."""
    return tuple(Made(OWN_QUEUE, _job(name, message, told)) for name in channels)


def _job(channel: str, message: Message, told: str) -> NewJob:
    digest = blake2b(f"{channel}\0{told}".encode(), digest_size=16).hexdigest()
    payload = msgspec.json.encode({"channel": channel, "message": message})
    return NewJob(id=f"alert-{digest}", task=TASK, payload=payload, priority=PRIORITY, key=f"alert {channel}")
