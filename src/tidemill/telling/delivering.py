"""The handler of a delivery: one signed POST. An answer of 2xx means it was taken; anything else is tried
again for hours, then it is a failed job like any other, to be retried by hand."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from tidemill.clock import Clock
from tidemill.contract.store import Store
from tidemill.core.courses import Kind
from tidemill.core.retry import Retry
from tidemill.errors import GiveUp, RetryAfter, TidemillError
from tidemill.tasks.context import Context
from tidemill.tasks.definition import TaskDefinition, define
from tidemill.telling.addresses import Allowed, target_of
from tidemill.telling.calling import called
from tidemill.telling.deliveries import TASK, Delivery
from tidemill.telling.keeping import record_id
from tidemill.telling.posting import Answer, post
from tidemill.telling.signing import signed
from tidemill.telling.webhook import OWN_QUEUE, NewWebhook, kept

RETRY = Retry(attempts=20, first=5.0, factor=2.0, cap=1800.0)
"""For some six hours."""
LONGEST_WAIT = 3600.0
GONE = 410


class NotDelivered(TidemillError):
    """The receiver did not take it; it is tried again."""


def task(
    store: Callable[[], Awaitable[Store]], clock: Callable[[], Clock], allowed: Allowed, timeout: float
) -> TaskDefinition:
    async def deliver(ctx: Context, delivery: Delivery) -> int:
        if delivery.problem is not None:
            raise GiveUp(delivery.problem)
        wanted = await _webhook(await store(), delivery.webhook)
        body = delivery.body.encode()
        headers = signed(_secret(wanted), ctx.job_id, int(clock().wall()), body)
        try:
            answer = await called(lambda: post(wanted.url, body, headers, timeout=timeout, allowed=allowed))
        except OSError as error:
            raise NotDelivered(f"{target_of(wanted.url).host} did not answer: {error}") from None
        return _judged(target_of(wanted.url).host, answer)

    return define(deliver, name=TASK, queue=OWN_QUEUE, retry=RETRY, timeout=2 * timeout + 30)


async def _webhook(store: Store, name: str) -> NewWebhook:
    """As it is by now: an address that was corrected holds for what waits."""
    [course] = await store.courses(Kind.RECORD, [record_id(name)])
    if course is None:
        raise GiveUp(f"the webhook {name!r} was removed; nobody is to be told any more")
    return kept(course).webhook.wanted


def _secret(wanted: NewWebhook) -> str:
    if found := os.environ.get(wanted.secret):
        return found
    raise NotDelivered(
        f"the environment variable {wanted.secret} is not set here, and nothing is sent unsigned; set it "
        "where workers run"
    )


def _judged(host: str, answer: Answer) -> int:
    """An address may have a token in it: no more of it is told than the host."""
    if answer.accepted:
        return answer.status
    said = f"{host} answered {answer.status}"
    if answer.status == GONE:
        raise GiveUp(f"{said}: it wants nothing any more; remove the webhook")
    if answer.retry_after and answer.retry_after.isdigit():
        raise RetryAfter(min(float(answer.retry_after), LONGEST_WAIT), said)
    redirect = 300 <= answer.status < 400  # noqa: PLR2004 - what HTTP calls a redirection
    raise NotDelivered(f"{said}, and redirects are not followed; give the new address" if redirect else said)
