"""Who may do what."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Role(StrEnum):
    """Each may do what those before it may. `ANYBODY` is for what must answer without a sign-in: whether the
    server is well, the sign-in itself, and the style sheet it is drawn with."""

    ANYBODY = "anybody"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def may(self, needed: Role) -> bool:
        return _ORDER.index(self) >= _ORDER.index(needed)


_ORDER = tuple(Role)


class Who(msgspec.Struct, frozen=True):
    """Who asks: `name` is written into the audit log and beside overrides. `token` is the id of the token
    that was shown, or that the session was begun with; None when somebody else vouches for them."""

    name: str
    role: Role
    token: str | None = None


NOBODY = Who("nobody", Role.ANYBODY)
