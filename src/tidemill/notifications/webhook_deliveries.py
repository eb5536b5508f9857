"""Builds a webhook delivery as a job, and defines the task that sends the delivery."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec.structs import replace

from tidemill.clock import Clock
from tidemill.contract.pools import PoolView
from tidemill.contract.store import Store
from tidemill.core.documents import Advance, Document, DocumentJob, DocumentKind
from tidemill.core.flow_progress import FINAL_FLOW_STATES
from tidemill.core.jobs import Error, Job, NewJob
from tidemill.core.retry import Retry
from tidemill.errors import GiveUp, RetryAfter, TidemillError
from tidemill.notifications.address_policy import AllowedAddresses, parse_url
from tidemill.notifications.http_client import PostResponse, post, run_in_thread
from tidemill.notifications.signatures import signature_headers
from tidemill.notifications.webhook_definitions import (
    EVENTS_BY_STATE,
    NOTIFICATION_QUEUE,
    BodyFunction,
    FinishedJob,
    NewWebhook,
    StoredWebhook,
    Webhook,
    WebhookEvent,
    decode_webhook,
    webhook_document_id,
)
from tidemill.tasks.context import Context
from tidemill.tasks.definition import TaskDefinition, make_task_definition
from tidemill.tasks.redaction import EventRedactor, TaskSecrets


def describe_finished_job(job: Job, secrets: TaskSecrets) -> FinishedJob:
    """Returns a job in the form that the application's body function receives. Arguments that the task
    declares as secret are removed from its error and reason."""
    shown = EventRedactor(secrets, job.task, job.payload).text
    return FinishedJob(
        id=job.id,
        task=job.task,
        queue=job.queue,
        state=job.state,
        attempts=job.attempts,
        generation=job.generation,
        created=job.created,
        finished=job.finished or job.created,
        arguments=_decode_json_or_text(job.payload),
        result=None if job.result is None else _decode_json_or_text(job.result),
        error=job.error and _redact_error(job.error, shown),
        reason=job.reason and shown(job.reason),
        tags=job.tags,
    )


def _redact_error(error: Error, shown: Callable[[str], str]) -> Error:
    traceback = error.traceback and shown(error.traceback)
    return msgspec.structs.replace(error, message=shown(error.message), traceback=traceback)


def job_body(job: FinishedJob) -> dict[str, Any]:
    fields = {name: getattr(job, name) for name in _JOB_BODY_FIELDS}
    error = None if job.error is None else {"type": job.error.type, "message": job.error.message}
    return {"job": fields | {"error": error}}


def flow_body(document: Document, state: str) -> dict[str, Any]:
    return {"flow": {"id": document.id, "name": document.name, "state": state, "created": document.created}}


def pool_body(view: PoolView) -> dict[str, Any]:
    last = view.closures[-1] if view.closures else None
    by_hand = view.closed
    return {
        "pool": {
            "name": view.name,
            "key": view.key,
            "reason": "by hand" if by_hand else None if last is None else str(last.reason),
            "until": by_hand.until if by_hand else None if last is None else last.until,
        }
    }


def _decode_json_or_text(text: bytes) -> Any:
    """Returns decoded JSON. If the payload is not JSON, for example because another program wrote it, returns
    it as text."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text.decode(errors="replace")


_JOB_BODY_FIELDS = (
    "id",
    "task",
    "queue",
    "state",
    "attempts",
    "generation",
    "created",
    "finished",
    "reason",
    "tags",
)


DELIVERY_TASK = "tidemill:webhook"
DELIVERY_PRIORITY = 3
MAX_BODY_CHARACTERS = 256 * 1024
MAX_PROBLEM_CHARACTERS = 500


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a delivery job.

    - `body`: the JSON that is signed and sent, the same in every attempt
    - `problem`: why the body could not be built, or None; the job fails with this text
    """

    webhook: str
    event: str
    body: str = ""
    problem: str | None = None


def job_delivery(webhook: Webhook, job: Job, own: BodyFunction | None, secrets: TaskSecrets) -> NewJob:
    what = EVENTS_BY_STATE[job.state]
    event = webhook.event or str(what)
    event_id = f"{job.id} {job.created!r} {job.generation} {what}"  # ids of pruned jobs may be reused
    text, problem = "", None
    try:
        text = _encode_body(event, (own or job_body)(describe_finished_job(job, secrets)))
    except Exception as error:  # noqa: BLE001 - user code may raise anything; the delivery fails and says why
        description = secrets.text(_describe_error(error), job.task, job.payload)
        problem = f"what is to be told of job {job.id} could not be said: {description}"
    return _new_delivery(webhook, event_id, event, text, problem=problem, trace=job.trace or job.id)


def flow_delivery(webhook: Webhook, event_id: str, body: dict[str, Any]) -> NewJob:
    event = webhook.event or str(WebhookEvent.FLOW_ENDED)
    return _new_delivery(webhook, event_id, event, _encode_body(event, body))


def pool_delivery(webhook: Webhook, what: WebhookEvent, event_id: str, body: dict[str, Any]) -> NewJob:
    event = webhook.event or str(what)
    return _new_delivery(webhook, event_id, event, _encode_body(event, body))


def test_delivery(webhook: Webhook, id_: str) -> NewJob:
    return _new_delivery(webhook, id_, "test", _encode_body("test", {"webhook": webhook.spec.name}))


def _new_delivery(
    webhook: Webhook,
    event_id: str,
    event: str,
    text: str,
    *,
    problem: str | None = None,
    trace: str | None = None,
) -> NewJob:
    """Returns the job that sends one delivery. The job's id is derived from `event_id`, so that two workers
    create the same job.

    - `text`: the body as JSON
    - `problem`: why the body could not be built, or None
    - `trace`: the trace id of the job that the event is about
    """
    name = webhook.spec.name
    if len(text) > MAX_BODY_CHARACTERS:
        problem, text = (
            f"what is to be told has {len(text)} bytes, more than {MAX_BODY_CHARACTERS}; tell less",
            "",
        )
    delivery = Delivery(webhook=name, event=event, body=text, problem=problem)
    digest = blake2b(f"{name}\0{event_id}".encode(), digest_size=16).hexdigest()
    return NewJob(
        id=f"webhook-{digest}",
        task=DELIVERY_TASK,
        payload=msgspec.json.encode({"delivery": delivery}),
        priority=DELIVERY_PRIORITY,
        key=name,
        trace=trace,
        tags=(event,) if len(event) <= 50 else (),  # noqa: PLR2004 - a tag to search by
    )


def _encode_body(event: str, body: Any) -> str:
    """Returns the JSON text to send: the event's name and the body."""
    plain = msgspec.to_builtins(body)
    content = {"event": event, **plain} if isinstance(plain, dict) else {"event": event, "body": plain}
    return msgspec.json.encode(content).decode()


