"""`tidemill enqueue`: send a job, or many from a file."""

from __future__ import annotations

import sys
from typing import Any

import click

from tidemill.app import Tidemill
from tidemill.cli import complete, times, waiting
from tidemill.cli.application import load, required
from tidemill.cli.nearest import instead_of
from tidemill.cli.output import echo, note, print_json
from tidemill.cli.payloads import from_words
from tidemill.cli.secrets import Redaction, with_secrets
from tidemill.cli.sending import send_file
from tidemill.cli.target import Target, with_application
from tidemill.client.task import Task
from tidemill.core.uniqueness import Unique
from tidemill.tasks.written import Arguments, checked


@click.command()
@click.argument("task", shell_complete=complete.tasks)
@click.argument("words", metavar="[NAME=VALUE]...", nargs=-1, shell_complete=complete.arguments)
@click.option("--payload", metavar="JSON", help="The arguments as one JSON object; - reads it from stdin.")
@click.option(
    "--from", "file", metavar="FILE", help="A file with a JSON object on each line, a job each; - is stdin."
)
@click.option(
    "--queue", metavar="NAME", shell_complete=complete.queues, help="Another queue than the task's own."
)
@click.option("--priority", type=int, help="Smaller runs first. Default: the task's, usually 5.")
@click.option("--delay", callback=times.duration, metavar="DURATION", help="Not before … from now (10m, 2h).")
@click.option("--at", callback=times.moment, metavar="TIME", help="Not before this time: 2026-05-01T08:00.")
@click.option(
    "--expires",
    callback=times.duration,
    metavar="DURATION",
    help="Cancelled when it has not started by then (1h).",
)
@click.option("--key", help="Jobs with the same key share a lane.")
@click.option("--tag", "tags", multiple=True, help="A word to find it by; may be repeated.")
@click.option("--unique", help="Send nothing while a job with this unique key is there.")
@click.option("--id", help="An id of your own: sent twice, the job exists once.")
@click.option(
    "--wait",
    callback=waiting.patience,
    is_flag=False,
    flag_value=waiting.FOREVER,
    metavar="[DURATION]",
    help="Wait for the result and print it. Exit code 1 when the job fails.",
)
@with_application
@with_secrets
def enqueue(
    target: Target,
    *,
    redaction: Redaction,
    task: str,
    words: tuple[str, ...],
    payload: str | None,
    file: str | None,
    wait: float | None,
    **options: Any,
) -> int:
    """Send a job, or many from a file.

    Arguments are written name=value. A value is JSON where it parses as JSON (count=3, all=true,
    tags='["a"]'), and text otherwise (to=ann@example.org); a parameter annotated as str takes a number
    as text.
    """
    _refuse_mixtures(words, payload, file, wait, options)
    app = load(required(target.app))
    chosen = task_of(app, task).using(**_given(options))
    _mind_queue(app, options["queue"])
    if file is not None:
        return send_file(target, app, chosen, file)
    arguments = _arguments(chosen, words, payload)
    return target.run_and_make(
        lambda app: _send(app, chosen, arguments, wait, target, redaction), app, declare=True
    )


def _refuse_mixtures(
    words: tuple[str, ...],
    payload: str | None,
    file: str | None,
    wait: float | None,
    options: dict[str, Any],
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


def task_of(app: Tidemill, name: str) -> Task[..., Any]:
    if name not in app.tasks:
        raise click.UsageError(f"task: the application has no {name!r}; {instead_of(name, app.tasks)}")
    return Task(app.client, app.tasks[name])


def _given(options: dict[str, Any]) -> Any:
    given = {name: value for name, value in options.items() if value not in (None, ())}
    if "unique" in given:
        given["unique"] = Unique(given["unique"])
    return given


def _mind_queue(app: Tidemill, queue: str | None) -> None:
    known = {*app.queues, *(task.queue for task in app.tasks.values())}
    if queue is not None and queue not in known:
        said = f"the application neither declares queue {queue!r} nor has a task on it"
        note(f"{said}; {instead_of(queue, known)}")


def _arguments(task: Task[..., Any], words: tuple[str, ...], payload: str | None) -> Arguments:
    if payload is None:
        return from_words(task.definition, words)
    return checked(task.definition, sys.stdin.buffer.read() if payload == "-" else payload.encode())


async def _send(  # noqa: PLR0917 - what the command was given
    app: Tidemill,
    task: Task[..., Any],
    arguments: Arguments,
    wait: float | None,
    target: Target,
    redaction: Redaction,
) -> int:
    positional, named = arguments
    handle = await task.enqueue(*positional, **named)
    there = " was there already, with the same unique key or id" if handle.existing else ""
    if wait is not None:
        note(f"waiting for {handle.id}{there and ', which'}{there}")
        return await waiting.wait_for(
            app, handle, wait, remedy=target.worker_command(), as_json=target.json, redaction=redaction
        )
    if target.json:
        print_json({"id": handle.id, "existing": handle.existing})
    else:
        echo(f"{handle.id}{there}")
    return 0
