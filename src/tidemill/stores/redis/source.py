"""Where the engine's steps look and write: one script for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidemill.clock import Entropy
from tidemill.core.ledger import PLACE
from tidemill.engine.changes import Changes
from tidemill.engine.wants import Numbers, Rows, Want
from tidemill.engine.workspace import Taken, Workspace
from tidemill.stores.redis import keys, scripts
from tidemill.stores.redis.answers import found
from tidemill.stores.redis.changing import writes_of
from tidemill.stores.redis.checks import gathered
from tidemill.stores.redis.looks import Questions, Words
from tidemill.stores.redis.shard import Shard
from tidemill.stores.redis.wire import Argument
from tidemill.stores.redis.writes import Writes

LOOK, COMMIT, TAKE_SEQS = map(scripts.load, ("look", "commit", "take_seqs"))


class RedisSource:
    """The rows of one try, and what each of them must still be when it is written."""

    def __init__(self, shard: Shard, entropy: Entropy) -> None:
        self._shard, self._entropy = shard, entropy
        self._checks: dict[Want, list[Words]] = {}
        self._now: tuple[float, float] | None = None
        self.looks = 0

    async def look(self, wanted: Mapping[Want, int]) -> tuple[Rows, Numbers]:
        self.looks += 1
        questions = Questions(wanted)
        (wall, boot, boot_id, picks, seq, fence), *answers = await self._shard.run(
            LOOK, *questions.words(), repeatable=True
        )
        numbers = Numbers(float(wall), float(boot), boot_id.decode(), int(picks), int(seq), int(fence))
        self._now = self._now or (numbers.wall, numbers.boot)
        rows: dict[Want, Any] = {}
        for want, answer in questions.answered(answers):
            for one, row, checks in found(want, answer, self._now[1]):
                if one not in rows or one == want:
                    rows[one], self._checks[one] = row, checks
        return rows, numbers

    async def take_seqs(self, count: int) -> list[int]:
        last = int(
            await self._shard.ask("HINCRBY", self._shard.key(keys.SHARD), "seq", count, repeatable=False)
        )
        return list(range(last - count + 1, last + 1))

    async def take_fence(self) -> int:
        return int(await self._shard.ask("HINCRBY", self._shard.key(keys.SHARD), "fence", 1, repeatable=True))

    async def commit(self, changes: Changes, rows: Rows) -> bool:
        """A step that changes nothing has nothing to be wrong about."""
        if changes.is_empty and not changes.topics:
            return True
        assert self._now is not None, "nothing was looked up"  # noqa: S101 - an invariant of this file
        return await self._write(
            changes.read, writes_of(changes, rows, self._now[0]), changes.picked, changes.topics
        )

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
        self, read: Iterable[Want], writes: Writes, picked: int = 0, topics: Sequence[str] = ()
    ) -> bool:
        checks = gathered(check for want in read for check in self._checks[want])
        words: list[Argument] = [len(checks)]
        for check in checks:
            words += (len(check), *check)
        words += writes.words()
        return bool(await self._shard.run(COMMIT, *words, picked, *topics, repeatable=False))
