"""Settings of an application from a file: the table `[applications.music]` of tidemill.toml."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, NamedTuple

from tidemill import ConfigurationError, Tidemill

_CREDENTIALS = re.compile(r"://(\S*@|\S*\?)")


class Table(NamedTuple):
    """`where` is what sentences call it: `tidemill.toml, applications.music`."""

    where: str
    values: Mapping[str, Any]

    def inner(self, name: str) -> Table:
        return Table(f"{self.where}.{name}", self.values.get(name, {}))

    def require(self, known: Iterable[str]) -> None:
        """That it is a table, and says nothing that nobody would read."""
        names = sorted(known)
        if not isinstance(self.values, Mapping):
            raise ConfigurationError(
                f"{self.where} must be a table; write [{self.where.rpartition(' ')[2]}] and its keys below"
            )
        for name in self.values:
            if name not in names:
                near = get_close_matches(name, names, 1)
                instead = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
                raise ConfigurationError(f"{self.where}: unknown key {name!r}; {instead}")

    def refuse_secret(self, name: str, variable: str, *, secret: bool) -> None:
        """Files are committed and copied."""
        value = self.values.get(name)
        if value is None or not (secret or (isinstance(value, str) and _CREDENTIALS.search(value))):
            return
        what = "is a secret" if secret else "holds a user name, a password or options"
        raise ConfigurationError(
            f"{self.where}.{name} {what}, and secrets come by the environment only; remove it from the file "
            f"and set {variable}"
        )

    def places(self, prefix: str) -> Iterator[tuple[str, str]]:
        """Each variable that a value stands here instead of, and what it is called."""
        for name, value in self.values.items():
            variable = f"{prefix}{name}".upper()
            if isinstance(value, Mapping):
                yield from self.inner(name).places(f"{variable}_")
            else:
                yield variable, f"{self.where}.{name}"


NOTHING = Table("", {})


def table(app: Tidemill, name: str) -> Table:
    file = app.settings.file
    where = "tidemill.toml" if file is None else file.name
    return Table(f"{where}, applications.{name}", app.settings.application(name))


@contextmanager
def naming(prefix: str, environment: Mapping[str, str], toml: Table) -> Iterator[None]:
    """Sentences about settings name variables. Those whose value stands in the file are called by their
    place there."""
    try:
        yield
    except ConfigurationError as error:
        sentence = str(error)
        for variable, place in toml.places(prefix):
            if not environment.get(variable, "").strip():
                sentence = re.sub(rf"\b{re.escape(variable)}\b", place, sentence)
        raise ConfigurationError(sentence) from None
