"""Questions. Whoever does not answer is told that nothing was done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from tidemill.cli.output import echo, note


def agreed(question: str) -> bool:
    with _told():
        return click.confirm(question, err=True)


def typed(question: str) -> str:
    with _told():
        answer: str = click.prompt(question, err=True)
        return answer


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except click.Abort:  # Ctrl-C, or the end of the input
        echo(err=True)
        note("nothing was changed")
        raise
