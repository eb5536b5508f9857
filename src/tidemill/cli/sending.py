"""Many jobs from a file: every line is checked before the first job is sent."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import sys
import tempfile
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

import click

from tidemill.app import Tidemill
from tidemill.cli.output import echo, note, print_json
from tidemill.cli.payloads import from_lines
from tidemill.cli.progress import counted
from tidemill.cli.target import Target
from tidemill.client.task import Task
from tidemill.errors import StoreError, TidemillError
from tidemill.inspect.words import plural

T = TypeVar("T")

AT_ONCE = 1000


def send_file(target: Target, app: Tidemill, task: Task[..., Any], file: str) -> int:
    with _opened(file) as lines:
        total = _check(task, lines)
        lines.seek(0)
        sent, existing = target.run_and_make(lambda app: _send(app, task, lines, total), app, declare=True)
    if target.json:
        print_json({"sent": sent, "existing": existing})
    else:
        there = f", {existing} of them were there already" if existing else ""
        echo(f"{plural(sent, 'job')} sent{there}")
    return 0


@contextmanager
def _opened(file: str) -> Iterator[IO[bytes]]:
    """Readable twice, wherever it comes from."""
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


def _check(task: Task[..., Any], lines: IO[bytes]) -> int:
    """How many there are; a bad one stops everything while nothing is sent yet."""
    total = 0
    with counted("checking", None) as checked:
        for total, _ in enumerate(from_lines(task.definition, lines), start=1):
            if total % AT_ONCE == 0:
                checked(total)
    if not total:
        raise click.UsageError("--from: there is nothing in it; write a JSON object on each line")
    return total


async def _send(app: Tidemill, task: Task[..., Any], lines: IO[bytes], total: int) -> tuple[int, int]:
    sent = existing = 0
    payloads = from_lines(task.definition, lines)
    with counted("sending", total) as done:
        while chunk := list(itertools.islice(payloads, AT_ONCE)):
            jobs = [task.job(*args, **named) for _, (args, named) in chunk]
            try:
                handles, interrupted = await _whole(app.enqueue_many(jobs))
            except TidemillError as error:
                raise type(error)(_refused(error, sent, total, chunk[0][0])) from None
            sent += len(handles)
            existing += sum(handle.existing for handle in handles)
            done(sent)
            if interrupted:
                note(f"go on from line {chunk[-1][0] + 1}")
                raise asyncio.CancelledError
    return sent, existing


async def _whole(step: Coroutine[Any, Any, T]) -> tuple[T, bool]:
    """An interruption waits for what is on its way: only then it is known from where to go on."""
    task = asyncio.create_task(step)
    try:
        return await asyncio.shield(task), False
    except asyncio.CancelledError:
        return await task, True


def _refused(error: TidemillError, sent: int, total: int, line: int) -> str:
    """Lines that are sent again become other jobs, so it is told from where to go on."""
    why = str(error).partition(". Of this enqueue_many")[0]
    unsure = f"; the next {AT_ONCE} may have been too, look before" if isinstance(error, StoreError) else ""
    return f"{why}. {plural(sent, 'job')} of {total} were sent before{unsure}: go on from line {line}"
