"""What is said first on a connection, and what must be true before a job is trusted to it."""

from __future__ import annotations

import contextlib
from typing import Any

from tidemill.errors import ConfigurationError, SchemaMismatch, StoreCorrupt
from tidemill.stores.redis import policy, scripts
from tidemill.stores.redis.address import Address, Login
from tidemill.stores.redis.clocks import GivenClock, ServerClock
from tidemill.stores.redis.faults import Said
from tidemill.stores.redis.lines import Connection
from tidemill.stores.redis.policy import Server
from tidemill.stores.redis.wire import Argument, pack

SCHEMA = 1
GREET = scripts.load("greet")


async def greet(wire: Connection, address: Address, clock: GivenClock | ServerClock, until: float) -> Server:
    """Raises Said or Lost where another try may help, and an error of ours where a person must."""
    await log_in(wire, address.login, until)
    await _select(wire, until, address)
    server = policy.read(await expect(wire, until, b"INFO"))
    policy.check(server, str(address), evicts=address.evicts)
    await expect(wire, until, b"SCRIPT", b"LOAD", GREET.source)
    call = (b"EVALSHA", GREET.sha, 1, address.root, clock.first_words(), server.identity, SCHEMA)
    _, boot, schema = await _ours(wire, until, address, call)
    if int(schema) != SCHEMA:
        raise _other_schema(address, int(schema))
    if clock.is_old:
        clock.saw(float(boot))
    return server


async def log_in(wire: Connection, login: Login, until: float) -> None:
    if login.password:
        await expect(wire, until, b"AUTH", *([login.user] if login.user else []), login.password)
    with contextlib.suppress(Said):  # for people who look who is connected
        await expect(wire, until, b"CLIENT", b"SETNAME", b"tidemill")


async def expect(wire: Connection, until: float, *command: Argument) -> Any:
    reply = await wire.ask(pack(command), until)
    if type(reply) is Said:
        raise reply
    return reply


async def _select(wire: Connection, until: float, address: Address) -> None:
    if not address.db:
        return
    try:
        await expect(wire, until, b"SELECT", address.db)
    except Said as said:
        if said.word != "ERR":
            raise
        raise ConfigurationError(
            f"{address}: the server has no database {address.db} ({said}); use 0 and tell stores apart with "
            "?prefix=…"
        ) from said


async def _ours(wire: Connection, until: float, address: Address, call: tuple[Any, ...]) -> Any:
    try:
        return await expect(wire, until, *call)
    except Said as said:
        if "WRONGTYPE" in str(said):
            raise StoreCorrupt(
                f"{address}: another program keeps keys under the prefix {address.prefix!r}; choose another "
                "with ?prefix=…"
            ) from said
        raise


def _other_schema(address: Address, found: int) -> SchemaMismatch:
    if found > SCHEMA:
        return SchemaMismatch(
            f"{address}: its schema has version {found}, this Tidemill knows up to {SCHEMA}; upgrade "
            "tidemill on this machine, or choose another prefix with ?prefix=…"
        )
    return SchemaMismatch(
        f"{address}: it was made by a Tidemill from before 0.1.0 (schema version {found}), which no release "
        "can read; choose another prefix with ?prefix=…"
    )
