"""The first commands on a connection: log in, select the database, check server and schema version."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from tidemill.errors import ConfigurationError, SchemaMismatch, StoreCorrupt, StoreReadOnly, StoreUnavailable
from tidemill.stores.redis import scripts
from tidemill.stores.redis.address import RedisAddress, RedisLogin
from tidemill.stores.redis.clock import InjectedRedisClock, RedisServerClock
from tidemill.stores.redis.connection import RedisConnection
from tidemill.stores.redis.errors import ConnectionLostError, RedisReplyError
from tidemill.stores.redis.protocol import CommandArgument, pack_command

OLDEST_VERSION = (6, 0)


class RedisServer(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the server from the command INFO. A fact is empty or None if the server hides it, as
    managed servers do."""

    name: str
    version: str
    identity: str
    """Differs after a restart or a failover, when the last acknowledged writes may be missing."""
    is_primary: bool
    eviction: str
    appends: bool | None
    loading: bool
    bytes: int | None
    """Memory used by the data, without the server itself."""

    @property
    def engine(self) -> str:
        return f"{self.name} {self.version}"


def parse_server_info(info: bytes | str) -> RedisServer:
    text = info if isinstance(info, str) else info.decode(errors="replace")
    facts = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    aof = facts.get("aof_enabled")
    return RedisServer(
        name="Valkey" if "valkey_version" in facts else "Redis",
        version=facts.get("valkey_version") or facts.get("redis_version", ""),
        identity=f"{facts.get('run_id', '')}/{facts.get('master_replid', '')}",
        is_primary=facts.get("role", "master") == "master",
        eviction=facts.get("maxmemory_policy", ""),
        appends=None if aof is None else aof == "1",
        loading=facts.get("loading", "0") not in ("0", ""),
        bytes=_stored_bytes(facts),
    )


def _stored_bytes(facts: dict[str, str]) -> int | None:
    used, empty = facts.get("used_memory", ""), facts.get("used_memory_startup", "")
    return int(used) - int(empty) if used.isdigit() and empty.isdigit() else None


def check_server(server: RedisServer, address_text: str, *, evicts: bool = False) -> None:
    """Raises an error if jobs would not be safe on this server, or if the server cannot be used yet.
    `evicts=True`: accept a server that deletes keys when its memory is full."""
    if server.loading:
        raise ConnectionLostError("the server is still loading its data")
    found = tuple(map(int, re.findall(r"\d+", server.version)[:2]))
    if server.name == "Redis" and found and found < OLDEST_VERSION:
        raise StoreUnavailable(
            f"{address_text}: {server.engine} is too old; Tidemill needs Redis 6.0 or newer, or Valkey"
        )
    if not server.is_primary:
        raise StoreReadOnly(
            f"{address_text}: the server is a read-only replica; name the primary in the URL, or its "
            "Sentinels (redis+sentinel://)"
        )
    if server.eviction not in ("", "noeviction") and not evicts:
        raise ConfigurationError(
            f"{address_text}: the server throws keys away when its memory is full (maxmemory-policy "
            f"{server.eviction}), and jobs with them; run CONFIG SET maxmemory-policy noeviction and put "
            "the same line into its configuration, or use a server of its own; ?eviction=allowed in the URL "
            "takes the risk"
        )


def server_warnings(server: RedisServer) -> Iterator[str]:
    if server.eviction not in ("", "noeviction"):
        yield (
            f"the server throws jobs away when its memory is full (maxmemory-policy {server.eviction}), "
            "without a warning; run CONFIG SET maxmemory-policy noeviction"
        )
    if not server.eviction:
        yield (
            "the server does not say what it does when its memory is full: if it throws keys away, jobs are "
            "lost without a warning; check that its maxmemory-policy is noeviction"
        )
    if server.appends is False:
        yield (
            "the server keeps no append-only file: jobs accepted since its last snapshot are lost when it "
            "dies; run CONFIG SET appendonly yes and put the same line into its configuration"
        )


SCHEMA_VERSION = 2
HANDSHAKE = scripts.load_script("handshake")


async def perform_handshake(
    connection: RedisConnection,
    address: RedisAddress,
    clock: InjectedRedisClock | RedisServerClock,
    until: float,
) -> RedisServer:
    """Prepares a new connection and returns facts about the server.

    Raises RedisReplyError or ConnectionLostError if another attempt may help. Raises a Tidemill error if a
    person must act."""
    await log_in(connection, address.login, until)
    await _select_database(connection, until, address)
    server = parse_server_info(await read_reply(connection, until, b"INFO"))
    check_server(server, str(address), evicts=address.evicts)
    await read_reply(connection, until, b"SCRIPT", b"LOAD", HANDSHAKE.source)
    call = (
        b"EVALSHA",
        HANDSHAKE.sha,
        1,
        address.root,
        clock.argument_without_boot(),
        server.identity,
        SCHEMA_VERSION,
    )
    _, boot, schema = await _check_schema(connection, until, address, call)
    if int(schema) != SCHEMA_VERSION:
        raise _schema_error(address, int(schema))
    if clock.is_old:
        clock.note_boot(float(boot))
    return server


async def log_in(connection: RedisConnection, login: RedisLogin, until: float) -> None:
    if login.password:
        await read_reply(connection, until, b"AUTH", *([login.user] if login.user else []), login.password)
    with contextlib.suppress(RedisReplyError):  # shown by CLIENT LIST
        await read_reply(connection, until, b"CLIENT", b"SETNAME", b"tidemill")


async def read_reply(connection: RedisConnection, until: float, *command: CommandArgument) -> Any:
    reply = await connection.ask(pack_command(command), until)
    if type(reply) is RedisReplyError:
        raise reply
    return reply


async def _select_database(connection: RedisConnection, until: float, address: RedisAddress) -> None:
    if not address.db:
        return
    try:
        await read_reply(connection, until, b"SELECT", address.db)
    except RedisReplyError as error_reply:
        if error_reply.word != "ERR":
            raise
        raise ConfigurationError(
            f"{address}: the server has no database {address.db} ({error_reply}); use 0 and tell stores "
            "apart with ?prefix=…"
        ) from error_reply


async def _check_schema(
    connection: RedisConnection, until: float, address: RedisAddress, call: tuple[Any, ...]
) -> Any:
    try:
        return await read_reply(connection, until, *call)
    except RedisReplyError as error_reply:
        if "WRONGTYPE" in str(error_reply):
            raise StoreCorrupt(
                f"{address}: another program keeps keys under the prefix {address.prefix!r}; choose another "
                "with ?prefix=…"
            ) from error_reply
        raise


def _schema_error(address: RedisAddress, found: int) -> SchemaMismatch:
    if found > SCHEMA_VERSION:
        return SchemaMismatch(
            f"{address}: its schema has version {found}, this Tidemill knows up to {SCHEMA_VERSION}; upgrade "
            "tidemill on this machine, or choose another prefix with ?prefix=…"
        )
    return SchemaMismatch(
        f"{address}: it was made by a Tidemill from before 0.1.0 (schema version {found}), which no release "
        "can read; choose another prefix with ?prefix=…"
    )
