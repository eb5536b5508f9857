"""One evaluation of all alert rules in a store transaction, and `app.alerts`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import msgspec

from tidemill.contract.store import Store
from tidemill.core.documents import Advance, Document, DocumentJob, DocumentKind, DocumentUpdate
from tidemill.notifications.alert_channels import ChannelError, alert_jobs
from tidemill.notifications.alert_messages import AlertMessage, dashboard_path, describe_alert, format_message
from tidemill.notifications.alert_readings import (
    KINDS_READ_ELSEWHERE,
    AlertReader,
    SubjectValues,
    call_measure,
)
from tidemill.notifications.alert_rules import (
    ALERT_DOCUMENT,
    ALERT_DOCUMENT_ID,
    AlertKind,
    AlertRule,
    AlertStage,
    AlertState,
    MeasureFunction,
    evaluate_rules,
    record_worker_exit,
    track_workers,
)
from tidemill.notifications.config import NotificationConfig
from tidemill.notifications.http_client import run_in_thread

MEASURE_TIMEOUT_SECONDS = 10.0
"""Time limit for one measure function of the application."""


async def load_alert_state(store: Store) -> tuple[Document | None, AlertState]:
    """Returns the stored document and the alert state in it. The document is None if there is none yet. A
    state that this version cannot decode counts as empty."""
    [document] = await store.documents(DocumentKind.RECORD, [ALERT_DOCUMENT_ID])
    try:
        return document, AlertState() if document is None else msgspec.json.decode(
            document.record, type=AlertState
        )
    except msgspec.DecodeError:
        return document, AlertState()


class EvaluationResult(NamedTuple):
    """The result of one evaluation of the alert rules. `made` is the number of messages created. `broken`
    maps rules to the errors of the application's measure functions."""

    made: int
    broken: dict[str, Exception]


async def evaluate_alerts(store: Store, notifications: NotificationConfig) -> EvaluationResult:
    """Evaluates all rules, and stores the new state together with the jobs that send its messages. If two
    workers evaluate at the same time, the store accepts only one result."""
    document, alert_state = await load_alert_state(store)
    now = (await store.read_clock()).wall
    rules = notifications.rules
    before, alert_state = alert_state, await _update_workers(store, alert_state, rules, now)
    measured, broken = await _read_rules(AlertReader(store, alert_state, now), rules, notifications.measures)
    decision = evaluate_rules(
        alert_state, rules, measured, now, repeat=notifications.repeat, digest=notifications.digest
    )
    if decision.alert_state == before:
        return EvaluationResult(0, broken)
    revision = 0 if document is None else document.revision
    jobs: tuple[DocumentJob, ...] = ()
    if decision.notices:
        text = format_message(decision.notices, notifications.where(), notifications.public_url)
        jobs = alert_jobs(
            notifications.channels,
            text,
            f"{ALERT_DOCUMENT_ID} {0 if document is None else document.created} {revision}",
        )
    done = await _write_alert_state(store, revision, decision.alert_state, jobs)
    return EvaluationResult(len(jobs) if done else 0, broken)


async def record_worker_stop(store: Store, worker: str) -> None:
    """Records that the worker stopped normally, so that no alert reports it as lost."""
    while True:
        document, alert_state = await load_alert_state(store)
        if document is None or not alert_state.workers:  # no WORKER_GONE rule: workers are not tracked
            return
        now = (await store.read_clock()).wall
        if await _write_alert_state(store, document.revision, record_worker_exit(alert_state, worker, now)):
            return


async def _write_alert_state(
    store: Store, expected: int, alert_state: AlertState, jobs: tuple[DocumentJob, ...] = ()
) -> bool:
    becomes = DocumentUpdate(name=ALERT_DOCUMENT, state="stored", record=msgspec.json.encode(alert_state))
    advance = Advance(
        kind=DocumentKind.RECORD, id=ALERT_DOCUMENT_ID, expected=expected, next=becomes, jobs=jobs
    )
    [answer] = await store.advance([advance])
    return answer.done


async def _update_workers(
    store: Store, alert_state: AlertState, rules: Mapping[str, AlertRule], now: float
) -> AlertState:
    windows = [rule.window for rule in rules.values() if rule.on is AlertKind.WORKER_GONE]
    if not windows:
        return alert_state
    alive = {info.id: info.seen for info in await store.workers()}
    return track_workers(alert_state, alive, now, max(windows))


async def _read_rules(
    reader: AlertReader, rules: Mapping[str, AlertRule], measures: Mapping[str, MeasureFunction]
) -> tuple[dict[str, SubjectValues], dict[str, Exception]]:
    """Returns the measured values by rule, and the errors of measure functions by rule. A measure function
    that raises or times out does not affect the other rules."""
    read_here = {name: rule for name, rule in rules.items() if rule.on not in KINDS_READ_ELSEWHERE}
    found = {name: await reader.measure(rule) for name, rule in read_here.items()}
    broken: dict[str, Exception] = {}
    for name in [name for name in measures if rules[name].on is AlertKind.OWN]:
        try:
            async with asyncio.timeout(MEASURE_TIMEOUT_SECONDS):
                found[name] = await call_measure(measures[name])
        except Exception as error:  # noqa: BLE001 - user code may raise anything; the error is returned
            broken[name] = error
    return found, broken


class AlertView(msgspec.Struct, frozen=True, kw_only=True):
    """An alert that is raised, waits for its minimum duration, or has ended recently.

    - `sentence`: describes the alert
    - `since`, `last_sent`: the wall times of its start and of its last message
    - `page`: the path of its dashboard page
    """

    rule: str
    on: AlertKind
    subject: str
    stage: AlertStage
    since: float
    value: float
    threshold: float
    last_sent: float | None
    sentence: str
    page: str


class Alerts:
    """`app.alerts`: the rules, the channels and the current alerts."""

    def __init__(self, notifications: NotificationConfig) -> None:
        self._notifications = notifications

    @property
    def rules(self) -> dict[str, AlertRule]:
        """The rules in effect in this program, by name."""
        return dict(self._notifications.rules)

    @property
    def channels(self) -> tuple[str, ...]:
        """The names of the configured channels; none by default."""
        return tuple(self._notifications.channels)

    async def states(self) -> list[AlertView]:
        """Returns the alerts: first raised alerts, then alerts that wait for their minimum duration, then
        alerts that ended recently."""

        _, alert_state = await load_alert_state(await self._notifications.store())
        found = sorted(
            alert_state.alerts.values(), key=lambda alert: (_STAGE_ORDER[alert.stage], alert.since)
        )
        return [
            AlertView(
                **msgspec.structs.asdict(alert), sentence=describe_alert(alert), page=dashboard_path(alert)
            )
            for alert in found
        ]

    async def test(self) -> dict[str, str | None]:
        """Sends a test message through every channel, directly and without a job. Returns the error of each
        channel, None for success."""
        raised = sum(alert.stage is AlertStage.RAISED for alert in await self.states())
        text = f"This is a test. Raised now: {raised}.\n\nStore: {self._notifications.where()}\n"
        message = AlertMessage("[Tidemill] a test", text)
        found: dict[str, str | None] = {}
        for name, channel in self._notifications.channels.items():
            try:
                await run_in_thread(partial(channel.send, message, self._notifications.clock().wall()))
                found[name] = None
            except ChannelError as error:
                found[name] = str(error)
        return found


_STAGE_ORDER = {AlertStage.RAISED: 0, AlertStage.WAITING: 1, AlertStage.OVER: 2}
