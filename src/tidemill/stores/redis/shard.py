"""Runs scripts and commands on one shard, with retries. Also limits how much one script does."""

from __future__ import annotations

import contextlib
from asyncio import Future
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from tidemill.core.jobs import NewJob
from tidemill.errors import ConfigurationError, StoreUnavailable
from tidemill.stores.redis import keys, scripts
from tidemill.stores.redis.address import RedisAddress
from tidemill.stores.redis.clock import InjectedRedisClock, RedisServerClock
from tidemill.stores.redis.connection import ConnectionFactory, RedisConnection
from tidemill.stores.redis.connector import RedisConnector
from tidemill.stores.redis.errors import MOVED_CODES, RETRYABLE_CODES, ConnectionLostError, RedisReplyError
from tidemill.stores.redis.protocol import CommandArgument, pack_command
from tidemill.stores.redis.scripts import LuaScript

READ_CLOCK = scripts.load_script("read_clock")


class Shard:
    def __init__(
        self,
        address: RedisAddress,
        factory: ConnectionFactory,
        clock: InjectedRedisClock | RedisServerClock,
        on_connected: Callable[[], None] | None = None,
    ) -> None:
        self.address, self.root = address, address.root
        self.connector = RedisConnector(address, factory, clock, on_connected)
        self._factory, self._clock = factory, clock
        self.time = factory.time

    def key(self, name: str) -> str:
        return self.root + name

    async def open(self) -> None:
        """Connects to the server. Raises ConfigurationError for wrong settings, and another store error if
        the server cannot be used."""
        await self.connector.get_connection(self.deadline())

    async def close(self) -> None:
        await self.connector.close()

    def abandon(self) -> None:
        """Closes only the socket, because its event loop is closed or belongs to another process."""
        if self.connector.connection is not None:
            self.connector.connection.abandon()

    def deadline(self) -> float:
        """Returns the time by which a call that begins now has to end, on the clock `Shard.time`."""
        return self.time() + self.address.timeout

    async def pause(self, seconds: float) -> None:
        await self._factory.pause(seconds)

    async def run(self, script: LuaScript, *args: CommandArgument, repeatable: bool = False) -> Any:
        """Runs one script atomically and returns its reply. `repeatable=True`: the script is sent again if
        its reply was lost."""
        until = self.deadline()
        if script.uses_boot_clock and self._clock.is_old:
            await self._read_server_clock(until)
        return await self._call(lambda: self._packed(script, args), until, repeatable, script)

    async def ask(self, *command: CommandArgument, repeatable: bool = True) -> Any:
        """Sends one Redis command and returns its reply. `repeatable=True`: the command is sent again if its
        reply was lost."""
        return await self._call(lambda: pack_command(command), self.deadline(), repeatable, None)

    async def read_clock(self) -> tuple[float, float]:
        """Returns the wall time and the boot time of the server."""
        return await self._read_server_clock(self.deadline())

    async def load(self, *scripts: LuaScript) -> None:
        """Loads scripts into the server, so that `tell` can send them by their hash. `tell` waits for no
        reply and would not notice a missing script."""
        for script in scripts:
            await self.ask(b"SCRIPT", b"LOAD", script.source)

    def tell(
        self, script: LuaScript, *args: CommandArgument, on_failure: Callable[[], None] | None = None
    ) -> None:
        """Sends a script without waiting for its reply, for wake-ups. Calls `on_failure` if the script
        failed or could not be sent."""
        connection = self.connector.connection
        if connection is None or connection.lost is not None:
            if on_failure is not None:
                on_failure()
            return
        until = self.deadline()

        def on_reply(answer: Future[Any]) -> None:
            reply = answer.exception() or answer.result()
            if not isinstance(reply, (ConnectionLostError, RedisReplyError)):
                return
            if isinstance(reply, RedisReplyError) and reply.word == "NOSCRIPT":
                connection.ask(pack_command((b"SCRIPT", b"LOAD", script.source)), until)
                connection.ask(self._packed(script, args), until)
            if on_failure is not None:
                on_failure()

        connection.ask(self._packed(script, args), until).add_done_callback(on_reply)

    def _packed(self, script: LuaScript, args: tuple[CommandArgument, ...]) -> bytes:
        clock = self._clock.argument() if script.uses_boot_clock else self._clock.argument_without_boot()
        return pack_command((b"EVALSHA", script.sha, 1, self.root, clock, *args))

    async def _read_server_clock(self, until: float) -> tuple[float, float]:
        wall, boot = await self._call(lambda: self._packed(READ_CLOCK, ()), until, True, READ_CLOCK)
        self._clock.note_boot(float(boot))
        return float(wall), float(boot)

    async def _call(
        self, packed: Callable[[], bytes], until: float, repeatable: bool, script: LuaScript | None
    ) -> Any:
        losses = 0
        while True:
            connection = self.connector.connection
            if connection is None or connection.lost is not None:
                connection = await self._connected(until)
            try:
                reply = await connection.ask(packed(), until)
            except ConnectionLostError as lost:
                if not repeatable:
                    raise self.connector.error(
                        ConnectionLostError(f"{lost}; the call may or may not have been executed")
                    ) from lost
                losses += 1
                if losses > 1 or self.time() >= until:
                    await self.connector.back_off(until, lost)
            else:
                if type(reply) is not RedisReplyError:
                    return reply
                await self._handle_error(reply, connection, until, script)

    async def _connected(self, until: float) -> RedisConnection:
        try:
            return await self.connector.get_connection(until)
        except ConfigurationError as error:
            raise StoreUnavailable(str(error)) from error

    async def _handle_error(
        self,
        error_reply: RedisReplyError,
        connection: RedisConnection,
        until: float,
        script: LuaScript | None,
    ) -> None:
        """Handles an error reply. Returns if the server changed nothing and the caller may send the command
        again. Otherwise raises the error."""
        if error_reply.word == "NOSCRIPT" and script is not None:
            with contextlib.suppress(ConnectionLostError):
                loaded = await connection.ask(pack_command((b"SCRIPT", b"LOAD", script.source)), until)
                if type(loaded) is RedisReplyError:
                    raise self.connector.error(loaded)
        elif error_reply.word == "CLOCKSKEW":
            self._clock.note_boot(None)
        elif error_reply.word in RETRYABLE_CODES:
            if error_reply.word in MOVED_CODES:
                connection.end("the primary is another server by now")
            self.connector.note_moved(error_reply)
            await self.connector.back_off(until, error_reply)
        else:
            raise self.connector.error(error_reply)


