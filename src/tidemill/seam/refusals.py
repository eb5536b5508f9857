"""A request that is not handled, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`detail` is one sentence: what is wrong, and what to do. `field` is the part of the request it is
    about, None when it is about no single one."""

    title: str
    status: int
    detail: str
    type: str = "about:blank"
    field: str | None = None


Told = Callable[[Problem], Any]
"""How a route says no: the JSON value that is sent with the status of the problem."""


class Refused(Exception):
    """A request that is not handled, and why: `Refused(404, "there is no song 7")`. `headers` go with the
    answer, such as `retry-after`; `field` is the part of the request that is wrong."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        field: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.field = HTTPStatus(status), detail, field
        self.headers = dict(headers or {})
