"""Printing: sentences for people, JSON for programs."""

from __future__ import annotations

import codecs
import json
import re
import sys
from typing import Any

import click
import msgspec

from tidemill.core import terminal_text
from tidemill.core.numbers import format_bytes
from tidemill.core.terminal_text import one_line, printable_json
from tidemill.inspect.words import Times


def print_json(value: Any) -> None:
    _print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_json_line(value: Any) -> None:
    """One of several documents: what reads them line by line has each as soon as it is there."""
    _print(msgspec.json.encode(value).decode())


def _print(text: str) -> None:
    text = printable_json(text)
    click.echo(text if _is_utf8() else re.sub("[^\0-\x7f]", _escaped, text))


def _is_utf8() -> bool:
    return codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"


def _escaped(character: re.Match[str]) -> str:
    """Beyond ASCII there are only strings: as JSON writes them anywhere."""
    return json.dumps(character[0])[1:-1]


def echo(text: object = "", *, err: bool = False, bold: bool = False) -> None:
    """Every line of a command for people goes by here: nothing in it drives the terminal."""
    shown = printable(text)
    click.echo(click.style(shown, bold=True) if bold else shown, err=err)


def print_fields(fields: dict[str, object]) -> None:
    """One `name: value` per line; what is not known is left out."""
    width = max(map(len, fields), default=0) + 1
    for name, value in fields.items():
        if value is not None:
            echo(f"{name + ':':<{width}} {one_line(str(value))}")


def note(sentence: str) -> None:
    """For the person who looks on; never part of what a program reads."""
    echo(f"tidemill: {sentence}", err=True)


def printable(value: object) -> str:
    """Payloads, names and errors come from anywhere: without control characters they cannot
    drive the terminal they are shown in."""
    return "" if value is None else terminal_text.printable(str(value))


def size(count: int | None) -> str | None:
    return None if count is None else format_bytes(count)


def moment(wall: float | None) -> str:
    """As everywhere: on this machine's clock, with its offset."""
    return "" if wall is None else Times(wall, None).at(wall)
