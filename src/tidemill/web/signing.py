"""Coming in by a token or a link, and going out."""

from __future__ import annotations

from contextlib import suppress

from tidemill.access.access import Access
from tidemill.access.audit import Outcome
from tidemill.access.tokens import TokenView
from tidemill.clock import Clock
from tidemill.seam.refusals import Refused
from tidemill.seam.roles import NOBODY, Who
from tidemill.web.cookies import Place
from tidemill.web.throttle import Throttle

SESSION = "session"
BY_TOKEN, BY_LINK, OUT, SHOWN = "sign-in by token", "sign-in by link", "sign-out", "request with a token"
_WHY = {
    BY_TOKEN: "the token is wrong, over or revoked",
    SHOWN: "the token is wrong, over or revoked",
    BY_LINK: "the link is wrong, used or too old",
}


class Signing:
    """What succeeds answers the header of a cookie, what fails None. Both are written into the audit log."""

    def __init__(self, access: Access, clock: Clock) -> None:
        self._access = access
        # Apart: a program whose token was revoked must not keep people on the same address out.
        self._throttle, self._shown = Throttle(clock), Throttle(clock)

    async def by_token(self, token: str, place: Place, address: str | None) -> str | None:
        who = await self._access.tokens.who(token.strip())
        return await self._begin(who, BY_TOKEN, place, address)

    async def by_link(self, secret: str, place: Place, address: str | None) -> str | None:
        """The session's token can be listed and revoked as any other, and ends with it."""
        link = await self._access.links.use(secret)
        who = None
        if link is not None:
            lasts = self._access.sessions.lasts
            made: TokenView = await self._access.tokens.create_unshown(link.name, link.role, lasts=lasts)
            who = Who(made.name, made.role, made.id)
        return await self._begin(who, BY_LINK, place, address)

    async def out(self, who: Who, place: Place, cookie: str | None, address: str | None) -> str:
        if secret := place.read(SESSION, cookie):
            await self._access.sessions.end(secret)
        await self._access.audit.write(who, OUT, address=address)
        return place.erase(SESSION)

    async def tell_wrong_token(self, address: str | None) -> None:
        """One that was shown with a request. As long as there are few: whoever guesses must not fill the
        log."""
        with suppress(Refused):
            self._shown.failed(address)
            await self._tell_failed(SHOWN, address)

    async def _begin(self, who: Who | None, how: str, place: Place, address: str | None) -> str | None:
        if who is None or who.token is None:
            self._throttle.failed(address)
            await self._tell_failed(how, address)
            return None
        begun = await self._access.sessions.begin(who.token)
        await self._access.audit.write(who, how, address=address)
        return place.write(SESSION, begun.secret, begun.lasts)

    async def _tell_failed(self, how: str, address: str | None) -> None:
        await self._access.audit.write(NOBODY, how, address=address, outcome=Outcome.REFUSED, why=_WHY[how])
