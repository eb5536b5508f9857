"""A delivery as a job of our own: retried like any other, and found among them."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from tidemill.core.job import Job, NewJob
from tidemill.tasks.redaction import TaskSecrets
from tidemill.telling import bodies
from tidemill.telling.webhook import OF_STATES, OWN_QUEUE, Body, Webhook, What

TASK = "tidemill:webhook"
PRIORITY = 3
LARGEST_BODY = 256 * 1024
LONGEST_PROBLEM = 500


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """`body` is the JSON that is sent and signed, the same in every attempt. With a `problem` there is none:
    the application could not say what is to be told."""

    webhook: str
    event: str
    body: str = ""
    problem: str | None = None


def of_job(webhook: Webhook, job: Job, own: Body | None, secrets: TaskSecrets) -> NewJob:
    what = OF_STATES[job.state]
    event = webhook.event or str(what)
    told = f"{job.id} {job.created!r} {job.generation} {what}"  # an id may be used again when its job is gone
    text, problem = "", None
    try:
        text = _text(event, (own or bodies.of_job)(bodies.ended(job, secrets)))
    except Exception as error:  # noqa: BLE001 - the application's own code: the delivery fails, and says why
        said = secrets.text(_described(error), job.task, job.payload)
        problem = f"what is to be told of job {job.id} could not be said: {said}"
    return _job(webhook, told, event, text, problem=problem, trace=job.trace or job.id)


def of_flow(webhook: Webhook, told: str, body: dict[str, Any]) -> NewJob:
    event = webhook.event or str(What.FLOW_ENDED)
    return _job(webhook, told, event, _text(event, body))


def of_pool(webhook: Webhook, what: What, told: str, body: dict[str, Any]) -> NewJob:
    event = webhook.event or str(what)
    return _job(webhook, told, event, _text(event, body))


def of_test(webhook: Webhook, id_: str) -> NewJob:
    return _job(webhook, id_, "test", _text("test", {"webhook": webhook.wanted.name}))


def _job(
    webhook: Webhook,
    told: str,
    event: str,
    text: str,
    *,
    problem: str | None = None,
    trace: str | None = None,
) -> NewJob:
    """`told` is what the id comes of: whoever finds the same makes the same delivery."""
    name = webhook.wanted.name
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


def _text(event: str, body: Any) -> str:
    """The JSON that is sent."""
    plain = msgspec.to_builtins(body)
    told = {"event": event, **plain} if isinstance(plain, dict) else {"event": event, "body": plain}
    return msgspec.json.encode(told).decode()


def _described(error: Exception) -> str:
    """Of the application's own: also what it says may be anything."""
    try:
        said = str(error)[:LONGEST_PROBLEM].encode("utf-8", "replace").decode()
    except Exception:  # noqa: BLE001 - its own __str__ may raise
        said = "its message cannot be shown"
    return f"{type(error).__name__}: {said}"


__all__ = ["OWN_QUEUE", "TASK", "Delivery", "of_flow", "of_job", "of_pool", "of_test"]