def _describe_error(error: Exception) -> str:
    """Returns the type and message of an exception that the application's code raised. A long message is
    shortened. If the message itself cannot be read, a fixed text replaces it."""
    try:
        message = str(error)[:MAX_PROBLEM_CHARACTERS].encode("utf-8", "replace").decode()
    except Exception:  # noqa: BLE001 - a user's __str__ may raise
        message = "its message cannot be shown"
    return f"{type(error).__name__}: {message}"


def add_flow_deliveries(webhooks: Sequence[StoredWebhook], before: Document, advance: Advance) -> Advance:
    """Returns `advance`, with the webhook deliveries added if it ends the flow. `before` is the flow's
    document."""
    after = advance.next
    if not webhooks or after is None or after.state not in FINAL_FLOW_STATES or after.state == before.state:
        return advance
    event_id = f"{before.id} {after.state} {advance.expected + 1}"
    made = tuple(
        DocumentJob(
            NOTIFICATION_QUEUE,
            flow_delivery(stored.webhook, event_id, flow_body(before, after.state)),
        )
        for stored in webhooks
        if stored.webhook.spec.matches_flow(before.name)
    )
    return replace(advance, jobs=(*advance.jobs, *made)) if made else advance


DELIVERY_RETRY = Retry(attempts=20, first=5.0, factor=2.0, cap=1800.0)
"""Retries for about six hours."""
MAX_RETRY_AFTER_SECONDS = 3600.0
HTTP_GONE = 410


class DeliveryFailed(TidemillError):
    """Raised if the receiver did not accept the delivery. The delivery is retried."""


def delivery_task(
    store: Callable[[], Awaitable[Store]],
    clock: Callable[[], Clock],
    allowed: AllowedAddresses,
    timeout: float,
) -> TaskDefinition:
    async def deliver(ctx: Context, delivery: Delivery) -> int:
        if delivery.problem is not None:
            raise GiveUp(delivery.problem)
        webhook = await _load_webhook(await store(), delivery.webhook)
        body = delivery.body.encode()
        headers = signature_headers(_read_secret(webhook), ctx.job_id, int(clock().wall()), body)
        try:
            answer = await run_in_thread(
                lambda: post(webhook.url, body, headers, timeout=timeout, allowed=allowed)
            )
        except OSError as error:
            raise DeliveryFailed(f"{parse_url(webhook.url).host} did not answer: {error}") from None
        return _check_response(parse_url(webhook.url).host, answer)

    return make_task_definition(
        deliver, name=DELIVERY_TASK, queue=NOTIFICATION_QUEUE, retry=DELIVERY_RETRY, timeout=2 * timeout + 30
    )


async def _load_webhook(store: Store, name: str) -> NewWebhook:
    """Returns the current definition of the webhook, so that a corrected URL also applies to waiting
    deliveries. Raises GiveUp if the webhook was removed."""
    [document] = await store.documents(DocumentKind.RECORD, [webhook_document_id(name)])
    if document is None:
        raise GiveUp(f"the webhook {name!r} was removed; nobody is to be told any more")
    return decode_webhook(document).webhook.spec


def _read_secret(webhook: NewWebhook) -> str:
    if found := os.environ.get(webhook.secret):
        return found
    raise DeliveryFailed(
        f"the environment variable {webhook.secret} is not set here, and nothing is sent unsigned; set it "
        "where workers run"
    )


def _check_response(host: str, answer: PostResponse) -> int:
    """Returns the HTTP status of an accepted delivery; raises an error for any other status. Errors name only
    the host, because a URL may contain a token."""
    if answer.accepted:
        return answer.status
    summary = f"{host} answered {answer.status}"
    if answer.status == HTTP_GONE:
        raise GiveUp(f"{summary}: it wants nothing any more; remove the webhook")
    if answer.retry_after and answer.retry_after.isdigit():
        raise RetryAfter(min(float(answer.retry_after), MAX_RETRY_AFTER_SECONDS), summary)
    redirect = 300 <= answer.status < 400  # noqa: PLR2004 - the 3xx statuses
    raise DeliveryFailed(
        f"{summary}, and redirects are not followed; give the new address" if redirect else summary
    )


__all__ = [
    "DELIVERY_TASK",
    "NOTIFICATION_QUEUE",
    "Delivery",
    "flow_delivery",
    "job_delivery",
    "pool_delivery",
    "test_delivery",
]
