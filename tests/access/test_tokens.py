"""Tokens, links, sessions: who has one is let in, for as long as it holds, and no longer."""

from __future__ import annotations

import asyncio

import pytest

from tidemill import ConfigurationError, Tidemill, TokenNotFound
from tidemill.access.links import LASTS
from tidemill.access.tokens import COARSE, SHOWN_FOR, TokenState
from tidemill.core.courses import Kind
from tidemill.seam.roles import Role, Who
from tidemill.testing.manual import ManualClock

HOUR = 3600.0


async def kept(app: Tidemill) -> bytes:
    return b"\n".join(course.record for course in (await app.store.find_courses(Kind.RECORD)).courses)


async def test_a_token_names_its_user(app: Tidemill) -> None:
    made = await app.access.tokens.create("ann", Role.OPERATOR, by="root")
    assert await app.access.tokens.who(made.secret) == Who("ann", Role.OPERATOR, made.token.id)
    assert (made.token.name, made.token.state, made.token.by) == ("ann", TokenState.ACTIVE, "root")
    assert await app.access.tokens.list() == [made.token]


async def test_only_a_digest_is_kept(app: Tidemill) -> None:
    token = (await app.access.tokens.create("ann", Role.ADMIN)).secret
    link = await app.access.links.create("ann", Role.ADMIN)
    [view] = await app.access.tokens.list()
    session = (await app.access.sessions.begin(view.id)).secret
    stored = await kept(app)
    for secret in (token, link, session):
        assert secret.rpartition("_")[2].encode() not in stored


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: text[:-1],
        lambda text: text[:-1] + ("a" if text[-1] != "a" else "b"),
        lambda text: text.upper(),
        lambda text: text + "\n",
        lambda text: text.replace("tm_", "tml_"),
        lambda text: text.rpartition("_")[0] + "_",
        lambda text: text * 1000,
        lambda text: "tm_\0",
        lambda text: "tm_" + "é" * 45,
    ],
)
async def test_a_wrong_one_names_nobody(app: Tidemill, change: object) -> None:
    assert callable(change)
    made = await app.access.tokens.create("ann", Role.ADMIN)
    assert await app.access.tokens.who(change(made.secret)) is None


async def test_it_ends_when_it_was_to_end_and_is_listed_a_while(app: Tidemill, clock: ManualClock) -> None:
    made = await app.access.tokens.create("ann", Role.VIEWER, lasts=HOUR)
    clock.advance(HOUR - 1)
    assert await app.access.tokens.who(made.secret) is not None
    clock.advance(1)
    assert await app.access.tokens.who(made.secret) is None
    assert [token.state for token in await app.access.tokens.list()] == [TokenState.EXPIRED]
    clock.advance(SHOWN_FOR)
    await app.store.prune()
    assert await app.access.tokens.list() == []


async def test_revoked_by_its_id_or_all_of_a_user(app: Tidemill) -> None:
    first, second, other = [
        await app.access.tokens.create(name, Role.VIEWER) for name in ("ann", "ann", "bo")
    ]
    assert [token.state for token in await app.access.tokens.revoke(first.token.id)] == [TokenState.REVOKED]
    assert [token.id for token in await app.access.tokens.revoke("ann")] == [second.token.id]
    assert [await app.access.tokens.who(made.secret) is None for made in (first, second, other)] == [
        True,
        True,
        False,
    ]
    with pytest.raises(TokenNotFound, match="'ann'"):
        await app.access.tokens.revoke("ann")


async def test_last_use_is_written_by_the_hour(app: Tidemill, clock: ManualClock) -> None:
    made = await app.access.tokens.create("ann", Role.VIEWER, lasts=10 * HOUR)
    for wait, written in ((0.0, True), (COARSE - 1, False), (1.0, True)):
        clock.advance(wait)
        await app.access.tokens.mark_used(made.token.id, clock.wall())
        [token] = await app.access.tokens.list()
        assert (token.used == clock.wall()) is written
    assert token.expires == made.token.expires
    await app.access.tokens.revoke("ann")
    await app.access.tokens.mark_used(made.token.id, clock.wall() + COARSE)
    assert await app.access.tokens.who(made.secret) is None, "a mark of use brings nothing back"


@pytest.mark.parametrize(
    ("name", "role", "lasts", "field"),
    [
        ("", Role.ADMIN, None, "name"),
        ("a\0", Role.ADMIN, None, "name"),
        ("ann", Role.ANYBODY, None, "role"),
        ("ann", Role.VIEWER, 0.0, "expires"),
        ("ann", Role.VIEWER, float("nan"), "expires"),
    ],
)
async def test_what_makes_no_sense_is_refused(
    app: Tidemill, name: str, role: Role, lasts: float | None, field: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"^{field}: "):
        await app.access.tokens.create(name, role, lasts=lasts)
    assert await kept(app) == b""


async def test_a_link_is_used_once_by_one(app: Tidemill) -> None:
    secret = await app.access.links.create("ann", Role.ADMIN)
    used = await asyncio.gather(*(app.access.links.use(secret) for _ in range(5)))
    assert [link.name for link in used if link is not None] == ["ann"]


async def test_a_link_is_too_old_after_a_while(app: Tidemill, clock: ManualClock) -> None:
    secret = await app.access.links.create("ann", Role.ADMIN)
    clock.advance(LASTS)
    assert await app.access.links.use(secret) is None
    assert await app.access.tokens.who(secret) is None


async def test_a_session_ends_by_time_by_hand_and_with_its_token(app: Tidemill, clock: ManualClock) -> None:
    made = await app.access.tokens.create("ann", Role.OPERATOR)
    sessions = app.access.sessions
    first, second, third = [(await sessions.begin(made.token.id)).secret for _ in range(3)]
    found = await sessions.find(first)
    assert found is not None
    assert found.who == Who("ann", Role.OPERATOR, made.token.id)
    await sessions.end(second[:-1] + ("a" if second[-1] != "a" else "b"))
    assert await sessions.find(second) is not None, "only who has it signs out of it"
    await sessions.end(second)
    assert await sessions.find(second) is None
    clock.advance(sessions.lasts)
    assert await sessions.find(first) is None
    fresh = (await sessions.begin(made.token.id)).secret
    await app.access.tokens.revoke("ann")
    assert [await sessions.find(each) for each in (third, fresh)] == [None, None]


async def test_the_session_of_one_token_is_none_of_another(app: Tidemill) -> None:
    low = await app.access.tokens.create("bo", Role.VIEWER)
    high = await app.access.tokens.create("ann", Role.ADMIN)
    secret = (await app.access.sessions.begin(low.token.id)).secret
    stolen = secret.replace(low.token.id, high.token.id)
    assert await app.access.sessions.find(stolen) is None
    for nonsense in ("", "-", "--", secret.partition("-")[2], f"{secret}{secret}", "\0-" + secret):
        assert await app.access.sessions.find(nonsense) is None


async def test_what_only_a_link_has_cannot_be_shown(app: Tidemill) -> None:
    token = await app.access.tokens.create_unshown("ann", Role.ADMIN, lasts=HOUR)
    assert token.by_link
    for secret in ("", "a" * 32):
        assert await app.access.tokens.who(f"tm_{token.id}_{secret}") is None
