"""Runs a store method in the engine: loads rows, lets the engine decide, and commits its changes. Starts
again if another writer changed the rows first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from typing import Any, Generic, TypeVar

from tidemill.clock import Entropy, SystemEntropy
from tidemill.core.ledger import AccountKey
from tidemill.engine import transaction
from tidemill.engine.changes import Changes
from tidemill.engine.queries import NotLoaded, RowQuery, Rows, StoreCounters
from tidemill.engine.read_sets import ReadSet
from tidemill.engine.records import Records
from tidemill.engine.transaction_records import AllocatedNumbers, Workspace
from tidemill.errors import StoreUnavailable, TidemillError
from tidemill.stores.redis import keys, scripts
from tidemill.stores.redis.command_batch import CommandBatch
from tidemill.stores.redis.commit import build_commands, head_checks, merge_checks
from tidemill.stores.redis.load import CommandWords, LoadRequest, decode_reply
from tidemill.stores.redis.protocol import CommandArgument
from tidemill.stores.redis.shard import Shard

LOAD, COMMIT, END_TURN = map(scripts.load_script, ("load", "commit", "end_turn"))
TAKE_SEQS, TAKE_FENCE = map(scripts.load_script, ("take_seqs", "take_fence"))

TURN_POLL_SECONDS = 0.001
"""Pause before a transaction asks again whether its turn has come."""

_JITTER = SystemEntropy()


def check_deadline(shard: Shard, until: float) -> None:
    """Raises StoreUnavailable if the time `until` has passed. A transaction calls this function before each
    retry."""
    if shard.time() >= until:
        raise StoreUnavailable(
            f"{shard.address}: for {shard.address.timeout:g} s others changed the same rows first; "
            "nothing was changed"
        )


class RedisRowSource:
    """Loads the rows for one try of a transaction, and commits its changes. The commit fails if a loaded row
    has changed meanwhile."""

    def __init__(self, shard: Shard, entropy: Entropy, until: float, name: str = "") -> None:
        """`until`: the deadline, by the clock `Shard.time`. `name`: set for a retry; other transactions then
        wait up to 250 ms for this one (`lua/parts/commit_turn.lua`)."""
        self._shard, self._entropy, self._until, self._name = shard, entropy, until, name
        self._checks: dict[RowQuery, list[CommandWords]] = {}
        self._now: tuple[float, float] | None = None
        self.loads = 0
        self.decided_at = 0.0
        """The local time when the first answered load was sent; the transaction uses the server time of
        that load."""

    async def load(self, requested: Mapping[RowQuery, int]) -> tuple[Rows, StoreCounters]:
        self.loads += 1
        request = LoadRequest(requested)
        words = (self._name, *request.words())
        sent = self._shard.time()
        while not (reply := await self._shard.run(LOAD, *words, repeatable=True)):
            await self._wait_for_turn()
            sent = self._shard.time()
        self.decided_at = self.decided_at or sent
        (wall, boot, boot_id, picks, seq, fence), *answers = reply
        numbers = StoreCounters(float(wall), float(boot), boot_id.decode(), int(picks), int(seq), int(fence))
        self._now = self._now or (numbers.wall, numbers.boot)
        rows: dict[RowQuery, Any] = {}
        for query, answer in request.pair_replies(answers):
            for decoded, row, checks in decode_reply(query, answer, self._now[1]):
                if decoded not in rows or decoded == query:
                    rows[decoded], self._checks[decoded] = row, checks
        return rows, numbers

    async def _wait_for_turn(self) -> None:
        check_deadline(self._shard, self._until)
        await self._shard.pause(TURN_POLL_SECONDS * (0.5 + _JITTER.chance()))

    async def take_seqs(self, count: int) -> list[int]:
        """Returns `count` new sequence numbers for jobs. A number that stays unused does no harm."""
        last = int(await self._shard.run(TAKE_SEQS, count, repeatable=True))
        return list(range(last - count + 1, last + 1))

    async def take_fence(self) -> int:
        return int(await self._shard.run(TAKE_FENCE, repeatable=True))

    async def commit(self, changes: Changes, rows: Rows) -> bool:
        """Writes the changes. True if they were written, or if there is nothing to write. False if another
        writer changed a row first."""
        if changes.is_empty and not changes.topics:
            if self._name:
                await self._shard.run(END_TURN, self._name, repeatable=True)
            return True
        assert self._now is not None, "nothing was looked up"  # noqa: S101 - an invariant of this file
        writes = build_commands(changes, rows, self._now[0])
        return await self._write(
            changes.read, writes, changes.picked, changes.topics, head_checks(changes, rows)
        )

    async def space(self, requested: Iterable[RowQuery]) -> Workspace:
        """Loads rows and returns them as a `Workspace`, the object from which the engine reads rows. The
        caller must not change it, because nothing is committed."""
        rows, numbers = await self.load(dict.fromkeys(requested, 0))
        return Workspace(rows, numbers, AllocatedNumbers(), self._entropy)

    async def forget_account(self, account: AccountKey, read: Iterable[RowQuery]) -> bool:
        writes = CommandBatch()
        writes.unset(keys.accounts(account[0]), account[1] or "")
        writes.remove(keys.ACCOUNT_SEEN, keys.account_name(account))
        return await self._write(read, writes)

    async def _write(
        self,
        read: Iterable[RowQuery],
        writes: CommandBatch,
        picked: int = 0,
        topics: Sequence[str] = (),
        heads: Iterable[CommandWords] = (),
    ) -> bool:
        checks = merge_checks(chain((check for query in read for check in self._checks[query]), heads))
        words: list[CommandArgument] = [self._name, len(checks)]
        for check in checks:
            words += (len(check), *check)
        words += writes.words()
        return bool(await self._shard.run(COMMIT, *words, picked, *topics, repeatable=False))


T = TypeVar("T")

RETRY_PAUSE_SECONDS, MAX_RETRY_PAUSE_SECONDS = 0.0005, 0.05


class RedisEngineRunner:
    """Runs store methods in the engine, on one shard. `entropy`: the random numbers of these methods."""

    def __init__(self, shard: Shard, entropy: Entropy) -> None:
        self.shard, self.entropy = shard, entropy
        self._jitter = SystemEntropy()  # not `entropy`: a retry must not change the results of a test

    async def run(self, plan: ReadSet, verb: Callable[[Records], T]) -> T:
        answer, _ = await self.run_timed(plan, verb)
        return answer

    async def run_timed(self, plan: ReadSet, verb: Callable[[Records], T]) -> tuple[T, float]:
        """Runs the engine function `verb` until its changes are committed. Returns the result of `verb`, and
        the time when the successful try began to load rows. `plan`: the rows to load."""
        run, tries = _RedisEngineRun(self, verb), 0
        while True:
            try:
                answer, _ = await transaction.run_verb(run.begin, plan, run.verb, self.entropy, run.pause)
            except _InconsistentReadError:
                tries += 1
                await run.pause(tries)
            else:
                return answer, run.decided_at

    def source(self) -> RedisRowSource:
        return RedisRowSource(self.shard, self.entropy, self.shard.deadline())

    def new_turn(self) -> str:
        """Returns a new name for a transaction whose first try failed. A load with this name makes all other
        transactions wait up to 250 ms."""
        return f"!{self._jitter.new_id()}"

    async def pause(self, tries: int) -> None:
        await self.shard.pause(
            min(RETRY_PAUSE_SECONDS * tries, MAX_RETRY_PAUSE_SECONDS) * (0.5 + self._jitter.chance())
        )


class _InconsistentReadError(Exception):
    """Raised if the rows of several loads do not belong together, because another writer changed some in
    between."""


class _RedisEngineRun(Generic[T]):
    """All tries of one store method, within one deadline (I22). If another writer changes rows between two
    loads, the engine function may fail with any exception; the method is then tried again."""

    def __init__(self, runner: RedisEngineRunner, verb: Callable[[Records], T]) -> None:
        self._runner, self._verb = runner, verb
        self._until = runner.shard.deadline()
        self._source: RedisRowSource | None = None
        self._turn = ""

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[RedisRowSource]:
        """Yields the row source for the next try. From the second try on, other transactions wait for this
        transaction."""
        if self._source is not None:
            self._turn = self._turn or self._runner.new_turn()
        self._source = RedisRowSource(self._runner.shard, self._runner.entropy, self._until, self._turn)
        yield self._source

    @property
    def decided_at(self) -> float:
        return 0.0 if self._source is None else self._source.decided_at

    async def pause(self, tries: int) -> None:
        check_deadline(self._runner.shard, self._until)
        await self._runner.pause(tries)

    def verb(self, records: Records) -> T:
        try:
            return self._verb(records)
        except (NotLoaded, TidemillError):
            raise
        except Exception as error:
            if self._source is None or self._source.loads == 1:
                raise
            raise _InconsistentReadError from error
