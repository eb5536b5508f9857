"""What the server looks for in records, so that most of those that are not meant stay there."""

from __future__ import annotations

import msgspec

from tidemill.core.filters import Filter
from tidemill.core.matching import as_json_text, folded, part_of_payload
from tidemill.core.states import State
from tidemill.stores.redis.records import LETTERS
from tidemill.stores.redis.wire import Argument


def sieve(wanted: Filter) -> list[Argument]:
    """As `lua/parts/sieve.lua` reads it."""
    letters = b"".join(LETTERS[State(state)] for state in wanted.states or ())
    text = wanted.text or ""
    words = _words(wanted)
    return [
        letters,
        wanted.queue or "",
        *_times(wanted),
        folded(as_json_text(text)),
        folded(text),
        len(words),
        *words,
        *(part_of_payload(*field) for field in wanted.fields),
    ]


def _times(wanted: Filter) -> list[Argument]:
    """When a job finished stands too far inside its record."""
    since, until = ("" if at is None else repr(float(at)) for at in (wanted.since, wanted.until))
    if wanted.time == "finished" or not (since or until):
        return ["", "", ""]
    return [wanted.time, since, until]


def _words(wanted: Filter) -> list[str]:
    """A lane is its key, or begins with it where there are pools."""
    found = [] if wanted.task is None else [wanted.task]
    if wanted.key:
        found.append(f'"lane":"{as_json_text(wanted.key)}')
    if wanted.tag is not None:
        found.append(msgspec.json.encode(wanted.tag).decode())
    return found
