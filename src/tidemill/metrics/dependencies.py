"""Services that handlers could not use, such as a database or an object store. A worker writes one record per
service."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from tidemill.contract.store import Store
from tidemill.core.documents import DocumentKind
from tidemill.metrics.snapshots import STATE_STORED, write_document

MAX_DEPENDENCIES_LISTED = 100
DEPENDENCY_DOCUMENT = "dependency"
"""The name of the documents that hold the records."""
REPORT_MARGIN_SECONDS = 15.0
"""How late the next report may come, because the worker is busy or the service answers slowly."""


class DependencyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The last report about a service that handlers could not use.

    - `since`, `seen`: the wall times of the first and the last report of the outage
    - `retry_in`: the seconds after which the job that reported it runs again"""

    name: str
    problem: str
    since: float
    seen: float
    retry_in: float

    def is_away(self, now: float) -> bool:
        """True until the next report is overdue. `now` is the wall time."""
        return now < self.seen + self.retry_in + REPORT_MARGIN_SECONDS


def dependency_document_id(name: str) -> str:
    """Returns the id of a service's document. It is a digest, because a name may contain any character."""
    return f"{DEPENDENCY_DOCUMENT}-{blake2b(name.encode(), digest_size=12).hexdigest()}"


async def save_dependency(store: Store, record: DependencyRecord) -> None:
    """Writes one record. If two workers write it at the same time, one write is dropped; both say the
    same."""
    id_ = dependency_document_id(record.name)
    [document] = await store.documents(DocumentKind.RECORD, [id_])
    if document is not None:
        before = msgspec.json.decode(document.record, type=DependencyRecord)
        if before.is_away(record.seen):  # the same outage goes on
            record = msgspec.structs.replace(record, since=min(before.since, record.since))
    await write_document(
        store,
        id_,
        0 if document is None else document.revision,
        name=DEPENDENCY_DOCUMENT,
        state=STATE_STORED,
        record=msgspec.json.encode(record),
    )


class DependencyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A service that handlers could not use, such as Qdrant.

    - `name`, `problem`: as given to `DependencyUnavailable`
    - `since`: the wall time of the first report of this outage
    - `seen`: the wall time of the last report
    - `is_away`: True until the next report is overdue"""

    name: str
    problem: str
    since: float
    seen: float
    is_away: bool


async def load_dependencies(store: Store) -> list[DependencyStatus]:
    """Returns up to 100 services that handlers could not use at some time, sorted by name."""
    page = await store.find_documents(
        DocumentKind.RECORD, name=DEPENDENCY_DOCUMENT, limit=MAX_DEPENDENCIES_LISTED, cursor=None
    )
    now = (await store.read_clock()).wall
    records = [msgspec.json.decode(document.record, type=DependencyRecord) for document in page.documents]
    return [
        DependencyStatus(
            name=record.name,
            problem=record.problem,
            since=record.since,
            seen=record.seen,
            is_away=record.is_away(now),
        )
        for record in sorted(records, key=lambda record: record.name)
    ]
