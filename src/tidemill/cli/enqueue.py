"""`tidemill enqueue`: enqueues one job or a file of jobs, and can wait for the result."""

from __future__ import annotations

import math
import sys
from typing import Any

import click

from tidemill.app import Tidemill
from tidemill.cli import completion, options
from tidemill.cli import options as cli_options
from tidemill.cli.application_loader import load_application, require_spec
from tidemill.cli.job_input import enqueue_file, find_task, parse_words
from tidemill.cli.job_view import job_data
from tidemill.cli.output import echo, note, print_json, suggest_names
from tidemill.cli.store_options import CommandTarget, Redaction, with_application, with_secrets
from tidemill.client.job_handle import JobHandle
from tidemill.client.task import Task
from tidemill.core.unique_keys import Unique
from tidemill.errors import JobCancelled, JobFailed, ResultTimeout
from tidemill.inspect.causes import CauseCode
from tidemill.tasks.definition import TaskArguments, decode_json_arguments

WAIT_FOREVER = "forever"


def parse_wait(ctx: click.Context, option: click.Parameter, value: str | None) -> float | None:
    """Returns the seconds given with `--wait`. Infinite if `--wait` has no duration, None if it is not
    given."""
    if value == WAIT_FOREVER:
        return math.inf
    try:
        return options.parse_duration_option(ctx, option, value)
    except click.BadParameter as error:
        raise click.BadParameter(f"{error.message}; without a time, write --wait last") from None


async def wait_for_result(
    app: Tidemill,
    handle: JobHandle[Any],
    max_wait: float,
    *,
    remedy: str,
    as_json: bool,
    redaction: Redaction,
) -> int:
    """Waits for the job's result and prints it. Returns the exit code: 0 if the job succeeded, else 1.

    - `max_wait`: in seconds; may be infinite
    - `remedy`: the command that starts a worker"""
    if blockers := await _blocking_causes(app, handle.id, remedy):
        note(blockers)
    problem: str | None = None
    try:
        await handle.result(None if max_wait == math.inf else max_wait)
    except ResultTimeout as error:
        problem = f"{error}. {await _blocking_causes(app, handle.id, remedy)}".strip()
    except (JobFailed, JobCancelled) as error:
        problem = str(error)
    job = await app.job(handle.id).status()
    data = job_data(redaction.job(app, job))
    if as_json:
        print_json(data | {"existing": handle.existing})
    elif problem is None:
        echo(bytes(data["result"] or b"null").decode())
    if problem is not None:
        note(redaction.text(app, problem, job))
    return 0 if problem is None else 1


async def _blocking_causes(app: Tidemill, job: str, remedy: str) -> str:
    causes = (await app.inspect.explain(job)).causes
    sentences = [cause.sentence for cause in causes if cause.code in _BLOCKING_CODES]
    if any(cause.code is CauseCode.NO_WORKER for cause in causes):
        sentences.append(f"Such as: {remedy}")
    return " ".join(sentences)


_BLOCKING_CODES = frozenset(
    {CauseCode.EXPIRED, CauseCode.PAUSED, CauseCode.NO_WORKER, CauseCode.UNKNOWN_TASK, CauseCode.SCHEDULED}
)
"""Causes that a longer wait does not resolve."""


