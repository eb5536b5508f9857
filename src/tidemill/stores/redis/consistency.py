"""Checks that documents and pools agree with their indexes. Also computes which index entries jobs and
documents must have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from hashlib import sha1
from typing import NamedTuple

from tidemill.core.documents import DocumentKind
from tidemill.core.jobs import Job
from tidemill.core.ledger import AccountKey
from tidemill.core.pool_statistics import wrong_counts
from tidemill.core.reservations import Reservation
from tidemill.core.states import FINAL, LIVE, PENDING, State
from tidemill.stores.redis import keys
from tidemill.stores.redis.command_batch import document_indexes
from tidemill.stores.redis.job_codec import STATE_LETTERS, index_member, lane_member
from tidemill.stores.redis.protocol import CommandArgument
from tidemill.stores.redis.rows import decode_account, decode_document, decode_pool, decode_reservations
from tidemill.stores.redis.scripts import load_script
from tidemill.stores.redis.shard import Shard, scan_hash, scan_sorted_set


class ExpectedIndex(NamedTuple):
    """One check of an index, which the script `lua/check_records.lua` runs.

    - `key`: the Redis key of the index
    - `member`: the entry that must be in the index
    - `expected`: the score or value that the entry must have; empty means any"""

    kind: str
    key: str
    member: bytes | str
    expected: bytes | str = ""


def expected_indexes(job: Job) -> Iterator[ExpectedIndex]:
    yield ExpectedIndex("field", keys.page(job.seq), str(job.seq % keys.JOBS_PER_PAGE), job.id)
    yield from _by_state(job)
    if job.flow is not None:
        yield ExpectedIndex("order", keys.flow_jobs(job.flow.id), index_member(job), str(job.seq))
    if job.expires is not None and job.state in PENDING:
        yield ExpectedIndex("order", keys.EXPIRING, index_member(job), repr(job.expires))
    if job.unique_key is not None and (job.unique_holds or job.state in LIVE):
        yield ExpectedIndex("order", keys.unique(job.queue, job.unique_key), index_member(job))


def _by_state(job: Job) -> Iterator[ExpectedIndex]:
    match job.state:
        case State.READY:
            yield ExpectedIndex("order", keys.lane(job.queue, job.lane), lane_member(job), str(job.priority))
            if job.lane:
                yield ExpectedIndex("field", keys.lanes(job.queue), job.lane)
            else:
                yield ExpectedIndex("field", keys.SERVED, job.queue)
        case State.SCHEDULED:
            yield ExpectedIndex("order", keys.scheduled(job.queue), index_member(job), repr(job.due))
        case State.RUNNING:
            yield ExpectedIndex("field", keys.running(job.queue), index_member(job))
            yield ExpectedIndex("member", keys.held(job.worker or ""), index_member(job))
        case State.WAITING if job.after is not None:
            yield ExpectedIndex("order", keys.successors(job.after), index_member(job))
        case state if state in FINAL and job.flow is not None:
            yield ExpectedIndex(
                "order", keys.ended_flow_jobs(job.queue, state), index_member(job), repr(job.finished)
            )
            yield ExpectedIndex("field", keys.flow_job_states(job.flow.id), job.id, STATE_LETTERS[state])
        case state if state in FINAL:
            yield ExpectedIndex("order", keys.ended(job.queue, state), index_member(job), repr(job.finished))


CHECK_RECORDS = load_script("check_records")

RecordDigest = tuple[str, bytes]
"""An id and its record; the record is empty if there is none."""


async def failed_checks(
    shard: Shard, records: str, expected: Sequence[tuple[RecordDigest, list[ExpectedIndex]]]
) -> list[tuple[RecordDigest, ExpectedIndex]]:
    """Runs the checks in `expected` and returns the failed checks, each with its record. Skips records that
    have changed meanwhile. `records`: the Redis key of the hash with the records."""
    words: list[CommandArgument] = [records]
    checks: list[tuple[RecordDigest, ExpectedIndex]] = []
    for record_digest, places in expected:
        record = record_digest[1]
        digest = sha1(record, usedforsecurity=False).hexdigest() if record else ""
        words += [record_digest[0], digest, len(places)]
        for index in places:
            words += index
            checks.append((record_digest, index))
    numbers = await shard.run(CHECK_RECORDS, *words, repeatable=True) if checks else []
    return [checks[number - 1] for number in numbers]


CHECK_DOCUMENT_COUNTS, CHECK_WORKLIST = load_script("check_document_counts"), load_script("check_worklist")
DOCUMENTS_PER_CHECK = 100


async def check_documents(shard: Shard) -> AsyncIterator[str]:
    for kind in DocumentKind:
        async for sentence in _check_records(shard, kind):
            yield sentence
        async for sentence in _check_strays(shard, kind):
            yield sentence
        rows = await shard.run(CHECK_DOCUMENT_COUNTS, kind.value, repeatable=True)
        for what, says, has in zip(rows[::3], rows[1::3], rows[2::3], strict=True):
            if says != has:
                yield f"{kind}s: {says} are counted {what.decode()}, but there are {has}"
    async for sentence in _check_worklist(shard):
        yield sentence


async def _check_records(shard: Shard, kind: DocumentKind) -> AsyncIterator[str]:
    """Yields a sentence for each index in which a document should be but is not."""
    known = [id_ async for id_, _ in scan_hash(shard, keys.documents(kind))]
    for start in range(0, len(known), DOCUMENTS_PER_CHECK):
        some = await _read_documents(shard, kind, known[start : start + DOCUMENTS_PER_CHECK])
        expected = [(record, _expected_document_indexes(kind, record)) for record in some]
        for (id_, _), at in await failed_checks(shard, keys.documents(kind), expected):
            yield f"{kind} {id_!r} is not found in {at.key!r}, as its record says"


async def _check_strays(shard: Shard, kind: DocumentKind) -> AsyncIterator[str]:
    """Yields a sentence for each index entry whose document does not belong in that index."""
    for name in (keys.document_index(kind, "", ""), keys.due_documents(kind), keys.DOCUMENT_EXPIRY):
        found = await scan_sorted_set(shard, name)
        ids = [id_of for member in found if (id_of := _id_of(kind, name, member)) is not None]
        for start in range(0, len(ids), DOCUMENTS_PER_CHECK):
            some = await _read_documents(shard, kind, ids[start : start + DOCUMENTS_PER_CHECK])
            doubtful = [
                (record, [ExpectedIndex("absent", name, _member_of(kind, name, record[0]))])
                for record in some
                if name not in {index.key for index in _expected_document_indexes(kind, record)}
            ]
            for (id_, _), at in await failed_checks(shard, keys.documents(kind), doubtful):
                yield f"{at.key!r} lists the {kind} {id_!r}, whose record says otherwise"


async def _check_worklist(shard: Shard) -> AsyncIterator[str]:
    numbers = [number async for number, _ in scan_hash(shard, keys.WORKLIST)]
    for start in range(0, len(numbers), DOCUMENTS_PER_CHECK):
        some = numbers[start : start + DOCUMENTS_PER_CHECK]
        for text in await shard.run(CHECK_WORKLIST, *some, repeatable=True):
            yield f"a work item of {text.decode()!r} is on no worklist"


async def _read_documents(shard: Shard, kind: DocumentKind, ids: Sequence[bytes]) -> list[RecordDigest]:
    rows = await shard.ask(b"HMGET", shard.key(keys.documents(kind)), *ids)
    return [(id_.decode(), row or b"") for id_, row in zip(ids, rows, strict=True)]


def _expected_document_indexes(kind: DocumentKind, record_digest: RecordDigest) -> list[ExpectedIndex]:
    id_, row = record_digest
    if not row:
        return []
    document = decode_document(kind, id_, row)
    return [
        ExpectedIndex("order", key, member, repr(score)) for key, score, member in document_indexes(document)
    ]


def _id_of(kind: DocumentKind, name: str, member: bytes) -> bytes | None:
    """Returns the document id that the entry `member` of the index `name` contains. Returns None if the entry
    belongs to a document of another kind."""
    if name != keys.DOCUMENT_EXPIRY:
        return member
    prefix = f"{kind}:".encode()
    return member.removeprefix(prefix) if member.startswith(prefix) else None


def _member_of(kind: DocumentKind, name: str, id_: str) -> str:
    return keys.document(kind, id_) if name == keys.DOCUMENT_EXPIRY else id_


CHECK_RESERVATIONS = load_script("check_reservations")
ACCOUNTS_PER_CHECK = 200

ReservationsByAccount = dict[AccountKey, list[Reservation]]


async def check_pools(shard: Shard) -> AsyncIterator[str]:
    ownerless: set[bytes] = set()
    async for name, text in scan_hash(shard, keys.POOLS):
        pool, limits = name.decode(), decode_pool(text).declared.limits
        known = [key async for key, _ in scan_hash(shard, keys.accounts(pool))]
        for start in range(0, max(len(known), 1), ACCOUNTS_PER_CHECK):
            some = known[start : start + ACCOUNTS_PER_CHECK]
            accounts, reserved, stray, counted = await shard.run(
                CHECK_RESERVATIONS, pool, *some, repeatable=True
            )
            ownerless.update(stray)
            held = _by_account(reserved)
            for key, account in zip(some, accounts, strict=True):
                if account is not None:
                    at = pool, key.decode() or None
                    for sentence in wrong_counts(
                        _account_text(at), limits, decode_account(account).state, held[at]
                    ):
                        yield sentence
        for sentence in _uncounted(pool, held, counted):
            yield sentence
    for claim in sorted(ownerless):
        yield f"units are kept for the job {keys.parse_claim_name(claim)[0]!r}, which does not run with them"


def _by_account(reserved: Sequence[bytes]) -> ReservationsByAccount:
    found: ReservationsByAccount = defaultdict(list)
    for text in reserved[1::2]:
        for held_units in decode_reservations(text):
            found[held_units.account_key].append(held_units.reservation)
    return found


def _uncounted(pool: str, held: ReservationsByAccount, counted: Sequence[bytes]) -> Iterator[str]:
    """Yields a sentence for each account of `pool` whose stored number of open reservations is wrong.
    `counted`: the stored numbers. `held`: the reservations."""
    says = {
        keys.parse_account_name(at): int(count) for at, count in zip(counted[::2], counted[1::2], strict=True)
    }
    for at in sorted({at for at in (*says, *held) if at[0] == pool}, key=keys.account_name):
        if says.get(at, 0) != len(held[at]):
            yield f"{_account_text(at)} counts {says.get(at, 0)} open reservations but has {len(held[at])}"


def _account_text(account_key: AccountKey) -> str:
    pool, key = account_key
    return f"{pool} ({key})" if key else pool
