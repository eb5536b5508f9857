"""Names of the Redis keys of a shard, without the common root (docs/reference/redis-keys.md). If a key joins
two names, the length of the first name comes before it."""

from __future__ import annotations

import msgspec

from tidemill.core.documents import DocumentKind
from tidemill.core.ledger import AccountKey
from tidemill.core.states import FINAL, State
from tidemill.engine.ledger import ClaimKey

JOBS = "jobs"
PAGES = "pages"
QUEUES = "queues"
COUNTS = "counts"
SERVED = "served"
BLOCKS = "blocks"
EXPIRING = "expiring"
RUNNING_BY_KEY = "running_by_key"
KNOWN_IDS = "known_ids"
KNOWN_IDS_EXPIRY = "known_ids_expiry"
WORKERS = "workers"
WORKER_LEASES = "worker_leases"
CLAIM_NUMBERS = "claim_numbers"
POOLS = "pools"
ACCOUNT_SEEN = "account_seen"
RESERVATIONS = "reservations"
OPEN_RESERVATIONS = "open_reservations"
ABANDONED_UNITS = "abandoned_units"
UNCONFIRMED_UNITS = "unconfirmed_units"
HISTORY_MINUTES = "history_minutes"
ARRIVALS = "arrivals"
WORKLIST = "worklist"
DOCUMENT_EXPIRY = "document_expiry"

JOBS_PER_PAGE = 100
"""Jobs per page: few enough for Redis to store a page in its compact encoding."""


def page(seq: int) -> str:
    return f"page:{seq // JOBS_PER_PAGE}"


def lane(queue: str, name: str) -> str:
    """Returns the Redis key of the sorted set with the ready jobs of a lane, in the order in which they are
    claimed."""
    return f"ready:{queue}" if name == "" else f"lane:{_join_names(queue, name)}"


def lanes(queue: str) -> str:
    return f"lanes:{queue}"


def open_lanes(queue: str, group: str) -> str:
    return f"open_lanes:{_join_names(queue, group)}"


def lane_counts(queue: str) -> str:
    return f"lane_counts:{queue}"


def blocked_lanes(queue: str) -> str:
    return f"blocked_lanes:{queue}"


def blocked_by(queue: str, account: str) -> str:
    return f"blocked_by:{_join_names(queue, account)}"


def blocked_queues(account: str) -> str:
    return f"blocked_queues:{account}"


def scheduled(queue: str) -> str:
    return f"scheduled:{queue}"


def running(queue: str) -> str:
    """Returns the Redis key of the hash with the leases of a queue's running jobs."""
    return f"running:{queue}"


def held(worker: str) -> str:
    """Returns the Redis key of the set with the jobs that a worker runs."""
    return f"held:{worker}"


def ended(queue: str, state: State) -> str:
    assert state in FINAL, state  # noqa: S101 - an invariant of this package
    return f"{state.value}:{queue}"


def ended_flow_jobs(queue: str, state: State) -> str:
    """Returns the Redis key of the sorted set with the ended jobs of flows in one queue and state. The
    queue's retention does not prune these jobs."""
    assert state in FINAL, state  # noqa: S101 - an invariant of this package
    return f"{state.value}_flow_jobs:{queue}"


def flow_jobs(flow: str) -> str:
    return f"flow_jobs:{flow}"


def flow_job_states(flow: str) -> str:
    """Returns the Redis key of a hash that maps the ended jobs of a flow to their states (one letter
    each)."""
    return f"flow_job_states:{flow}"


def documents(kind: DocumentKind) -> str:
    return f"documents:{kind}"


def document_counts(kind: DocumentKind) -> str:
    return f"document_counts:{kind}"


def document_index(kind: DocumentKind, state: str, name: str) -> str:
    """Returns the Redis key of the sorted set with documents by creation time. '' as `state` or `name` means
    any."""
    return f"document_index:{kind}:{_join_names(state, name)}"


def due_documents(kind: DocumentKind) -> str:
    return f"due_documents:{kind}"


def marked_documents(kind: DocumentKind) -> str:
    return f"marked_documents:{kind}"


def document(kind: DocumentKind, id_: str) -> str:
    return f"{kind}:{id_}"


def parse_document(name: str) -> tuple[DocumentKind, str]:
    kind, _, id_ = name.partition(":")
    return DocumentKind(kind), id_


def count(state: State, queue: str) -> str:
    return f"{state.value}:{queue}"


def retrying(queue: str) -> str:
    """Returns the name of the counter of jobs that wait for a retry in `queue`. It is a field in the hash of
    job counts."""
    return f"retrying:{queue}"


def unique(queue: str, key: str) -> str:
    return f"unique:{_join_names(queue, key)}"


def successors(job: str) -> str:
    return f"successors:{job}"


def running_by_key(queue: str, key: str) -> str:
    return _join_names(queue, key)


def history(queue: str) -> str:
    return f"history:{queue}"


def pool_history(pool: str) -> str:
    return f"pool_history:{pool}"


def attempts(job: str) -> str:
    return f"attempts:{job}"


def logs(job: str) -> str:
    return f"logs:{job}"


def log_lines(generation: int, attempt: int, job: str) -> str:
    return f"log_lines:{generation}.{attempt}:{job}"


def checkpoints(job: str) -> str:
    return f"checkpoints:{job}"


def accounts(pool: str) -> str:
    return f"accounts:{pool}"


def account_name(of: AccountKey) -> str:
    return msgspec.json.encode(of).decode()


def parse_account_name(text: bytes) -> AccountKey:
    return msgspec.json.decode(text, type=tuple[str, str | None])


def token(fence: int, claim_id: int) -> bytes:
    """Returns fence and claim id as 14 bytes, as in a job's record. Every write of a claimed job compares
    these bytes with the record."""
    return fence.to_bytes(6) + claim_id.to_bytes(8)


def claim_name(of: ClaimKey) -> bytes:
    job, fence, claim_id = of
    return token(fence, claim_id) + job.encode()


def parse_claim_name(name: bytes) -> ClaimKey:
    return name[14:].decode(), int.from_bytes(name[:6]), int.from_bytes(name[6:14])


def _join_names(first: str, second: str) -> str:
    return f"{len(first.encode())}:{first}:{second}"
