"""Prints text, fields and JSON, and suggests names for a mistyped one."""

from __future__ import annotations

import codecs
import json
import re
import sys
from collections.abc import Iterable
from typing import Any

import click
import msgspec

from tidemill.core import redaction
from tidemill.core.redaction import escape_json_controls, escape_newlines
from tidemill.core.validation import close_matches, format_bytes
from tidemill.inspect.formatting import TimeFormatter

MAX_NAMES_LISTED = 20
"""A longer list would hide the message."""


def suggest_names(name: str, known: Iterable[str], *, shown: int = MAX_NAMES_LISTED) -> str:
    """Returns the end of an error message about the unknown `name`: `did you mean …? there are …`. At most
    `shown` of the `known` names are listed."""
    names = sorted(known)
    if not names:
        return "there are none yet"
    last = [full for full in names if full.replace(":", ".").rpartition(".")[2] == name]
    near = last or close_matches(name, names, most=3)
    suggestion = f"did you mean {' or '.join(near)}? " if near else ""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return f"{suggestion}there are {', '.join(names[:shown])}{more}"


def print_json(value: Any) -> None:
    _print_document(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_json_line(value: Any) -> None:
    """Prints `value` as JSON on one line, so that a program can read each value as it arrives."""
    _print_document(msgspec.json.encode(value).decode())


def _print_document(text: str) -> None:
    text = escape_json_controls(text)
    click.echo(text if _is_utf8() else re.sub("[^\0-\x7f]", _escape_as_json, text))


def _is_utf8() -> bool:
    return codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"


def _escape_as_json(character: re.Match[str]) -> str:
    """Returns one non-ASCII character as a JSON escape."""
    return json.dumps(character[0])[1:-1]  # in JSON such a character is always inside a string


def echo(text: object = "", *, err: bool = False, bold: bool = False) -> None:
    """Prints a line of text for people, without control characters. `err=True`: prints to stderr."""
    shown = printable(text)
    click.echo(click.style(shown, bold=True) if bold else shown, err=err)


def print_fields(fields: dict[str, object]) -> None:
    """Prints one `name: value` per line; None is left out."""
    width = max(map(len, fields), default=0) + 1
    for name, value in fields.items():
        if value is not None:
            echo(f"{name + ':':<{width}} {escape_newlines(str(value))}")


def note(sentence: str) -> None:
    """Prints a note to stderr, where it is not part of the output that programs read."""
    echo(f"tidemill: {sentence}", err=True)


def printable(value: object) -> str:
    """Returns `value` as text without control characters, so that payloads, names and errors cannot control
    the terminal. None gives an empty text."""
    return "" if value is None else redaction.strip_controls(str(value))


def format_size(count: int | None) -> str | None:
    return None if count is None else format_bytes(count)


def format_time(wall: float | None) -> str:
    """Returns a wall time as text in the machine's time zone, with its offset. None gives an empty text."""
    return "" if wall is None else TimeFormatter(wall, None).clock_time(wall)
