"""Lockstep rules for documents: advances with and without jobs, from current and outdated revisions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from operator import itemgetter, methodcaller
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from msgspec.structs import replace

from tidemill.contract.store import Store
from tidemill.core.documents import (
    Advance,
    AdvanceResult,
    Document,
    DocumentJob,
    DocumentKind,
    DocumentUpdate,
    JobChange,
)
from tidemill.core.jobs import Error, FlowPosition, NewJob, ResultReference
from tidemill.core.states import State
from tidemill.testing.conformance.lockstep import strategies as some
from tidemill.testing.conformance.lockstep.job_rules import InsertRules
from tidemill.testing.conformance.lockstep.store_pair import MAX_JOBS, ReadRules

DOCUMENT_NAMES = ("dub", "other")
FLOW_KEYS = ((DocumentKind.FLOW, "f"), (DocumentKind.FLOW, "f"), (DocumentKind.FLOW, "g"))
document_keys = st.sampled_from((*FLOW_KEYS, (DocumentKind.SCHEDULE, "f"), (DocumentKind.RECORD, "f")))
next_documents = st.builds(
    DocumentUpdate,
    name=st.sampled_from(DOCUMENT_NAMES),
    state=st.sampled_from(("running", "failing")),
    record=st.sampled_from((b'{"n":1}', '{"n":"慢"}'.encode())),
    due=some.usually(None, 1_700_000_010.0),
    due_in=some.usually(None, 0.0, 20.0),
    keep=some.usually(None, 0.0, 20.0),
)


class AdvanceCase(msgspec.Struct, frozen=True):
    """One random advance of a document.

    - `at`: the kind and id of the document
    - `next`: the new content; None deletes the document
    - `jobs`: the new jobs, each with its queue and, for an invalid job, its error
    - `nth`: which job changes the advance processes: 0 for none, 1 for all, 2 for every second one
    - `behind`: an error added to the current revision; with 1, the store refuses the advance
    - `requeue`: True puts the document on the worklist again
    """

    at: tuple[DocumentKind, str]
    next: DocumentUpdate | None
    jobs: Sequence[tuple[str, NewJob, Error | None]]
    nth: int
    behind: int
    requeue: bool


advance_cases = st.builds(
    AdvanceCase,
    at=document_keys,
    next=st.one_of(next_documents, next_documents, next_documents, st.none()),
    jobs=st.lists(st.tuples(some.queues, some.new_jobs, some.usually(None, some.STRATEGY_ERROR)), max_size=3),
    nth=st.sampled_from((0, 1, 1, 2)),
    behind=some.usually(0, 0, 1),
    requeue=some.usually(False, False, True),
)


class DocumentRules(InsertRules, ReadRules):
    @initialize(jobs=st.lists(some.new_jobs, min_size=2, max_size=3), then=next_documents)
    def insert_initial_flow(self, jobs: list[NewJob], then: DocumentUpdate) -> None:
        of_flow = [("a", replace(job, needs=()), None) for job in jobs]
        self.advance_documents([AdvanceCase((DocumentKind.FLOW, "f"), then, of_flow, 0, 0, requeue=False)])

    @rule(goings=st.lists(advance_cases, min_size=1, max_size=2))
    def advance_documents(self, goings: list[AdvanceCase]) -> None:
        """Advances one or two documents; `goings` describes each advance. One rule covers all kinds of
        documents, so that Hypothesis also chooses the remaining rules often."""
        items = [
            (going, tuple(self.made(going.at, number, *job) for number, job in enumerate(going.jobs)))
            for going in goings
        ]
        self.both(lambda store: _run_advances(store, items))

    def made(
        self, at: tuple[DocumentKind, str], number: int, queue: str, job: NewJob, error: Error | None
    ) -> DocumentJob:
        kind, document = at
        flow = FlowPosition(
            document,
            "step",
            number,
            {"a": ResultReference("before"), "b": ResultReference("mapped", 3)} if number else {},
        )
        return DocumentJob(
            queue, replace(self.named(job), flow=flow if kind is DocumentKind.FLOW else None), error
        )

    @invariant()
    def worklists_agree(self) -> None:
        for kind in DocumentKind:
            self.both(partial(_load_worklist, kind))

    def readers_agree_on_details(self) -> None:
        super().readers_agree_on_details()
        for kind in DocumentKind:
            self.both(methodcaller("document_counts", kind))
            self.both(methodcaller("documents", kind, ["g", "none", "f"]))
            for name in (None, *DOCUMENT_NAMES):
                for states in (None, ["running"], ["failing", "running", "none"]):
                    self.both(partial(_load_pages, kind, name, states))


async def _run_advances(
    store: Store, items: list[tuple[AdvanceCase, tuple[DocumentJob, ...]]]
) -> list[AdvanceResult]:
    return await store.advance([await _build_advance(store, going, jobs) for going, jobs in items])


async def _build_advance(store: Store, going: AdvanceCase, jobs: tuple[DocumentJob, ...]) -> Advance:
    kind, id_ = going.at
    is_record = kind is DocumentKind.RECORD
    (document,) = await store.documents(kind, [id_])
    worklist = await store.worklist(kind, 1, [id_])
    changes = sorted((end.job, end.number) for item in worklist.work_items for end in item.changes)
    return Advance(
        kind=kind,
        id=id_,
        expected=(0 if document is None else document.revision) + going.behind,
        next=_without_due_time(going.next) if going.next is not None and is_record else going.next,
        jobs=jobs,
        taken=tuple(number for _, number in changes[:: going.nth]) if going.nth else (),
        requeue=going.requeue and not is_record,
    )


def _without_due_time(then: DocumentUpdate) -> DocumentUpdate:
    """Returns the update without a due time, because a record cannot have one."""
    return replace(then, due=None, due_in=None)


async def _load_worklist(kind: DocumentKind, store: Store) -> dict[str, Any]:
    """Returns the worklist in a form that can be compared. Change numbers are left out, because they differ
    per store, and the changes are sorted."""
    worklist = await store.worklist(kind, MAX_JOBS)
    return {
        "next due": worklist.next_due,
        **{
            item.document.id: (item.document, _sort_job_changes(item.changes)) for item in worklist.work_items
        },
    }


def _sort_job_changes(changes: Iterable[JobChange]) -> list[tuple[str, State | None]]:
    return sorted(((end.job, end.state) for end in changes), key=itemgetter(0))


async def _load_pages(
    kind: DocumentKind, name: str | None, states: list[str] | None, store: Store
) -> list[Document]:
    found: list[Document] = []
    page = await store.find_documents(kind, name=name, states=states, limit=1)
    found += page.documents
    while page.cursor is not None:
        page = await store.find_documents(kind, name=name, states=states, limit=1, cursor=page.cursor)
        found += page.documents
    return found
