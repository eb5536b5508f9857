"""A setting of an application's own, which a person may change while it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from tidemill.errors import ConfigurationError

Read = Callable[[], Awaitable[Any]]
Write = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True)
class OwnSetting:
    """Where it is kept is the application's affair: it is asked by `read`, and told by `write`."""

    name: str
    type: Any
    says: str
    read: Read
    write: Write

    def value_of(self, given: Any) -> Any:
        """As typed into a form, or sent as JSON. Raises ConfigurationError."""
        try:
            return msgspec.convert(given, self.type, strict=not isinstance(given, str))
        except msgspec.ValidationError as error:
            sentence = str(error)
            raise ConfigurationError(
                f"{self.name}: {sentence[:1].lower()}{sentence[1:]}; {self.says}"
            ) from None
