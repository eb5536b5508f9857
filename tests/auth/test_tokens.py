"""Tokens, links and sessions give access for as long as they are valid."""

from __future__ import annotations

import asyncio

import pytest

from tidemill import ConfigurationError, Tidemill, TokenNotFound
from tidemill.auth.sessions import LINK_SECONDS
from tidemill.auth.tokens import LAST_USED_RESOLUTION_SECONDS, LISTED_AFTER_END_SECONDS, TokenState
from tidemill.core.documents import DocumentKind
from tidemill.http_routes.routes import Role, User
from tidemill.testing.clocks import ManualClock

HOUR = 3600.0


async def stored_records(app: Tidemill) -> bytes:
    return b"\n".join(
        document.record for document in (await app.store.find_documents(DocumentKind.RECORD)).documents
    )


async def test_a_token_names_its_user(app: Tidemill) -> None:
    made = await app.auth.tokens.create("ann", Role.OPERATOR, by="root")
    assert await app.auth.tokens.user(made.secret) == User("ann", Role.OPERATOR, made.token.id)
    assert (made.token.name, made.token.state, made.token.by) == ("ann", TokenState.ACTIVE, "root")
    assert await app.auth.tokens.list() == [made.token]


async def test_only_a_digest_is_kept(app: Tidemill) -> None:
    token = (await app.auth.tokens.create("ann", Role.ADMIN)).secret
    link = await app.auth.links.create("ann", Role.ADMIN)
    [view] = await app.auth.tokens.list()
    session = (await app.auth.sessions.create(view.id)).secret
    stored = await stored_records(app)
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
async def test_a_wrong_token_has_no_user(app: Tidemill, change: object) -> None:
    assert callable(change)
    made = await app.auth.tokens.create("ann", Role.ADMIN)
    assert await app.auth.tokens.user(change(made.secret)) is None


async def test_an_expired_token_stays_listed_for_a_week(app: Tidemill, clock: ManualClock) -> None:
    made = await app.auth.tokens.create("ann", Role.VIEWER, expires_in=HOUR)
    clock.advance(HOUR - 1)
    assert await app.auth.tokens.user(made.secret) is not None
    clock.advance(1)
    assert await app.auth.tokens.user(made.secret) is None
    assert [token.state for token in await app.auth.tokens.list()] == [TokenState.EXPIRED]
    clock.advance(LISTED_AFTER_END_SECONDS)
    await app.store.prune()
    assert await app.auth.tokens.list() == []


async def test_tokens_are_revoked_by_id_or_by_user(app: Tidemill) -> None:
    first, second, other = [await app.auth.tokens.create(name, Role.VIEWER) for name in ("ann", "ann", "bo")]
    assert [token.state for token in await app.auth.tokens.revoke(first.token.id)] == [TokenState.REVOKED]
    assert [token.id for token in await app.auth.tokens.revoke("ann")] == [second.token.id]
    assert [await app.auth.tokens.user(made.secret) is None for made in (first, second, other)] == [
        True,
        True,
        False,
    ]
    with pytest.raises(TokenNotFound, match="'ann'"):
        await app.auth.tokens.revoke("ann")


async def test_the_last_use_is_stored_once_an_hour(app: Tidemill, clock: ManualClock) -> None:
    made = await app.auth.tokens.create("ann", Role.VIEWER, expires_in=10 * HOUR)
    for wait, written in ((0.0, True), (LAST_USED_RESOLUTION_SECONDS - 1, False), (1.0, True)):
        clock.advance(wait)
        await app.auth.tokens.mark_used(made.token.id, clock.wall())
        [token] = await app.auth.tokens.list()
        assert (token.used == clock.wall()) is written
    assert token.expires == made.token.expires
    await app.auth.tokens.revoke("ann")
    await app.auth.tokens.mark_used(made.token.id, clock.wall() + LAST_USED_RESOLUTION_SECONDS)
    assert await app.auth.tokens.user(made.secret) is None, "a mark of use brings nothing back"


@pytest.mark.parametrize(
    ("name", "role", "expires_in", "field"),
    [
        ("", Role.ADMIN, None, "name"),
        ("a\0", Role.ADMIN, None, "name"),
        ("ann", Role.PUBLIC, None, "role"),
        ("ann", Role.VIEWER, 0.0, "expires"),
        ("ann", Role.VIEWER, float("nan"), "expires"),
    ],
)
async def test_invalid_input_is_refused(
    app: Tidemill, name: str, role: Role, expires_in: float | None, field: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"^{field}: "):
        await app.auth.tokens.create(name, role, expires_in=expires_in)
    assert await stored_records(app) == b""


async def test_a_link_is_used_once(app: Tidemill) -> None:
    secret = await app.auth.links.create("ann", Role.ADMIN)
    used = await asyncio.gather(*(app.auth.links.use(secret) for _ in range(5)))
    assert [link.name for link in used if link is not None] == ["ann"]


async def test_a_link_expires(app: Tidemill, clock: ManualClock) -> None:
    secret = await app.auth.links.create("ann", Role.ADMIN)
    clock.advance(LINK_SECONDS)
    assert await app.auth.links.use(secret) is None
    assert await app.auth.tokens.user(secret) is None


async def test_a_session_ends_by_time_by_sign_out_and_with_its_token(
    app: Tidemill, clock: ManualClock
) -> None:
    made = await app.auth.tokens.create("ann", Role.OPERATOR)
    sessions = app.auth.sessions
    first, second, third = [(await sessions.create(made.token.id)).secret for _ in range(3)]
    found = await sessions.find(first)
    assert found is not None
    assert found.user == User("ann", Role.OPERATOR, made.token.id)
    await sessions.end(second[:-1] + ("a" if second[-1] != "a" else "b"))
    assert await sessions.find(second) is not None, "only who has it signs out of it"
    await sessions.end(second)
    assert await sessions.find(second) is None
    clock.advance(sessions.expires_in)
    assert await sessions.find(first) is None
    fresh = (await sessions.create(made.token.id)).secret
    await app.auth.tokens.revoke("ann")
    assert [await sessions.find(each) for each in (third, fresh)] == [None, None]


async def test_a_session_belongs_to_one_token(app: Tidemill) -> None:
    low = await app.auth.tokens.create("bo", Role.VIEWER)
    high = await app.auth.tokens.create("ann", Role.ADMIN)
    secret = (await app.auth.sessions.create(low.token.id)).secret
    stolen = secret.replace(low.token.id, high.token.id)
    assert await app.auth.sessions.find(stolen) is None
    for nonsense in ("", "-", "--", secret.partition("-")[2], f"{secret}{secret}", "\0-" + secret):
        assert await app.auth.sessions.find(nonsense) is None


async def test_a_token_of_a_link_has_no_secret(app: Tidemill) -> None:
    token = await app.auth.tokens.create_without_secret("ann", Role.ADMIN, expires_in=HOUR)
    assert token.by_link
    for secret in ("", "a" * 32):
        assert await app.auth.tokens.user(f"tm_{token.id}_{secret}") is None
