"""Jobs as they may be shown: without the secrets in their payloads, results, errors, notes and log lines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import replace

from tidemill.core.filters import Filter
from tidemill.core.job import Error, Job
from tidemill.core.matching import matches
from tidemill.core.secrecy import CUT, HIDDEN, LEAST, Budget, Names, redacted, redacted_text
from tidemill.errors import ConfigurationError
from tidemill.inspect.causes import Cause
from tidemill.inspect.explanation import Explanation
from tidemill.inspect.views import JobView, readable
from tidemill.schedules.views import ScheduleView
from tidemill.tasks.redaction import TaskSecrets, longest_first

_HIDDEN, _CUT = msgspec.json.encode(HIDDEN), msgspec.json.encode(CUT)


class Redactor:
    """`secrets` knows the names of secret fields, those of each task and those that are set."""

    def __init__(self, secrets: TaskSecrets) -> None:
        self._secrets = secrets

    def job(self, job: Job, budget: PageBudget | None = None) -> Job:
        """The same job, with nothing secret left in it. A page has one budget for all its jobs: what does not
        fit is cut."""
        return self._of(job, budget or PageBudget()).job(job)

    def explanation(self, explanation: Explanation, job: Job | None) -> Explanation:
        """It tells of errors and notes. None for what is no job yet."""
        texts = _Texts(self._secrets.names(explanation.task)) if job is None else self._of(job, PageBudget())
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
        said = [line.line for line in view.log]
        said += [text for attempt in view.attempts for text in _said(attempt.error)]
        texts = self._of(view.job, PageBudget(), sum(map(len, said)))
        return replace(
            view,
            job=texts.job(view.job),
            attempts=tuple(
                replace(attempt, error=attempt.error and texts.error(attempt.error))
                for attempt in view.attempts
            ),
            log=tuple(replace(line, line=texts.text(line.line)) for line in view.log),
        )

    def value(self, value: Any, task: str | None = None) -> Any:
        """Any data, such as the arguments of a schedule."""
        return redacted(value, self._secrets.usual if task is None else self._secrets.names(task))

    def schedule(self, view: ScheduleView, budget: Budget | None = None) -> ScheduleView:
        stored = bytes(view.arguments)
        fits = (budget or Budget()).take(len(stored))
        texts = _Texts(self._secrets.names(view.task), cuts_data=not fits)
        return replace(view, arguments=msgspec.Raw(texts.stored(stored)))

    def hides(self, name: str) -> bool:
        """Whether a value of that name is hidden wherever it is."""
        return self._secrets.usual.hide(name)

    def text(self, text: str, task: str | None = None) -> str:
        return redacted_text(text, self._secrets.usual if task is None else self._secrets.names(task))

    def shows(self, wanted: Filter, job: Job) -> bool:
        """Whether the filter matches what can be seen of the job. Otherwise a search could guess at a secret,
        letter by letter."""
        return not searches_values(wanted) or not self._may_hide(job) or matches(wanted, self.job(job))

    def refuse_secrets(self, wanted: Filter) -> None:
        if not wanted.fields:
            return
        one = wanted.task and self._secrets.names(wanted.task)
        everywhere = [one] if one else self._secrets.all_names()
        for path, _ in wanted.fields:
            if any(each.hide(part) for part in path.split(".") for each in everywhere):
                raise ConfigurationError(f"fields: {path!r} is hidden, so jobs cannot be found by it")

    def _may_hide(self, job: Job) -> bool:
        names = self._secrets.names(job.task)
        texts = " ".join(_texts_of(job)).encode(errors="replace")
        return self._secrets.hides_result(job.task) or any(
            map(names.may_be_in, (job.payload, job.result or b"", texts))
        )

    def _of(self, job: Job, budget: PageBudget, more: int = 0) -> _Texts:
        """`more` is the size of texts that belong to the job beside its own."""
        names = self._secrets.names(job.task)
        found = longest_first(
            chain(self._secrets.hidden(job.task, job.payload), self._secrets.hidden(job.task, job.result))
        )
        if not found and not more and not self._may_hide(job):
            return _Texts(names)
        texts = sum(map(len, _texts_of(job))) + more
        return _Texts(
            names,
            found,
            cuts_data=not budget.data.take(size_of(job) - texts + more, len(found)),
            cuts_texts=not budget.texts.take(texts, len(found)),
            hides_result=self._secrets.hides_result(job.task),
        )


class PageBudget:
    """Payloads and results have one, and texts another: errors stay readable where payloads are large."""

    def __init__(self) -> None:
        self.data, self.texts = Budget(), Budget()


class _Texts:
    """Redacts the texts and data of one job. Data and texts beyond the budget of the page are cut."""

    def __init__(
        self,
        names: Names,
        secrets: Sequence[str] = (),
        *,
        cuts_data: bool = False,
        cuts_texts: bool = False,
        hides_result: bool = False,
    ) -> None:
        self._names, self._secrets, self._hides_result = names, secrets, hides_result
        self._cuts_data, self._cuts_texts = cuts_data, cuts_texts

    def text(self, text: str) -> str:
        return CUT if self._cuts_texts else redacted_text(text, self._names, self._secrets)

    def details(self, value: dict[str, Any]) -> dict[str, Any]:
        if self._cuts_texts:
            return {}
        shown: dict[str, Any] = _without(redacted(value, self._names), self._secrets)
        return shown

    def error(self, error: Error) -> Error:
        traceback = error.traceback and self.text(error.traceback)
        return replace(error, message=self.text(error.message), traceback=traceback)

    def job(self, job: Job) -> Job:
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
        """A secret may stand in a text beside the field it came in, too. What is nested too deep to be looked
        through is not shown."""
        if self._cuts_data:
            return _CUT
        if not self._secrets and not self._names.may_be_in(stored):
            return stored
        try:
            return msgspec.json.encode(_without(redacted(readable(stored), self._names), self._secrets))
        except RecursionError:
            return _HIDDEN


def searches_values(wanted: Filter) -> bool:
    """Whether the filter compares texts in which a secret may stand."""
    return wanted.text is not None or bool(wanted.fields)


def size_of(job: Job) -> int:
    """Bytes that are read to redact it."""
    return len(job.payload) + len(job.result or b"") + sum(map(len, _texts_of(job)))


def _texts_of(job: Job) -> list[str]:
    return [text for text in (job.note, job.reason, *_said(job.error)) if text]


def _without(value: Any, secrets: Sequence[str]) -> Any:
    if not secrets:
        return value
    if isinstance(value, dict):
        return {name: _without(each, secrets) for name, each in value.items()}
    if isinstance(value, list):
        return [_without(each, secrets) for each in value]
    if isinstance(value, str) and len(value) >= LEAST:
        for secret in secrets:
            value = value.replace(secret, HIDDEN)
    return value


def _said(error: Error | None) -> tuple[str, ...]:
    return () if error is None else (error.message, error.traceback or "")
