"""The audit log: newest first, page by page, kept for the configured time."""

from __future__ import annotations

from tidemill import Tidemill
from tidemill.auth.audit_log import MAX_DETAIL_CHARS, AuditOutcome
from tidemill.http_routes.routes import Role, User
from tidemill.testing.clocks import ManualClock

ANN = User("ann", Role.OPERATOR, "t1")


async def test_entries_are_listed_newest_first(app: Tidemill, clock: ManualClock) -> None:
    for number in range(5):
        outcome = AuditOutcome.REFUSED if number == 3 else AuditOutcome.DONE
        await app.auth.audit.write(ANN, f"act {number}", {"queue": "feeds"}, address="::1", outcome=outcome)
        clock.advance(1)
    first = await app.auth.audit.page(3)
    rest = await app.auth.audit.page(3, first.cursor)
    found = [*first.entries, *rest.entries]
    assert [entry.action for entry in found] == [f"act {number}" for number in (4, 3, 2, 1, 0)]
    assert rest.cursor is None
    assert (found[0].user, found[0].token, found[0].address, found[0].details) == (
        "ann",
        "t1",
        "::1",
        {"queue": "feeds"},
    )
    [refused] = (await app.auth.audit.page(outcome=AuditOutcome.REFUSED)).entries
    assert refused.action == "act 3"


async def test_an_entry_is_deleted_after_its_retention(app: Tidemill, clock: ManualClock) -> None:
    await app.auth.audit.write(ANN, "act")
    clock.advance(app.settings.value("web.keep_audit") - 1)
    await app.store.prune()
    assert len((await app.auth.audit.page()).entries) == 1
    clock.advance(1)
    await app.store.prune()
    assert (await app.auth.audit.page()).entries == ()


async def test_long_details_are_cut(app: Tidemill) -> None:
    await app.auth.audit.write(ANN, "act", {"reason": "x" * 10_000, "ids": list(range(10_000))})
    [entry] = (await app.auth.audit.page()).entries
    assert all(len(text) <= MAX_DETAIL_CHARS + 1 for text in entry.details.values())
