"""Turns the engine's changes into the arguments of `commit.lua`: checks that rows are unchanged, and commands
that write."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from tidemill.contract.reader import ATTEMPTS_KEPT, LOG_LINES_PER_ATTEMPT
from tidemill.core.checkpoints import Checkpoint
from tidemill.core.ledger import AccountKey, HeldReservation, LaneBlock
from tidemill.engine import queries
from tidemill.engine.changes import Changes
from tidemill.engine.queries import LaneRow, QueueSettingsRow, Rows
from tidemill.stores.redis import keys, rows
from tidemill.stores.redis import rows as redis_rows
from tidemill.stores.redis.command_batch import LANE_DELETED, CommandBatch, write_documents, write_job
from tidemill.stores.redis.job_codec import TIME
from tidemill.stores.redis.load import MAX_FIELDS_PER_COMMAND, CommandWords
from tidemill.stores.redis.protocol import CommandArgument
from tidemill.stores.redis.rows import encode

_MERGEABLE = ("hash", "none")
"""Checks that can be merged per hash."""


def merge_checks(checks: Iterable[CommandWords]) -> list[CommandWords]:
    together: dict[tuple[CommandArgument, CommandArgument], list[CommandArgument]] = defaultdict(list)
    found: list[CommandWords] = []
    for check in dict.fromkeys(checks):
        if check[0] in _MERGEABLE:
            together[check[0], check[1]] += check[2:]
        else:
            found.append(check)
    for kind, fields in together.items():
        found += [
            (*kind, *fields[at : at + MAX_FIELDS_PER_COMMAND])
            for at in range(0, len(fields), MAX_FIELDS_PER_COMMAND)
        ]
    return found


def head_checks(changes: Changes, rows: Rows) -> Iterator[CommandWords]:
    """Yields a check for each lane that the changes mark as blocked. The commit fails if the lane has a new
    first job by now, because that job may need fewer units."""
    for (queue, lane), row in changes.lanes.items():
        before = rows.get(queries.LaneByName(queue, lane))
        if row is not None and row.block is not None and before is not None and before.jobs.first:
            _, due, seq, id_ = before.jobs.first[0]
            yield "head", keys.lane(queue, lane), TIME.pack(due) + seq.to_bytes(6) + id_.encode()


def build_commands(changes: Changes, loaded: Rows, now: float) -> CommandBatch:
    writes = CommandBatch()
    for update in changes.jobs:
        write_job(writes, update)
    _write_queues(writes, changes, loaded)
    for (queue, lane), row in changes.lanes.items():
        _write_lane(writes, queue, lane, loaded.get(queries.LaneByName(queue, lane)), row)
    _write_ids_and_workers(writes, changes)
    _write_pools(writes, changes, loaded, now)
    for job, checkpoints in changes.checkpoints.items():
        _write_checkpoints(writes, job, loaded.get(queries.JobCheckpoints(job)) or (), checkpoints)
    _write_history(writes, changes)
    write_documents(writes, changes, loaded)
    return writes


def _write_queues(writes: CommandBatch, changes: Changes, loaded: Rows) -> None:
    for name, row in changes.queues.items():
        writes.set(keys.QUEUES, name, rows.encode_queue(row))
    for name in {queue for queue, _ in changes.groups}:
        before: QueueSettingsRow = loaded.get(queries.QueueByName(name)) or QueueSettingsRow()
        blocks = {group: known.block for group, known in before.groups.items() if known.block is not None}
        for (queue, group), block in changes.groups.items():
            if queue == name:
                _write_block(writes, blocks, queue, group, block)
        if blocks:
            writes.set(keys.BLOCKS, name, rows.encode_blocks(blocks))
        else:
            writes.unset(keys.BLOCKS, name)


def _write_block(
    writes: CommandBatch, blocks: dict[str, LaneBlock], queue: str, group: str, block: LaneBlock | None
) -> None:
    previous = blocks.pop(group, None)
    if previous is not None:
        writes.count_or_delete(keys.blocked_queues(keys.account_name(previous.account_key)), queue, -1)
    if block is not None:
        blocks[group] = block
        writes.count_or_delete(keys.blocked_queues(keys.account_name(block.account_key)), queue, 1)


def _write_lane(
    writes: CommandBatch, queue: str, lane: str, before: LaneRow | None, after: LaneRow | None
) -> None:
    if lane == "":
        writes.touch_lane(queue, lane, b"" if after is None else str(after.served).encode())
        return
    writes.touch_lane(queue, lane, LANE_DELETED if after is None else rows.encode_lane(after))
    block_before, block_after = (None if row is None else row.block for row in (before, after))
    if block_before == block_after:
        return
    if block_before is not None:
        account = keys.account_name(block_before.account_key)
        writes.remove(keys.blocked_lanes(queue), lane)
        writes.remove_from_set(keys.blocked_by(queue, account), lane)
        writes.count_or_delete(keys.blocked_queues(account), queue, -1)
    if block_after is not None:
        account = keys.account_name(block_after.account_key)
        writes.add(keys.blocked_lanes(queue), block_after.retry_at, lane)
        writes.add_to_set(keys.blocked_by(queue, account), lane)
        writes.count_or_delete(keys.blocked_queues(account), queue, 1)


def _write_ids_and_workers(writes: CommandBatch, changes: Changes) -> None:
    for request, known in changes.known_ids.items():
        writes.set(keys.KNOWN_IDS, request, rows.encode_known_id(request, known))
        writes.add(keys.KNOWN_IDS_EXPIRY, known.term.wall, request)
    for seq in changes.arrivals:
        writes.command("XDEL", keys.ARRIVALS, redis_rows.arrival_entry_id(seq))
    for worker, info in changes.workers.items():
        writes.set(keys.WORKERS, worker, rows.encode_worker(info.info))
        writes.set(keys.CLAIM_NUMBERS, worker, info.number)
        writes.add(keys.WORKER_LEASES, info.lease, worker)


def _write_pools(writes: CommandBatch, changes: Changes, loaded: Rows, now: float) -> None:
    for name, pool in changes.pools.items():
        writes.set(keys.POOLS, name, rows.encode_pool(pool))
    for key, account in changes.accounts.items():
        writes.set(keys.accounts(key[0]), key[1] or "", encode(account))
        if key[1] is not None:
            writes.add(keys.ACCOUNT_SEEN, now, keys.account_name(key))
    for claim, held in changes.reserved.items():
        _write_reservations(
            writes, keys.claim_name(claim), loaded.get(queries.ClaimReservations(claim)) or (), held
        )
    for claim, left in changes.left.items():
        if left is None:
            writes.unset(keys.ABANDONED_UNITS, keys.claim_name(claim))
        else:
            writes.set(keys.ABANDONED_UNITS, keys.claim_name(claim), encode(left))
    for claim, since in changes.unconfirmed_units.items():
        if since is None:
            writes.remove(keys.UNCONFIRMED_UNITS, keys.claim_name(claim))
        else:
            writes.add(keys.UNCONFIRMED_UNITS, since, keys.claim_name(claim))


def _write_reservations(
    writes: CommandBatch,
    claim: bytes,
    before: tuple[HeldReservation, ...],
    after: tuple[HeldReservation, ...],
) -> None:
    if after:
        writes.set(keys.RESERVATIONS, claim, encode(after))
    else:
        writes.unset(keys.RESERVATIONS, claim)
    opened: Counter[AccountKey] = Counter(reserved.account_key for reserved in after)
    opened.subtract(Counter(reserved.account_key for reserved in before))
    for account, by in opened.items():
        writes.count_or_delete(keys.OPEN_RESERVATIONS, keys.account_name(account), by)


def _write_checkpoints(
    writes: CommandBatch, job: str, before: tuple[Checkpoint, ...], after: tuple[Checkpoint, ...]
) -> None:
    """Writes the changed checkpoints and deletes the missing ones. Unchanged checkpoints are not sent,
    because results can be large."""
    known = {checkpoint.step: checkpoint for checkpoint in before}
    numbers = {step: number for number, step in enumerate(known)}
    for checkpoint in after:
        number = numbers.setdefault(checkpoint.step, max(numbers.values(), default=-1) + 1)
        if known.pop(checkpoint.step, None) != checkpoint:
            writes.set(
                keys.checkpoints(job), encode(checkpoint.step), rows.encode_checkpoint(number, checkpoint)
            )
    for step in known:
        writes.unset(keys.checkpoints(job), encode(step))


def _write_history(writes: CommandBatch, changes: Changes) -> None:
    dropped = {update.before.id for update in changes.jobs if update.before and update.after is None}
    for job, attempts in changes.attempts.items():
        if job not in dropped:
            writes.command("RPUSH", keys.attempts(job), *map(encode, attempts))
            writes.command("LTRIM", keys.attempts(job), -ATTEMPTS_KEPT, -1)
    for job, lines in changes.logs.items():
        for line in lines:
            key = keys.log_lines(line.generation, line.attempt, job)
            writes.add_to_set(keys.logs(job), f"{line.generation}.{line.attempt}")
            writes.command("RPUSH", key, encode(line))
            writes.command("LTRIM", key, -LOG_LINES_PER_ATTEMPT, -1)
    for (queue, minute), counts in changes.history.items():
        for what, by in counts.items():
            _index_minute(writes, keys.history(queue), minute, what)
            writes.count(keys.history(queue), f"{minute:.0f}:{what}", by)
    for (pool, minute), totals in changes.pool_history.items():
        key = keys.pool_history(pool)
        parts = {"calls": float(totals.calls)}
        parts |= {f"unit:{unit}": amount for unit, amount in totals.units.items()}
        parts |= {f"refusal:{reason}": float(times) for reason, times in totals.refusals.items()}
        for what, amount in parts.items():
            _index_minute(writes, key, minute, what)
            writes.command("ADD_FLOAT", key, f"{minute:.0f}:{what}", repr(amount))


def _index_minute(writes: CommandBatch, key: str, minute: float, what: str) -> None:
    """Adds one counter of one minute to the index by which `prune` finds old minutes. `key`: the Redis key of
    the history. `what`: the name of the counter."""
    writes.add(keys.HISTORY_MINUTES, minute, f"{key} {minute:.0f}:{what}")
