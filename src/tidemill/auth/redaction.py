"""Redacts jobs for display: replaces secrets in payloads, results, errors, notes and log lines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import replace

from tidemill.core.filters import Filter, matches_filter
from tidemill.core.jobs import Error, Job
from tidemill.core.redaction import (
    CUT_MARK,
    HIDDEN_MARK,
    MIN_SECRET_CHARS,
    RedactionBudget,
    SecretNames,
    redact,
    redact_text,
)
from tidemill.errors import ConfigurationError
from tidemill.inspect.causes import Cause
from tidemill.inspect.explanation import Explanation
from tidemill.inspect.views import JobView, decode_payload
from tidemill.schedules.views import ScheduleView
from tidemill.tasks.redaction import TaskSecrets, sort_longest_first

_HIDDEN, _CUT = msgspec.json.encode(HIDDEN_MARK), msgspec.json.encode(CUT_MARK)


class Redactor:
    """Hides secrets in values before they are shown. `secrets` has the field names that are secret in every
    job, such as `password`, or in the jobs of one task."""

    def __init__(self, secrets: TaskSecrets) -> None:
        self._secrets = secrets

    def redacted_job(self, job: Job, budget: PageBudget | None = None) -> Job:
        """Returns a copy of the job with its secrets hidden. All jobs of a page share one `budget`; a short
        message replaces data beyond it."""
        return self._job_redactor(job, budget or PageBudget()).redacted_job(job)

    def explanation(self, explanation: Explanation, job: Job | None) -> Explanation:
        """Returns the explanation with the secrets in its sentences and details hidden. `job` is the
        explained job, None for a flow step that has no job yet."""
        names = self._secrets.names(explanation.task)
        texts = _JobRedactor(names) if job is None else self._job_redactor(job, PageBudget())
        return replace(
            explanation,
            sentence=texts.text(explanation.sentence),
            details=texts.details(explanation.details),
            causes=tuple(
                Cause(cause.code, texts.text(cause.sentence), texts.details(cause.details))
                for cause in explanation.causes
            ),
        )

    def view(self, view: JobView) -> JobView:
        messages = [line.line for line in view.log]
        messages += [text for attempt in view.attempts for text in _error_texts(attempt.error)]
        texts = self._job_redactor(view.job, PageBudget(), sum(map(len, messages)))
        return replace(
            view,
            job=texts.redacted_job(view.job),
            attempts=tuple(
                replace(attempt, error=attempt.error and texts.error(attempt.error))
                for attempt in view.attempts
            ),
            log=tuple(replace(line, line=texts.text(line.line)) for line in view.log),
        )

    def value(self, value: Any, task: str | None = None) -> Any:
        """Returns any data with its secrets hidden, such as the arguments of a schedule. `task=None`: hides
        only the fields that are secret in all tasks."""
        return redact(value, self._secrets.usual if task is None else self._secrets.names(task))

    def schedule(self, view: ScheduleView, budget: RedactionBudget | None = None) -> ScheduleView:
        stored = bytes(view.arguments)
        fits = (budget or RedactionBudget()).take(len(stored))
        texts = _JobRedactor(self._secrets.names(view.task), cuts_data=not fits)
        return replace(view, arguments=msgspec.Raw(texts.stored(stored)))

    def hides_name(self, name: str) -> bool:
        """True if the values of fields with this name are hidden in the jobs of every task."""
        return self._secrets.usual.hide(name)

    def text(self, text: str, task: str | None = None) -> str:
        return redact_text(text, self._secrets.usual if task is None else self._secrets.names(task))

    def matches_visible(self, job_filter: Filter, job: Job) -> bool:
        """True if the filter still matches the job after its secrets are hidden. Without this check, a user
        could guess a secret letter by letter with searches."""
        return (
            not searches_values(job_filter)
            or not self._may_hide(job)
            or matches_filter(job_filter, self.redacted_job(job))
        )

    def refuse_secrets(self, job_filter: Filter) -> None:
        if not job_filter.fields:
            return
        names = job_filter.task and self._secrets.names(job_filter.task)
        all_names = [names] if names else self._secrets.all_names()
        for path, _ in job_filter.fields:
            if any(secret_names.hide(part) for part in path.split(".") for secret_names in all_names):
                raise ConfigurationError(f"fields: {path!r} is hidden, so jobs cannot be found by it")

    def _may_hide(self, job: Job) -> bool:
        names = self._secrets.names(job.task)
        texts = " ".join(_job_texts(job)).encode(errors="replace")
        return self._secrets.hides_result(job.task) or any(
            map(names.may_be_in, (job.payload, job.result or b"", texts))
        )

    def _job_redactor(self, job: Job, budget: PageBudget, more: int = 0) -> _JobRedactor:
        """Returns a redactor for one job and reduces `budget`. `more`: the length of additional texts."""
        names = self._secrets.names(job.task)
        hidden = (self._secrets.hidden(job.task, data) for data in (job.payload, job.result))
        found = sort_longest_first(chain.from_iterable(hidden))
        if not found and not more and not self._may_hide(job):
            return _JobRedactor(names)
        texts = sum(map(len, _job_texts(job))) + more
        return _JobRedactor(
            names,
            found,
            cuts_data=not budget.data.take(redaction_bytes(job) - texts + more, len(found)),
            cuts_texts=not budget.texts.take(texts, len(found)),
            hides_result=self._secrets.hides_result(job.task),
        )


class PageBudget:
    """Limits how much data is searched for secrets to show one page. A short message replaces the data beyond
    the limit. Texts, such as error messages, have a separate limit."""

    def __init__(self) -> None:
        self.data, self.texts = RedactionBudget(), RedactionBudget()


class _JobRedactor:
    """Hides secrets in the texts and data of one job.

    - `names`: the secret field names
    - `secrets`: the secret values found in the job
    - `cuts_data`, `cuts_texts`: True replaces all data or all texts by a short message
    - `hides_result`: True hides the whole result"""

    def __init__(
        self,
        names: SecretNames,
        secrets: Sequence[str] = (),
        *,
        cuts_data: bool = False,
        cuts_texts: bool = False,
        hides_result: bool = False,
    ) -> None:
        self._names, self._secrets, self._hides_result = names, secrets, hides_result
        self._cuts_data, self._cuts_texts = cuts_data, cuts_texts

    def text(self, text: str) -> str:
        return CUT_MARK if self._cuts_texts else redact_text(text, self._names, self._secrets)

    def details(self, value: dict[str, Any]) -> dict[str, Any]:
        if self._cuts_texts:
            return {}
        shown: dict[str, Any] = _remove_secrets(redact(value, self._names), self._secrets)
        return shown

    def error(self, error: Error) -> Error:
        traceback = error.traceback and self.text(error.traceback)
        return replace(error, message=self.text(error.message), traceback=traceback)

    def redacted_job(self, job: Job) -> Job:
        return replace(
            job,
            payload=self.stored(job.payload),
            result=None if job.result is None else self._result(job.result),
            error=job.error and self.error(job.error),
            note=job.note and self.text(job.note),
            reason=job.reason and self.text(job.reason),
        )

    def _result(self, stored: bytes) -> bytes:
        return _HIDDEN if self._hides_result else self.stored(stored)

    def stored(self, stored: bytes) -> bytes:
        """Returns stored JSON with its secrets hidden. Secret values of the job are hidden in every field in
        which they occur."""
        if self._cuts_data:
            return _CUT
        if not self._secrets and not self._names.may_be_in(stored):
            return stored
        try:
            return msgspec.json.encode(
                _remove_secrets(redact(decode_payload(stored), self._names), self._secrets)
            )
        except RecursionError:
            return _HIDDEN


def searches_values(job_filter: Filter) -> bool:
    """True if the filter searches by text or by payload field, so that a secret could match."""
    return job_filter.text is not None or bool(job_filter.fields)


def redaction_bytes(job: Job) -> int:
    """Returns how much data of the job must be searched for secrets: the bytes of its payload and result,
    plus the characters of its texts, such as error messages."""
    return len(job.payload) + len(job.result or b"") + sum(map(len, _job_texts(job)))


def _job_texts(job: Job) -> list[str]:
    return [text for text in (job.note, job.reason, *_error_texts(job.error)) if text]


def _remove_secrets(value: Any, secrets: Sequence[str]) -> Any:
    if not secrets:
        return value
    if isinstance(value, dict):
        return {name: _remove_secrets(member, secrets) for name, member in value.items()}
    if isinstance(value, list):
        return [_remove_secrets(member, secrets) for member in value]
    if isinstance(value, str) and len(value) >= MIN_SECRET_CHARS:
        for secret in secrets:
            value = value.replace(secret, HIDDEN_MARK)
    return value


def _error_texts(error: Error | None) -> tuple[str, ...]:
    return () if error is None else (error.message, error.traceback or "")