SCAN_COUNT = 1000


async def scan_hash(shard: Shard, name: str) -> AsyncIterator[tuple[bytes, bytes]]:
    """Yields the (field, value) pairs of a hash, in no order. A field may come twice."""
    async for found in _scan(shard, b"HSCAN", name):
        for pair in zip(found[::2], found[1::2], strict=True):
            yield pair


async def scan_sorted_set(shard: Shard, name: str) -> list[bytes]:
    """Returns the members of a sorted set, each once, in no order."""
    known: dict[bytes, None] = {}
    async for found in _scan(shard, b"ZSCAN", name):
        known |= dict.fromkeys(found[::2])
    return list(known)


async def list_ready_lanes(shard: Shard, queue: str) -> list[str]:
    """Returns the names of the lanes of a queue that may have ready jobs. The first is the lane '', which is
    for jobs without key, pool or batch."""
    found = {name.decode(): None async for name, _ in scan_hash(shard, keys.lanes(queue))}
    return ["", *sorted(found)]


async def _scan(shard: Shard, command: bytes, name: str) -> AsyncIterator[list[bytes]]:
    cursor = b"0"
    while True:
        cursor, found = await shard.ask(command, shard.key(name), cursor, b"COUNT", SCAN_COUNT)
        yield found
        if cursor == b"0":
            return


MAX_JOBS_PER_SCRIPT, MAX_JOBS_PER_TRANSACTION = 250, 125
"""Jobs per fast-path script, and jobs per engine transaction."""
MAX_BYTES_PER_SCRIPT = 1024 * 1024
"""Bytes of job records per script; `lua/parts/bulk_commands.lua` has the same limit."""
MAX_INSERTED_JOBS, MAX_INSERTED_BYTES = 1000, 2 * MAX_BYTES_PER_SCRIPT
"""Plain jobs and bytes per insert, which reads no records."""
MAX_UNMEASURED_JOBS = 4
"""Up to this many jobs are not measured."""

COUNT_FITTING = scripts.load_script("count_fitting")

T = TypeVar("T")
BatchWeight = tuple[int, int]
"""Number of jobs, and bytes."""


def weigh_jobs(jobs: Iterable[NewJob]) -> BatchWeight:
    sizes = [len(job.payload) for job in jobs]
    return len(sizes), sum(sizes)


def split_by_weight(
    items: Iterable[T], weigh: Callable[[T], BatchWeight], most: BatchWeight
) -> Iterator[list[T]]:
    """Splits items in order into lists of at most `most` (jobs, bytes). A larger item is alone in a list."""
    run: list[T] = []
    jobs = size = 0
    for item in items:
        item_jobs, item_bytes = weigh(item)
        if run and (jobs + item_jobs > most[0] or size + item_bytes > most[1]):
            yield run
            run, jobs, size = [], 0, 0
        run.append(item)
        jobs, size = jobs + item_jobs, size + item_bytes
    if run:
        yield run


async def count_fitting(shard: Shard, ids: Sequence[str]) -> int:
    """Returns how many of the jobs `ids`, from the first on, one engine transaction may load. Limits the
    number of jobs and the size of their records."""
    some = ids[:MAX_JOBS_PER_TRANSACTION]
    return (
        len(some)
        if len(some) <= MAX_UNMEASURED_JOBS
        else int(await shard.run(COUNT_FITTING, *some, repeatable=True))
    )
