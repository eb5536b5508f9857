"""The part of the contract that stores and advances documents: flows, schedules and records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from tidemill.core.documents import (
    Advance,
    AdvanceResult,
    Document,
    DocumentKind,
    Worklist,
    problem_with_advance,
)
from tidemill.core.validation import is_storable, problem_with_name
from tidemill.errors import ConfigurationError


class DocumentPage(msgspec.Struct, frozen=True):
    """A page of documents. `cursor` is the argument for the next page; None on the last page."""

    documents: tuple[Document, ...]
    cursor: str | None


def document_cursor(document: Document) -> str:
    """Returns the cursor that continues after this document."""
    return f"{document.created!r} {document.id}"


def parse_document_cursor(cursor: str) -> tuple[float, str]:
    created, _, id_ = cursor.partition(" ")
    with suppress(ValueError):
        if math.isfinite(began := float(created)) and problem_with_name("id", id_) is None:
            return began, id_
    raise ConfigurationError(f"cursor: must be one that a page ended with, is {cursor[:50]!r}")


def check_advances(advances: Sequence[Advance]) -> None:
    """Raises ConfigurationError for the first invalid advance (F5)."""
    for item in advances:
        if problem := problem_with_advance(item):
            raise ConfigurationError(f"{item.kind} {item.id[:50]!r} cannot be advanced: {problem}")


def refuse_unstorable(field: str, words: Iterable[str] | None) -> None:
    """Raises ConfigurationError if a text in `words` contains a NUL character or a lone surrogate (F23).
    `field` is the name in the error message."""
    for word in words or ():
        if not is_storable(word):
            raise ConfigurationError(
                f"{field}: must be text without NUL characters or lone surrogates, is {word[:50]!r}"
            )


class DocumentStore(Protocol):
    """The methods that store, advance and find documents."""

    async def advance(self, advances: Sequence[Advance]) -> list[AdvanceResult]:
        """Applies advances. Returns one result per advance, in order. A refused advance does not stop the
        next ones.

        F1  An advance is atomic: the document's new version, the jobs that it creates and the job changes
            that it handled are written together.
        F2  An advance is applied if the document has the expected revision; otherwise nothing changes.
            Revision 0 expects that the id is not known (F4).
        F3  Jobs are inserted as usual, but without queue length limits. A job whose id is known stays
            unchanged. An invalid job is stored as failed (`core.transitions.rejected_job`). The result has
            one id per job: its own, or that of the holder of its unique key.
        F4  A finished document is kept for `keep` seconds. The id of a deleted flow is remembered for
            KNOWN_ID_SECONDS. The id of a schedule or a record can be used again at once.
        F5  An invalid advance (`core.documents.problem_with_advance`) raises ConfigurationError. The whole
            call then changes nothing."""
        ...

    async def worklist(
        self, kind: DocumentKind, limit: int = 100, ids: Sequence[str] | None = None
    ) -> Worklist:
        """Returns up to `limit` documents that have to be advanced, only those in `ids` if given.

        Documents with changed jobs come first, then due documents; in both parts the longest wait first.

        F10 A flow is on the worklist from the transaction in which one of its jobs ends, is deleted, or
            leaves a final state. It stays there until an advance has handled the change. Changes are listed
            oldest first, at most MAX_CHANGES_PER_DOCUMENT per document. A change without a job means: look up
            all jobs of the document.
        F11 A document whose `due` has passed is on the worklist until an advance gives it another `due`.
        F12 `next_due` is the number of seconds until the next document of that kind is due, also outside
            `ids`.
        F13 A record is never on a worklist."""
        ...

    async def documents(self, kind: DocumentKind, ids: Sequence[str]) -> list[Document | None]:
        """Returns the documents with these ids.

        F20 One answer per id, in order; None for an id that does not exist."""
        ...

    async def find_documents(
        self,
        kind: DocumentKind,
        *,
        name: str | None = None,
        states: Sequence[str] | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> DocumentPage:
        """Returns a page of up to `limit` documents, newest first. `name` and `states`, if given, restrict
        the page.

        F21 Following `cursor` returns every matching document once, even if documents are created
            meanwhile."""
        ...

    async def document_counts(self, kind: DocumentKind) -> dict[str, int]:
        """Returns the number of documents of that kind in each state.

        F22 The numbers are exact at every moment.
        F23 An id, name or state that no store can keep (a NUL character, a lone surrogate) raises
            ConfigurationError in every method of this protocol."""
        ...
