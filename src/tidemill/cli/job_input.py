"""Parses task arguments from NAME=VALUE words, JSON and files, and enqueues the jobs of a file."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import sys
import tempfile
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

import click
import msgspec

from tidemill.app import Tidemill
from tidemill.cli.output import echo, note, print_json, suggest_names
from tidemill.cli.store_options import CommandTarget
from tidemill.cli.terminal import count_progress
from tidemill.client.task import Task
from tidemill.errors import InvalidPayload, StoreError, TidemillError
from tidemill.inspect.formatting import pluralize
from tidemill.tasks.definition import (
    TaskArguments,
    TaskDefinition,
    decode_json_arguments,
    describe_parameters,
)


def parse_words(task: TaskDefinition, words: Sequence[str]) -> TaskArguments:
    """Returns the task's arguments from words of the form `name=value`. A value that parses as JSON is JSON,
    any other value is text."""
    hints = task.payload.hints
    payload: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise click.UsageError(f"{word!r} is not of the form name=value; {describe_parameters(task)}")
        if name in payload:
            raise click.UsageError(f"{name!r} is given twice")
        payload[name] = _parse_value(value, hints.get(name, Any))
    return decode_json_arguments(task, msgspec.json.encode(payload))


def parse_lines(task: TaskDefinition, lines: IO[bytes]) -> Iterator[tuple[int, TaskArguments]]:
    """Yields the number and the task arguments of each line; a line is one JSON object. Empty lines are
    skipped. Raises InvalidPayload with the line's number."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield number, decode_json_arguments(task, line)
        except InvalidPayload as error:
            raise InvalidPayload(f"line {number}: {error}") from None


def _parse_value(text: str, type_: Any) -> Any:
    """Returns the value of one `name=value` word. `type_` is the parameter's type.

    JSON is kept as typed, so 1.10 stays 1.10. A number for a str parameter becomes text, as in
    `phone=123`."""
    raw = msgspec.Raw(text.encode(errors="surrogateescape"))
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError):
        return text
    is_plain = value is None or isinstance(value, bool | int | float)
    as_text = is_plain and not _matches_type(raw, type_) and _matches_type(msgspec.json.encode(text), type_)
    return text if as_text else raw


def _matches_type(value: bytes | msgspec.Raw, type_: Any) -> bool:
    try:
        msgspec.json.decode(value, type=type_)
    except msgspec.DecodeError:
        return False
    except TypeError:  # not a type that msgspec knows: the payload's codec decides
        return True
    return True


T = TypeVar("T")

JOBS_PER_INSERT = 1000


def enqueue_file(target: CommandTarget, app: Tidemill, task: Task[..., Any], file: str) -> int:
    with _open_seekable(file) as lines:
        total = _count_lines(task, lines)
        lines.seek(0)
        sent, existing = target.run_or_create(
            lambda app: _enqueue_lines(app, task, lines, total), app, declare=True
        )
    if target.json:
        print_json({"sent": sent, "existing": existing})
    else:
        suffix = f", {existing} of them were there already" if existing else ""
        echo(f"{pluralize(sent, 'job')} sent{suffix}")
    return 0


@contextmanager
def _open_seekable(file: str) -> Iterator[IO[bytes]]:
    """Opens `file` so that it can be read twice; `-` is stdin. Input that cannot seek, such as a pipe, is
    first copied to a temporary file."""
    try:
        source = sys.stdin.buffer if file == "-" else Path(file).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise click.UsageError(f"--from: {file} cannot be read: {error.strerror}") from None
    with source, tempfile.TemporaryFile() as copy:
        if source.seekable():
            yield source
        else:
            shutil.copyfileobj(source, copy)
            copy.seek(0)
            yield copy


def _count_lines(task: Task[..., Any], lines: IO[bytes]) -> int:
    """Returns the number of jobs in the file, and checks every line. An invalid line stops the command before
    anything is enqueued."""
    total = 0
    with count_progress("checking", None) as on_progress:
        for total, _ in enumerate(parse_lines(task.definition, lines), start=1):
            if total % JOBS_PER_INSERT == 0:
                on_progress(total)
    if not total:
        raise click.UsageError("--from: there is nothing in it; write a JSON object on each line")
    return total


async def _enqueue_lines(
    app: Tidemill, task: Task[..., Any], lines: IO[bytes], total: int
) -> tuple[int, int]:
    sent = existing = 0
    payloads = parse_lines(task.definition, lines)
    with count_progress("sending", total) as on_progress:
        while chunk := list(itertools.islice(payloads, JOBS_PER_INSERT)):
            jobs = [task.job(*args, **named) for _, (args, named) in chunk]
            try:
                handles, interrupted = await _finish_despite_interrupt(app.enqueue_many(jobs))
            except TidemillError as error:
                raise type(error)(_refusal_message(error, sent, total, chunk[0][0])) from None
            sent += len(handles)
            existing += sum(handle.existing for handle in handles)
            on_progress(sent)
            if interrupted:
                note(f"go on from line {chunk[-1][0] + 1}")
                raise asyncio.CancelledError
    return sent, existing


async def _finish_despite_interrupt(step: Coroutine[Any, Any, T]) -> tuple[T, bool]:
    """Returns the result of the coroutine `step`, and True if the user interrupted the command. `step` always
    runs to its end."""
    task = asyncio.create_task(step)
    try:
        return await asyncio.shield(task), False
    except asyncio.CancelledError:
        return await task, True


def _refusal_message(error: TidemillError, sent: int, total: int, line: int) -> str:
    """Returns the error message for a file of which only the first lines were enqueued. It names `line`, the
    first line that was not enqueued."""
    why = str(error).partition(". Of this enqueue_many")[0]
    unsure = (
        f"; the next {JOBS_PER_INSERT} may have been too, look before"
        if isinstance(error, StoreError)
        else ""
    )
    # Sending the earlier lines again would create their jobs twice.
    return f"{why}. {pluralize(sent, 'job')} of {total} were sent before{unsure}: go on from line {line}"


def find_task(app: Tidemill, name: str) -> Task[..., Any]:
    if name not in app.tasks:
        raise click.UsageError(f"task: the application has no {name!r}; {suggest_names(name, app.tasks)}")
    return Task(app.client, app.tasks[name])
