"""What the commands that change jobs have in common: by ids, or by a filter with a count to confirm."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from tidemill.app import Tidemill
from tidemill.cli import complete
from tidemill.cli.asking import agreed
from tidemill.cli.filtering import Wanted, with_filter
from tidemill.cli.naming import full_ids, no_such
from tidemill.cli.output import echo, note, print_json
from tidemill.cli.progress import counted
from tidemill.cli.target import Target, with_target
from tidemill.core.changes import Change
from tidemill.core.filters import Filter
from tidemill.core.states import State
from tidemill.inspect.views import Changed
from tidemill.inspect.words import plural


@dataclass(frozen=True)
class Words:
    """How a change is spoken of, and the `states` a filter means when it names none."""

    verb: str
    did: str
    could_not: str
    states: tuple[State, ...]


@dataclass(frozen=True)
class Meant:
    """Which jobs a command was told to change."""

    target: Target
    ids: tuple[str, ...]
    wanted: Wanted
    yes: bool

    def change(self, change: Change, words: Words) -> int:
        if self.ids and self.wanted.says_something():
            raise click.UsageError("name jobs by their ids or by a filter, not by both")
        if self.ids:
            return self._by_ids(change, words)
        if self.wanted.says_something():
            return self._by_filter(change, words)
        raise click.UsageError("say which jobs: their ids, or a filter such as --queue mail --state failed")

    def _by_ids(self, change: Change, words: Words) -> int:
        async def name_and_change(app: Tidemill) -> tuple[list[str], Changed]:
            ids = await full_ids(app, self.ids)
            return ids, await app.inspect.change(Filter(ids=tuple(ids)), change)

        ids, changed = self.target.run(name_and_change)
        met = {*changed.ids, *changed.unchanged_ids}
        missing = [id_ for id_ in dict.fromkeys(ids) if id_ not in met]
        if self.target.json:
            _print(changed, missing)
        else:
            for id_ in changed.ids:
                echo(f"{id_} {words.did}")
            for id_ in changed.unchanged_ids:
                echo(f"{id_} {words.could_not}")
        if missing:
            note(no_such(missing))
        elif not changed.changed:
            note("nothing was changed")  # of each job it was said why
        return 1 if missing or not changed.changed else 0

    def _by_filter(self, change: Change, words: Words) -> int:
        async def count(app: Tidemill) -> tuple[Filter, int]:
            meant = await self.wanted.filter(app, words.states)
            return meant, (await app.inspect.count(meant, looks=None)).jobs

        meant, matching = self.target.run(count)
        if not matching:
            states = "" if self.wanted.states else f" in a state it applies to ({', '.join(words.states)})"
            note(f"nothing to {words.verb}: no job matches the filter{states}")
            if self.target.json:
                _print(Changed(changed=0, unchanged=0, moved=0, ids=(), unchanged_ids=()), [])
            return 1
        if not self._agreed(matching, words.verb):
            note("nothing was changed")
            return 1
        with counted(words.did, matching) as progress:
            changed = self.target.run(lambda app: app.inspect.change(meant, change, progress=progress))
        if self.target.json:
            _print(changed, [])
        else:
            echo(_sentence(changed, words))
        return 0 if changed.changed else 1

    def _agreed(self, matching: int, verb: str) -> bool:
        if self.yes:
            return True
        if not sys.stdin.isatty():
            says = "job matches" if matching == 1 else "jobs match"
            raise click.UsageError(
                f"{matching} {says}, and there is no terminal to ask on: add --yes to {verb} "
                f"{'it' if matching == 1 else 'them'} without being asked"
            )
        return agreed(f"{verb} {plural(matching, 'job')}?")


def changes_jobs(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the arguments and options; the command gets them as one `meant`."""

    @click.argument("ids", nargs=-1, metavar="[ID]...", shell_complete=complete.jobs)
    @with_filter
    @click.option("--yes", is_flag=True, help="Do not ask, however many jobs the filter means.")
    @with_target
    @functools.wraps(command)
    def wrapped(target: Target, *, ids: tuple[str, ...], wanted: Wanted, yes: bool, **options: Any) -> Any:
        return command(Meant(target, ids, wanted, yes), **options)

    return wrapped


def _print(changed: Changed, missing: list[str]) -> None:
    print_json(
        {
            "changed": changed.ids,
            "unchanged": changed.unchanged_ids,
            "missing": missing,
            "moved": changed.moved,
        }
    )


def _sentence(changed: Changed, words: Words) -> str:
    said = f"{plural(changed.changed, 'job')} {words.did}"
    if changed.unchanged:
        said += f", {plural(changed.unchanged, 'job')} {words.could_not}"
    if changed.moved:
        said += f", {plural(changed.moved, 'job')} no longer matched"
    return said
