"""What `set` and `unset` have in common, whatever it is that they override."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click

from tidemill.cli.nearest import instead_of
from tidemill.cli.output import note, print_json
from tidemill.cli.target import Target


def assignments(
    words: Sequence[str], known: Iterable[str], *, of: str, example: str
) -> Iterator[tuple[str, str]]:
    """(setting, value) of each SETTING=VALUE."""
    seen: set[str] = set()
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise click.UsageError(f"{word!r} is not SETTING=VALUE, such as {example}")
        refuse_unknown([name], known, of=of)
        if name in seen:
            raise click.UsageError(f"{name} is given twice")
        seen.add(name)
        yield name, text


def refuse_unknown(names: Sequence[str], known: Iterable[str], *, of: str) -> None:
    for name in names:
        if name not in known:
            raise click.UsageError(f"{of} have no setting {name!r}; {instead_of(name, known)}")


def tell_unset(
    target: Target, what: str, view: Any, *, names: Sequence[str], held: Mapping[str, Any]
) -> bool:
    """Whether anything was, of all that was `held` or of the `names` only. `what`: such as queue 'feeds'."""
    if target.json:
        print_json(view)
    if held and (not names or set(names) & set(held)):
        return True
    note(f"nothing was changed: of {what} {', '.join(held) or 'nothing'} is overridden")
    return False
