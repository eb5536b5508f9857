"""The audit log: newest first, page by page, for as long as was said."""

from __future__ import annotations

from tidemill import Tidemill
from tidemill.access.audit import MOST, Outcome
from tidemill.seam.roles import Role, Who
from tidemill.testing.manual import ManualClock

ANN = Who("ann", Role.OPERATOR, "t1")


async def test_newest_first_page_by_page(app: Tidemill, clock: ManualClock) -> None:
    for number in range(5):
        outcome = Outcome.REFUSED if number == 3 else Outcome.DONE
        await app.access.audit.write(ANN, f"act {number}", {"queue": "feeds"}, address="::1", outcome=outcome)
        clock.advance(1)
    first = await app.access.audit.page(3)
    rest = await app.access.audit.page(3, first.cursor)
    found = [*first.entries, *rest.entries]
    assert [entry.action for entry in found] == [f"act {number}" for number in (4, 3, 2, 1, 0)]
    assert rest.cursor is None
    assert (found[0].who, found[0].token, found[0].address, found[0].about) == (
        "ann",
        "t1",
        "::1",
        {"queue": "feeds"},
    )
    [refused] = (await app.access.audit.page(outcome=Outcome.REFUSED)).entries
    assert refused.action == "act 3"


async def test_an_entry_goes_when_it_has_been_kept_long_enough(app: Tidemill, clock: ManualClock) -> None:
    await app.access.audit.write(ANN, "act")
    clock.advance(app.settings.value("web.keep_audit") - 1)
    await app.store.prune()
    assert len((await app.access.audit.page()).entries) == 1
    clock.advance(1)
    await app.store.prune()
    assert (await app.access.audit.page()).entries == ()


async def test_no_entry_is_a_large_one(app: Tidemill) -> None:
    await app.access.audit.write(ANN, "act", {"reason": "x" * 10_000, "ids": list(range(10_000))})
    [entry] = (await app.access.audit.page()).entries
    assert all(len(said) <= MOST + 1 for said in entry.about.values())
