"""Which queues a lone job may enter by the short way: those that surely have no length limit."""

import apsw
import pytest

from tests.stores.sqlite.conftest import group
from tidemill.core.queues import QueueChanges, QueueSettings
from tidemill.stores.sqlite import SqliteStore

LATER = 4_000_000_000.0


@pytest.mark.parametrize(
    ("declared", "changes", "until", "is_short"),
    [
        (None, None, None, True),
        (5, None, None, False),
        (None, QueueChanges(weight=2), None, True),
        (5, QueueChanges(weight=2), None, False),
        (None, QueueChanges(max_length=5), None, False),
        (5, QueueChanges(max_length=None), None, True),
        (5, QueueChanges(max_length=None), LATER, False),
        (None, QueueChanges(max_length=5), LATER, False),
    ],
)
async def test_q2_j12_the_short_way_in_is_for_queues_without_a_limit(
    store: SqliteStore,
    declared: int | None,
    changes: QueueChanges | None,
    until: float | None,
    is_short: bool,
) -> None:
    await store.declare({"default": QueueSettings(max_length=declared)})
    if changes is not None:
        await store.override("default", changes, by="ann", until=until)
    await store.insert([group("a")])
    look = apsw.Connection(str(store.path))
    assert look.execute("SELECT count(*) FROM inbox").get == int(is_short)
    look.close()
    assert (await store.counts())["default"] == {"ready": 1}