@click.command()
@click.argument("task", shell_complete=completion.complete_tasks)
@click.argument("words", metavar="[NAME=VALUE]...", nargs=-1, shell_complete=completion.complete_arguments)
@click.option("--payload", metavar="JSON", help="The arguments as one JSON object; - reads stdin.")
@click.option(
    "--from", "file", metavar="FILE", help="A file with one JSON object per line, each a job; - reads stdin."
)
@click.option(
    "--queue",
    metavar="NAME",
    shell_complete=completion.complete_queues,
    help="The queue. Default: the task's queue.",
)
@click.option("--priority", type=int, help="Smaller runs first. Default: the task's, usually 5.")
@click.option(
    "--delay",
    callback=cli_options.parse_duration_option,
    metavar="DURATION",
    help="Start this long from now, at the earliest (10m, 2h).",
)
@click.option(
    "--at",
    callback=cli_options.parse_time,
    metavar="TIME",
    help="Start at this time, at the earliest: 2026-05-01T08:00.",
)
@click.option(
    "--expires",
    callback=cli_options.parse_duration_option,
    metavar="DURATION",
    help="Cancel the job if it has not started within this time (1h).",
)
@click.option("--key", help="Jobs with the same key share a lane.")
@click.option("--tag", "tags", multiple=True, help="A tag to find the job by; may be repeated.")
@click.option("--unique", help="Do not enqueue if a job with this unique key exists.")
@click.option("--id", help="The job's id. Enqueueing the same id twice creates one job.")
@click.option(
    "--wait",
    callback=parse_wait,
    is_flag=False,
    flag_value=WAIT_FOREVER,
    metavar="[DURATION]",
    help="Wait for the result and print it. Exit code 1 if the job fails.",
)
@with_application
@with_secrets
def enqueue(
    target: CommandTarget,
    *,
    redaction: Redaction,
    task: str,
    words: tuple[str, ...],
    payload: str | None,
    file: str | None,
    wait: float | None,
    **options: Any,
) -> int:
    """Enqueue a job, or a file of jobs.

    Write arguments as name=value. A value that parses as JSON is JSON (count=3, all=true, tags='["a"]'),
    any other value is text (to=ann@example.org). A parameter annotated as str accepts a number as text."""
    _refuse_conflicts(words, payload, file, wait, options)
    app = load_application(require_spec(target.app))
    chosen = find_task(app, task).using(**_job_options(options))
    _note_unknown_queue(app, options["queue"])
    if file is not None:
        return enqueue_file(target, app, chosen, file)
    arguments = _read_arguments(chosen, words, payload)
    return target.run_or_create(
        lambda app: _enqueue(app, chosen, arguments, wait, target, redaction), app, declare=True
    )


def _refuse_conflicts(
    words: tuple[str, ...], payload: str | None, file: str | None, wait: float | None, options: dict[str, Any]
) -> None:
    if bool(words) + (payload is not None) + (file is not None) > 1:
        raise click.UsageError("give the arguments once: as name=value, with --payload, or with --from")
    if options["delay"] is not None and options["at"] is not None:
        raise click.UsageError("give either --delay or --at, not both")
    if file is not None:
        for name, value in (("--id", options["id"]), ("--unique", options["unique"]), ("--wait", wait)):
            if value is not None:
                raise click.UsageError(
                    f"{name} is about one job, and --from sends many: leave one of them out"
                )


def _job_options(options: dict[str, Any]) -> Any:
    job_options = {name: value for name, value in options.items() if value not in (None, ())}
    if "unique" in job_options:
        job_options["unique"] = Unique(job_options["unique"])
    return job_options


def _note_unknown_queue(app: Tidemill, queue: str | None) -> None:
    known = {*app.queues, *(task.queue for task in app.tasks.values())}
    if queue is not None and queue not in known:
        message = f"the application neither declares queue {queue!r} nor has a task on it"
        note(f"{message}; {suggest_names(queue, known)}")


def _read_arguments(task: Task[..., Any], words: tuple[str, ...], payload: str | None) -> TaskArguments:
    if payload is None:
        return parse_words(task.definition, words)
    return decode_json_arguments(
        task.definition, sys.stdin.buffer.read() if payload == "-" else payload.encode()
    )


async def _enqueue(  # noqa: PLR0917 - the options of the command
    app: Tidemill,
    task: Task[..., Any],
    arguments: TaskArguments,
    wait: float | None,
    target: CommandTarget,
    redaction: Redaction,
) -> int:
    positional, named = arguments
    handle = await task.enqueue(*positional, **named)
    suffix = " was there already, with the same unique key or id" if handle.existing else ""
    if wait is not None:
        note(f"waiting for {handle.id}{suffix and ', which'}{suffix}")
        return await wait_for_result(
            app, handle, wait, remedy=target.worker_command(), as_json=target.json, redaction=redaction
        )
    if target.json:
        print_json({"id": handle.id, "existing": handle.existing})
    else:
        echo(f"{handle.id}{suffix}")
    return 0
