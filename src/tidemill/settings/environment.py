"""Settings from environment variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tidemill.errors import ConfigurationError
from tidemill.hints import close_to
from tidemill.settings.catalogue import CATALOGUE, NOT_SETTINGS, Setting, of_queue
from tidemill.settings.kinds import quoted

PREFIX = "TIDEMILL_"


def ours(environment: Mapping[str, str]) -> dict[str, str]:
    """What may concern us: the secrets of others are not kept."""
    shared = {name for setting in CATALOGUE.values() for name in setting.variables}
    return {name: text for name, text in environment.items() if name.startswith(PREFIX) or name in shared}


def from_environment(environment: Mapping[str, str], setting: Setting) -> tuple[Any, str] | None:
    """The value and its variable. An empty variable is as good as none: shells and compose files
    leave such behind."""
    for name in setting.variables:
        if text := environment.get(name):
            return _read(setting, name, text), f"environment {name}"
    return None


def _read(setting: Setting, variable: str, text: str) -> Any:
    try:
        return setting.kind.read_text(text)
    except ValueError:
        # Not the cause: it may quote more of the value than may be shown.
        raise ConfigurationError(
            f"environment {variable}: must be {setting.kind.as_text}, is {quoted(text)}"
        ) from None


class Ignored(NamedTuple):
    """What somebody set in vain; the `setting` is told by its name only."""

    setting: str
    why: str

    def __str__(self) -> str:
        return f"{self.setting} is set and {self.why}"


def unread(environment: Mapping[str, str], queues: Iterable[str]) -> list[Ignored]:
    """The TIDEMILL_ variables that nobody reads."""
    settings = [*CATALOGUE.values(), *(its for queue in queues for its in of_queue(queue).values())]
    known = [*NOT_SETTINGS, *(name for setting in settings for name in setting.variables)]
    strangers = sorted(n for n in environment if n.startswith(PREFIX) and n not in known)
    return [Ignored(name, f"nobody reads it; {_instead(name, known)}") for name in strangers]


def _instead(name: str, known: list[str]) -> str:
    if near := close_to(name, known):
        return f"did you mean {near[0]}?"
    if name.startswith("TIDEMILL_QUEUES_"):
        return "no queue of that name is declared, or queues have no such setting"
    return "docs/reference/settings.md lists the variables there are"
