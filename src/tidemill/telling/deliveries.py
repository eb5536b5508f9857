"""A delivery as a job of our own: retried like any other, and found among them."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from tidemill.core.job import Job, NewJob
from tidemill.telling import bodies
from tidemill.telling.webhook import OF_STATES, OWN_QUEUE, Body, Webhook, What

TASK = "tidemill:webhook"
PRIORITY = 3
LARGEST_BODY = 256 * 1024


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """`body` is the JSON that is sent and signed, the same in every attempt. With a `problem` there is none:
    the application could not say what is to be told."""

    webhook: str
    event: str
    body: str = ""
    problem: str | None = None


def of_job(webhook: Webhook, job: Job, own: Body | None = None) -> NewJob:
    what = OF_STATES[job.state]
    event = webhook.event or str(what)
    ended = bodies.ended(job)
    told = f"{job.id} {job.generation} {what}"
    if own is None:
        return _job(webhook, told, event, bodies.of_job(ended), job.trace or job.id)
    try:
        body = msgspec.to_builtins(own(ended))
    except Exception as error:  # noqa: BLE001 - the application's own code: the delivery fails, and says why
        problem = f"what is to be told of job {job.id} could not be said: {type(error).__name__}: {error}"
        return _job(webhook, told, event, problem, job.trace or job.id)
    return _job(webhook, told, event, body, job.trace or job.id)


def of_flow(webhook: Webhook, told: str, body: dict[str, Any]) -> NewJob:
    return _job(webhook, told, webhook.event or What.FLOW_ENDED, body)


def of_pool(webhook: Webhook, what: What, told: str, body: dict[str, Any]) -> NewJob:
    return _job(webhook, told, webhook.event or what, body)


def of_test(webhook: Webhook, id_: str) -> NewJob:
    return _job(webhook, id_, "test", {"webhook": webhook.wanted.name})


def _job(webhook: Webhook, told: str, event: str, body: Any, trace: str | None = None) -> NewJob:
    """`told` is what the id comes of: whoever finds the same makes the same delivery. A text is a problem."""
    name = webhook.wanted.name
    problem = body if isinstance(body, str) else None
    text = "" if problem else msgspec.json.encode(_with_event(event, body)).decode()
    if len(text) > LARGEST_BODY:
        problem, text = f"what is to be told has {len(text)} bytes, more than {LARGEST_BODY}; tell less", ""
    delivery = Delivery(webhook=name, event=event, body=text, problem=problem)
    digest = blake2b(f"{name}\0{told}".encode(), digest_size=16).hexdigest()
    return NewJob(
        id=f"webhook-{digest}",
        task=TASK,
        payload=msgspec.json.encode({"delivery": delivery}),
        priority=PRIORITY,
        key=name,
        trace=trace,
        tags=(event,) if len(event) <= 50 else (),  # noqa: PLR2004 - a word to search by
    )


def _with_event(event: str, body: Any) -> dict[str, Any]:
    return {"event": event, **body} if isinstance(body, dict) else {"event": event, "body": body}


__all__ = ["OWN_QUEUE", "TASK", "Delivery", "of_flow", "of_job", "of_pool", "of_test"]
