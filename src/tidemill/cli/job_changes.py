"""The subcommands of `tidemill jobs` that change jobs: retry, cancel, run, archive, reprioritise, delete."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from tidemill.app import Tidemill
from tidemill.cli import completion
from tidemill.cli.job_filters import FilterOptions, missing_jobs_message, resolve_ids, with_filter
from tidemill.cli.options import WholeNumber
from tidemill.cli.output import echo, note, print_json
from tidemill.cli.store_options import CommandTarget, with_target
from tidemill.cli.terminal import confirm, count_progress
from tidemill.core.filters import Filter
from tidemill.core.jobs import PRIORITY_RANGE
from tidemill.core.operator_changes import (
    ArchiveJobs,
    CancelJobs,
    DeleteJobs,
    OperatorChange,
    ReprioritiseJobs,
    RetryJobs,
    RunJobsNow,
)
from tidemill.core.states import LIVE, PENDING, State
from tidemill.inspect.formatting import pluralize
from tidemill.inspect.views import BulkResult


@dataclass(frozen=True)
class ChangeMessages:
    """The words that a command prints about one kind of change, such as retry. `states`: the states of the
    jobs that the command changes if the user gives no --state."""

    verb: str
    success_text: str
    failure_text: str
    states: tuple[State, ...]


@dataclass(frozen=True)
class JobSelection:
    """The jobs that a command should change, given by `ids` or by `filter_options`. `yes=True`: the command
    does not ask for confirmation."""

    target: CommandTarget
    ids: tuple[str, ...]
    filter_options: FilterOptions
    yes: bool

    def change(self, change: OperatorChange, messages: ChangeMessages) -> int:
        if self.ids and self.filter_options.is_given():
            raise click.UsageError("name jobs by their ids or by a filter, not by both")
        if self.ids:
            return self._by_ids(change, messages)
        if self.filter_options.is_given():
            return self._by_filter(change, messages)
        raise click.UsageError("say which jobs: their ids, or a filter such as --queue mail --state failed")

    def _by_ids(self, change: OperatorChange, messages: ChangeMessages) -> int:
        async def name_and_change(app: Tidemill) -> tuple[list[str], BulkResult]:
            ids = await resolve_ids(app, self.ids)
            return ids, await app.inspect.change(Filter(ids=tuple(ids)), change)

        ids, changed = self.target.run(name_and_change)
        found = {*changed.ids, *changed.unchanged_ids}
        missing = [id_ for id_ in dict.fromkeys(ids) if id_ not in found]
        if self.target.json:
            _print_result(changed, missing)
        else:
            for id_ in changed.ids:
                echo(f"{id_} {messages.success_text}")
            for id_ in changed.unchanged_ids:
                echo(f"{id_} {messages.failure_text}")
        if missing:
            note(missing_jobs_message(missing))
        elif not changed.changed:
            note("nothing was changed")  # each job's line says why
        return 1 if missing or not changed.changed else 0

    def _by_filter(self, change: OperatorChange, messages: ChangeMessages) -> int:
        async def count(app: Tidemill) -> tuple[Filter, int]:
            selected = await self.filter_options.filter(app, messages.states)
            return selected, (await app.inspect.count(selected, scan_limit=None)).jobs

        selected, matching = self.target.run(count)
        if not matching:
            states = (
                ""
                if self.filter_options.states
                else f" in a state it applies to ({', '.join(messages.states)})"
            )
            note(f"nothing to {messages.verb}: no job matches the filter{states}")
            if self.target.json:
                _print_result(BulkResult(changed=0, unchanged=0, moved=0, ids=(), unchanged_ids=()), [])
            return 1
        if not self._agreed(matching, messages.verb):
            note("nothing was changed")
            return 1
        with count_progress(messages.success_text, matching) as progress:
            changed = self.target.run(lambda app: app.inspect.change(selected, change, progress=progress))
        if self.target.json:
            _print_result(changed, [])
        else:
            echo(_result_sentence(changed, messages))
        return 0 if changed.changed else 1

    def _agreed(self, matching: int, verb: str) -> bool:
        if self.yes:
            return True
        if not sys.stdin.isatty():
            verb_text = "job matches" if matching == 1 else "jobs match"
            raise click.UsageError(
                f"{matching} {verb_text}, and there is no terminal to ask on: add --yes to {verb} "
                f"{'it' if matching == 1 else 'them'} without being asked"
            )
        return confirm(f"{verb} {pluralize(matching, 'job')}?")


def with_job_selection(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator that adds job ids, filter options and --yes to a command. The command receives them as its
    first argument, a JobSelection."""

    @click.argument("ids", nargs=-1, metavar="[ID]...", shell_complete=completion.complete_jobs)
    @with_filter
    @click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
    @with_target
    @functools.wraps(command)
    def wrapped(
        target: CommandTarget,
        *,
        ids: tuple[str, ...],
        filter_options: FilterOptions,
        yes: bool,
        **options: Any,
    ) -> Any:
        return command(JobSelection(target, ids, filter_options, yes), **options)

    return wrapped


