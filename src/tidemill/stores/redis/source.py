"""Where the engine's steps look and write: one script for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from tidemill.clock import Entropy, SystemEntropy
from tidemill.core.ledger import PLACE
from tidemill.engine.changes import Changes
from tidemill.engine.wants import Numbers, Rows, Want
from tidemill.engine.workspace import Taken, Workspace
from tidemill.errors import StoreUnavailable
from tidemill.stores.redis import keys, scripts
from tidemill.stores.redis.answers import found
from tidemill.stores.redis.changing import writes_of
from tidemill.stores.redis.checks import gathered, heads
from tidemill.stores.redis.looks import Questions, Words
from tidemill.stores.redis.shard import Shard
from tidemill.stores.redis.wire import Argument
from tidemill.stores.redis.writes import Writes

LOOK, COMMIT, END_TURN = map(scripts.load, ("look", "commit", "end_turn"))
TAKE_SEQS, TAKE_FENCE = map(scripts.load, ("take_seqs", "take_fence"))

WAIT = 0.001
"""Seconds until a step looks again whether its turn has come."""

_JITTER = SystemEntropy()


def in_time(shard: Shard, until: float) -> None:
    """Whoever waits for others waits no longer than for the server."""
    if shard.time() >= until:
        raise StoreUnavailable(
            f"{shard.address}: for {shard.address.timeout:g} s others changed the same rows first; "
            "nothing was changed"
        )


class RedisSource:
    """The rows of one try, and what each of them must still be when it is written."""

    def __init__(self, shard: Shard, entropy: Entropy, until: float, step: str = "") -> None:
        """`step` is who takes turns, see `lua/parts/turn.lua`."""
        self._shard, self._entropy, self._until, self._step = shard, entropy, until, step
        self._checks: dict[Want, list[Words]] = {}
        self._now: tuple[float, float] | None = None
        self.looks = 0
        self.decided = 0.0
        """When the first look was sent that was answered, by our own clock: the step goes by its time."""

    async def look(self, wanted: Mapping[Want, int]) -> tuple[Rows, Numbers]:
        self.looks += 1
        questions = Questions(wanted)
        words = (self._step, *questions.words())
        sent = self._shard.time()
        while not (reply := await self._shard.run(LOOK, *words, repeatable=True)):
            await self._wait_for_turn()
            sent = self._shard.time()
        self.decided = self.decided or sent
        (wall, boot, boot_id, picks, seq, fence), *answers = reply
        numbers = Numbers(float(wall), float(boot), boot_id.decode(), int(picks), int(seq), int(fence))
        self._now = self._now or (numbers.wall, numbers.boot)
        rows: dict[Want, Any] = {}
        for want, answer in questions.answered(answers):
            for one, row, checks in found(want, answer, self._now[1]):
                if one not in rows or one == want:
                    rows[one], self._checks[one] = row, checks
        return rows, numbers

    async def _wait_for_turn(self) -> None:
        in_time(self._shard, self._until)
        await self._shard.pause(WAIT * (0.5 + _JITTER.chance()))

    async def take_seqs(self, count: int) -> list[int]:
        """Some may never be used: a gap is harmless, a page nobody knows of would not be."""
        last = int(await self._shard.run(TAKE_SEQS, count, repeatable=True))
        return list(range(last - count + 1, last + 1))

    async def take_fence(self) -> int:
        return int(await self._shard.run(TAKE_FENCE, repeatable=True))

    async def commit(self, changes: Changes, rows: Rows) -> bool:
        """A step that changes nothing has nothing to be wrong about."""
        if changes.is_empty and not changes.topics:
            if self._step:
                await self._shard.run(END_TURN, self._step, repeatable=True)
            return True
        assert self._now is not None, "nothing was looked up"  # noqa: S101 - an invariant of this file
        writes = writes_of(changes, rows, self._now[0])
        return await self._write(changes.read, writes, changes.picked, changes.topics, heads(changes, rows))

    async def space(self, wanted: Iterable[Want]) -> Workspace:
        """Records to look around in."""
        rows, numbers = await self.look(dict.fromkeys(wanted, 0))
        return Workspace(rows, numbers, Taken(), self._entropy)

    async def forget_account(self, place: PLACE, read: Iterable[Want]) -> bool:
        writes = Writes()
        writes.unset(keys.accounts(place[0]), place[1] or "")
        writes.remove(keys.LOOKED, keys.place(place))
        return await self._write(read, writes)

    async def _write(
        self,
        read: Iterable[Want],
        writes: Writes,
        picked: int = 0,
        topics: Sequence[str] = (),
        heads: Iterable[Words] = (),
    ) -> bool:
        checks = gathered(chain((check for want in read for check in self._checks[want]), heads))
        words: list[Argument] = [self._step, len(checks)]
        for check in checks:
            words += (len(check), *check)
        words += writes.words()
        return bool(await self._shard.run(COMMIT, *words, picked, *topics, repeatable=False))
