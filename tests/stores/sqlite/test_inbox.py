"""The inbox is only used for queues that have no length limit."""

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
async def test_q2_j12_the_inbox_is_only_for_queues_without_a_limit(
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
    connection = apsw.Connection(str(store.path))
    assert connection.execute("SELECT count(*) FROM inbox").get == int(is_short)
    connection.close()
    assert (await store.counts())["default"] == {"ready": 1}
