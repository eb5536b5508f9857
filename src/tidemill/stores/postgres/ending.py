"""A job that ends in one transaction with what its handler writes.

The connection is none of those the verbs use: a handler may keep it for as long as it likes to write, and
verbs have to go on meanwhile. Nothing of ours is locked while the handler writes: the claim is looked at
first, so that no work is done in vain, and it is the settlement, in the last moment before the commit, that
decides. The server ends a transaction that is left alone for ten seconds (`links.HANDLERS`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from tidemill.contract.transactions import Ending
from tidemill.core.claims import Settlement
from tidemill.core.outcomes import Answer
from tidemill.errors import ClaimLost
from tidemill.stores.postgres.connection import Connection
from tidemill.stores.postgres.faults import TROUBLE, translate
from tidemill.stores.postgres.links import Link
from tidemill.stores.postgres.statements import load
from tidemill.stores.postgres.step import Step

SQL = load("ending")
Settle = Callable[[Step, Sequence[Settlement]], Awaitable[Sequence[Answer]]]


@asynccontextmanager
async def transaction(
    connection: Connection, settle: Settle, job: str, fence: int, claim: int
) -> AsyncIterator[Ending]:
    """What the handler's own statements raise is the handler's; only our own are translated."""
    async with _link(connection) as link:
        step = connection.step_on(link, connection.endings)
        try:
            await step.__aenter__()
            current = await step.first(SQL.is_current, job, fence, claim)
        except TROUBLE as error:
            raise translate(error, connection.address) from error
        if current is None:
            raise ClaimLost(f"job {job} is somebody else's by now")
        ending = Ending(link)
        yield ending
        await _commit(connection, step, settle, ending)
    connection.announce(step.topics, step.ended)


async def _commit(connection: Connection, step: Step, settle: Settle, ending: Ending) -> None:
    try:
        if ending.settlement is not None:
            await step.link.execute(SQL.as_verbs)
            answers = await settle(step, [ending.settlement])
            if answers[0] in (Answer.STALE, Answer.GONE):
                raise ClaimLost(f"job {ending.settlement.job} is somebody else's by now")
        await step.__aexit__(None, None, None)
    except TROUBLE as error:
        raise translate(error, connection.address) from error


@asynccontextmanager
async def _link(connection: Connection) -> AsyncIterator[Link]:
    """Whatever is not committed is rolled back with the session that had it."""
    try:
        link = await connection.endings.take()
    except TROUBLE as error:
        raise translate(error, connection.address) from error
    try:
        yield link
    except BaseException:
        connection.endings.drop(link)
        raise
    connection.endings.give_back(link)
