"""Jobs as they may be shown: without the secrets in their payloads, results, errors, notes and log lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import replace

from tidemill.access.annotated import hides_result, secret_fields
from tidemill.contract.reader import AttemptRecord
from tidemill.core.filters import Filter
from tidemill.core.job import Error, Job
from tidemill.core.matching import matches
from tidemill.core.secrecy import HIDDEN, LEAST, Names, hidden_in, redacted, redacted_text
from tidemill.errors import ConfigurationError
from tidemill.inspect.causes import Cause
from tidemill.inspect.explanation import Explanation
from tidemill.inspect.views import JobView, readable
from tidemill.tasks.definition import TaskDefinition

_HIDDEN = msgspec.json.encode(HIDDEN)
_OF_OUR_OWN = {"tidemill:webhook": frozenset({"body"})}
"""What a delivery says tells of another job, whose secrets cannot be known from here."""


class Redactor:
    """`more` are names of fields to hide beside the usual ones, in every job."""

    def __init__(self, tasks: Mapping[str, TaskDefinition], more: Iterable[str] = ()) -> None:
        self._tasks, self._names = tasks, Names(more)
        self._of: dict[str, Names] = {}

    def job(self, job: Job) -> Job:
        """The same job, with nothing secret left in it."""
        return self._shown(job, self._secrets(job))

    def explanation(self, explanation: Explanation, job: Job | None) -> Explanation:
        """It tells of errors and notes. None for what is no job yet."""
        names = self._names_of(explanation.task)
        secrets = [] if job is None else self._secrets(job)

        def text(said: str) -> str:
            return redacted_text(said, names, secrets)

        return replace(
            explanation,
            sentence=text(explanation.sentence),
            details=_without(redacted(explanation.details, names), secrets),
            causes=tuple(
                Cause(cause.code, text(cause.sentence), _without(redacted(cause.details, names), secrets))
                for cause in explanation.causes
            ),
        )

    def view(self, view: JobView) -> JobView:
        names, secrets = self._names_of(view.job.task), self._secrets(view.job)

        def text(said: str) -> str:
            return redacted_text(said, names, secrets)

        return replace(
            view,
            job=self._shown(view.job, secrets),
            attempts=tuple(
                replace(attempt, error=self._error(attempt, names, secrets)) for attempt in view.attempts
            ),
            log=tuple(replace(line, line=text(line.line)) for line in view.log),
        )

    def value(self, value: Any, task: str | None = None) -> Any:
        """Any data, such as the arguments of a schedule."""
        return redacted(value, self._names if task is None else self._names_of(task))

    def hides(self, name: str) -> bool:
        """Whether a value of that name is hidden wherever it is."""
        return self._names.hide(name)

    def text(self, text: str, task: str | None = None) -> str:
        return redacted_text(text, self._names if task is None else self._names_of(task))

    def shows(self, wanted: Filter, job: Job) -> bool:
        """Whether the job is one that the filter means by what can be seen of it. Otherwise whoever may
        search could guess at a secret, letter by letter."""
        if wanted.text is None or not self._hides(job, wanted.text.lower()):
            return True
        return matches(replace(wanted, fields=()), self.job(job))

    def refuse_secrets(self, wanted: Filter) -> None:
        for path, _ in wanted.fields:
            names = self._names if wanted.task is None else self._names_of(wanted.task)
            everywhere = [names, *map(self._names_of, self._tasks)] if wanted.task is None else [names]
            if any(each.hide(part) for part in path.split(".") for each in everywhere):
                raise ConfigurationError(f"fields: {path!r} is hidden, so jobs cannot be found by it")

    def _hides(self, job: Job, text: str) -> bool:
        """Whether something hidden has that text in it. It may be seen elsewhere all the same."""
        said = [job.note, job.reason, *_said(job.error)]
        hidden = chain(self._hidden(job.payload, job), hidden_in(said, self._names_of(job.task)))
        return any(text in each.lower() for each in hidden)

    def _names_of(self, task: str) -> Names:
        if (known := self._of.get(task)) is None:
            definition = self._tasks.get(task)
            fields = _OF_OUR_OWN.get(task, frozenset())
            if definition is not None:
                fields |= secret_fields(definition)
            known = self._of[task] = self._names.with_more(fields) if fields else self._names
        return known

    def _secrets(self, job: Job) -> list[str]:
        """Those to look for in texts. The longest first: one may be a part of another."""
        found = {*self._hidden(job.payload, job), *self._hidden(job.result, job)}
        return sorted((secret for secret in found if len(secret) >= LEAST), key=len, reverse=True)

    def _hidden(self, stored: bytes | None, job: Job) -> Iterator[str]:
        names = self._names_of(job.task)
        if stored is not None and names.may_be_in(stored):
            with suppress(RecursionError):
                yield from hidden_in(readable(stored), names)

    def _shown(self, job: Job, secrets: list[str]) -> Job:
        names = self._names_of(job.task)
        return replace(
            job,
            payload=_encoded(job.payload, names, secrets),
            result=None if job.result is None else self._result(job, names, secrets),
            error=job.error and _shown_error(job.error, names, secrets),
            note=job.note and redacted_text(job.note, names, secrets),
            reason=job.reason and redacted_text(job.reason, names, secrets),
        )

    def _result(self, job: Job, names: Names, secrets: list[str]) -> bytes:
        definition = self._tasks.get(job.task)
        if definition is not None and hides_result(definition):
            return _HIDDEN
        return _encoded(job.result or b"null", names, secrets)

    def _error(self, attempt: AttemptRecord, names: Names, secrets: list[str]) -> Error | None:
        return attempt.error and _shown_error(attempt.error, names, secrets)


def _encoded(stored: bytes, names: Names, secrets: list[str]) -> bytes:
    """A secret may stand in a text beside the field it came in, too. What is nested too deep to be looked
    through is not shown."""
    if not secrets and not names.may_be_in(stored):
        return stored
    try:
        return msgspec.json.encode(_without(redacted(readable(stored), names), secrets))
    except RecursionError:
        return _HIDDEN


def _without(value: Any, secrets: list[str]) -> Any:
    if not secrets:
        return value
    if isinstance(value, dict):
        return {name: _without(each, secrets) for name, each in value.items()}
    if isinstance(value, list):
        return [_without(each, secrets) for each in value]
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, HIDDEN)
    return value


def _said(error: Error | None) -> tuple[str | None, ...]:
    return () if error is None else (error.message, error.traceback)


def _shown_error(error: Error, names: Names, secrets: list[str]) -> Error:
    return replace(
        error,
        message=redacted_text(error.message, names, secrets),
        traceback=error.traceback and redacted_text(error.traceback, names, secrets),
    )
