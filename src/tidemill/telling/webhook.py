"""What a webhook is, and which ends it wants."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from tidemill.core.courses import Course
from tidemill.core.job import Job
from tidemill.core.names import problem_with_name
from tidemill.core.needs import SEPARATOR
from tidemill.core.states import State
from tidemill.errors import ConfigurationError
from tidemill.telling.addresses import target_of
from tidemill.telling.bodies import Ended

OWN_QUEUE = "tidemill"
"""Where deliveries and messages wait. Nothing is told of its jobs: each would be told again."""
SECRET = "WEBHOOK_SECRET"  # noqa: S105 - the name of a variable
RECORD_NAME = "webhook"

_SECRETS = re.compile(rf"{SECRET}[A-Z0-9_]*")


class What(StrEnum):
    JOB_DONE = "job.done"
    JOB_FAILED = "job.failed"
    JOB_CANCELLED = "job.cancelled"
    FLOW_ENDED = "flow.ended"
    POOL_CLOSED = "pool.closed"
    POOL_OPENED = "pool.opened"


OF_STATES: Mapping[State, What] = {
    State.DONE: What.JOB_DONE,
    State.FAILED: What.JOB_FAILED,
    State.CANCELLED: What.JOB_CANCELLED,
}

Body = Callable[[Ended], Any]
"""What an application tells of a job of its own, as plain data."""


class Origin(StrEnum):
    DECLARED = "declared"  # by code
    ADDED = "added"  # by a person, or a program on somebody's behalf


class NewWebhook(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`on` is what it is told of. `tasks` and `queues` narrow which jobs, `flows` which flows by their name,
    `pools` which pools; empty means all. `secret` names the environment variable that has the secret:
    WEBHOOK_SECRET, or one that begins so."""

    name: str
    url: str
    on: tuple[What, ...] = (What.JOB_DONE, What.JOB_FAILED)
    tasks: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    flows: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    secret: str = SECRET

    def problem(self) -> str | None:
        """Why it cannot be, naming the field."""
        if problem := problem_with_name("name", self.name):
            return problem
        if SEPARATOR in self.name:
            return "name: must not hold the character U+001F"
        if not self.on:
            return f"on: must name at least one of {', '.join(What)}"
        if not _SECRETS.fullmatch(self.secret):
            # Any other variable may hold a secret that signatures would let somebody guess at.
            return f"secret: must name a variable that begins with {SECRET}, is {self.secret[:50]!r}"
        for field in ("tasks", "queues", "flows", "pools"):
            for name in getattr(self, field):
                if problem := problem_with_name(field, name):
                    return problem
        try:
            target_of(self.url)
        except ConfigurationError as error:
            return str(error)
        return None

    def wants(self, job: Job) -> bool:
        return (
            OF_STATES.get(job.state) in self.on
            and self.wants_queue(job.queue)
            and (not self.tasks or job.task in self.tasks)
        )

    def wants_queue(self, queue: str) -> bool:
        return queue != OWN_QUEUE and (not self.queues or queue in self.queues)

    @property
    def states(self) -> frozenset[State]:
        return frozenset(state for state, what in OF_STATES.items() if what in self.on)

    def wants_flow(self, name: str) -> bool:
        return What.FLOW_ENDED in self.on and (not self.flows or name in self.flows)

    def wants_pool(self, what: What, pool: str) -> bool:
        return what in self.on and (not self.pools or pool in self.pools)


class Declared(msgspec.Struct, frozen=True):
    """A webhook of the code. `event` takes the place of what happened, `body` that of what is told."""

    wanted: NewWebhook
    event: str | None = None
    body: Body | None = None


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """As it is kept. What ended before `told`, by the store's wall clock, was told; `closed` are the pools,
    with their keys, of which that was."""

    wanted: NewWebhook
    origin: Origin
    told: float
    event: str | None = None
    by: str | None = None
    closed: tuple[tuple[str, str | None], ...] = ()


class Kept(msgspec.Struct, frozen=True):
    """A webhook with the revision it was read at."""

    webhook: Webhook
    created: float
    revision: int

    @property
    def name(self) -> str:
        return self.webhook.wanted.name


def kept(course: Course) -> Kept:
    return Kept(msgspec.json.decode(course.record, type=Webhook), course.created, course.revision)


def checked(wanted: NewWebhook) -> NewWebhook:
    if problem := wanted.problem():
        raise ConfigurationError(f"webhook {wanted.name[:50]!r}: {problem}")
    return wanted


def declared(**fields: Any) -> NewWebhook:
    """What code says, or somebody typed; refused naming the field."""
    try:
        return checked(msgspec.convert(fields, NewWebhook))
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"webhook {str(fields.get('name'))[:50]!r}: {error}") from None