def _print_result(changed: BulkResult, missing: list[str]) -> None:
    print_json(
        {
            "changed": changed.ids,
            "unchanged": changed.unchanged_ids,
            "missing": missing,
            "moved": changed.moved,
        }
    )


def _result_sentence(changed: BulkResult, messages: ChangeMessages) -> str:
    text = f"{pluralize(changed.changed, 'job')} {messages.success_text}"
    if changed.unchanged:
        text += f", {pluralize(changed.unchanged, 'job')} {messages.failure_text}"
    if changed.moved:
        text += f", {pluralize(changed.moved, 'job')} no longer matched"
    return text


_LIVE_STATES = tuple(state for state in State if state in LIVE)
_IDLE_STATES = tuple(state for state in State if state is not State.RUNNING)
_PENDING_STATES = tuple(state for state in State if state in PENDING)
_MESSAGES = {
    messages.verb: messages
    for messages in (
        ChangeMessages("retry", "retried", "not ended yet", (State.FAILED,)),
        ChangeMessages("cancel", "cancelled", "already ended", _LIVE_STATES),
        ChangeMessages("run", "made ready", "not scheduled", (State.SCHEDULED,)),
        ChangeMessages("archive", "archived", "running or already ended", _PENDING_STATES),
        ChangeMessages("reprioritise", "reprioritised", "running or already ended", _PENDING_STATES),
        ChangeMessages("delete", "deleted", "running: cancel it first", _IDLE_STATES),
    )
}


@click.command()
@with_job_selection
def retry(selection: JobSelection) -> int:
    """Run finished jobs again, from their first attempt. A filter without --state selects failed jobs."""
    return selection.change(RetryJobs(), _MESSAGES["retry"])


@click.command()
@click.option("--reason", default="cancelled by hand", show_default=True, help="Stored with the job.")
@with_job_selection
def cancel(selection: JobSelection, reason: str) -> int:
    """Cancel jobs that have not finished. Running handlers receive a cancel request."""
    return selection.change(CancelJobs(reason), _MESSAGES["cancel"])


@click.command()
@with_job_selection
def run(selection: JobSelection) -> int:
    """Make scheduled jobs ready now."""
    return selection.change(RunJobsNow(), _MESSAGES["run"])


@click.command()
@click.option("--reason", default="archived by hand", show_default=True, help="Stored with the job.")
@with_job_selection
def archive(selection: JobSelection, reason: str) -> int:
    """Move jobs that have not started to the failed state: they stay searchable and can be retried."""
    return selection.change(ArchiveJobs(reason), _MESSAGES["archive"])


@click.command()
@click.argument("priority", type=WholeNumber(*PRIORITY_RANGE))
@with_job_selection
def reprioritise(selection: JobSelection, priority: int) -> int:
    """Set the priority of jobs that have not started; smaller runs first. Write -- before a negative
    number."""
    return selection.change(ReprioritiseJobs(priority), _MESSAGES["reprioritise"])


@click.command()
@with_job_selection
def delete(selection: JobSelection) -> int:
    """Delete jobs and their history. Running jobs are skipped."""
    return selection.change(DeleteJobs(), _MESSAGES["delete"])


CHANGE_COMMANDS = (retry, cancel, run, archive, reprioritise, delete)
