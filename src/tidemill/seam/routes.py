"""A route: who may call it, what it takes, what it answers, and what it says of itself."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tidemill.errors import ConfigurationError
from tidemill.seam.answers import Events
from tidemill.seam.refusals import Told
from tidemill.seam.roles import Role

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Handler = Callable[[Any], Awaitable[Any]]
"""Of one `tidemill.web.Asked`."""

_PATH = re.compile(r"(/([\w.-]+|\{[a-z_]+(:path)?\}))+|/")


def _nothing(_answer: Any) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, kw_only=True)
class Route:
    """`role` has no default: nothing is open because somebody forgot. `takes` is the type of the body, JSON
    in the API and a form on pages; `query` a struct of what may follow the question mark. `answers` is the
    type of what is sent, `Events` of a stream; `status` its code. `audited` is False for a write that changes
    nothing, such as a plan, and for the signing in that tells of itself; a function of the body where that
    depends on it. `headers` are those it reads, with what each says. `made` is what of its answer the audit
    log names beside what was asked for: the id of a job that was made, never a secret. `problem` is how an
    API with a form of its own says no; without it that is a problem document."""

    method: Method
    path: str
    role: Role
    handler: Handler
    says: str
    takes: Any = None
    query: Any = None
    answers: Any = None
    status: int = 200
    audited: bool | Callable[[Any], bool] = True
    headers: Mapping[str, str] = field(default_factory=dict)
    made: Callable[[Any], Mapping[str, Any]] = _nothing
    problem: Told | None = None

    def __post_init__(self) -> None:
        if _PATH.fullmatch(self.path) is None:
            raise ConfigurationError(
                f"path: must be like /songs/{{song}}, is {self.path!r}; a parameter is lower-case letters"
            )
        if not isinstance(self.role, Role):
            raise ConfigurationError(
                f"role: must be a Role of {self.method} {self.path}, is {self.role!r}; there are "
                f"{', '.join(Role)}"
            )

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(re.findall(r"\{([a-z_]+)(?::path)?\}", self.path))

    def is_for_the_log(self, body: Any) -> bool:
        """Whether what was done with that body is written into the audit log."""
        return self.writes and (self.audited(body) if callable(self.audited) else self.audited)

    @property
    def writes(self) -> bool:
        return self.method != "GET"

    @property
    def streams(self) -> bool:
        """Whether it may be followed by WebSocket, too."""
        return self.method == "GET" and self.answers is Events
