"""The server's clock decides, and a step of it moves neither leases nor windows (I26).

No test can step the machine's clock: `skew` in the table `clock` is added to the server's time, where a
step would show."""

from __future__ import annotations

import pytest

from tests.stores.postgres.conftest import Connect
from tidemill.contract.jobs import ClockReading
from tidemill.core.claims import Heartbeat
from tidemill.stores.postgres import PostgresStore
from tidemill.stores.postgres.clock import PostgresClock
from tidemill.stores.postgres.connection import PostgresConnection
from tidemill.stores.postgres.transaction import PostgresTransaction
from tidemill.testing.clocks import ManualClock

HOUR = 3600.0


async def read(connection: PostgresConnection) -> ClockReading:
    async def work(step: PostgresTransaction) -> ClockReading:
        return await step.time()

    return await connection.run(work)


async def step_server_clock(connection: PostgresConnection, by: float) -> None:
    await connection.fetch("UPDATE tidemill.clock SET skew = skew + $1", by)


async def corrections(connection: PostgresConnection) -> int:
    return int((await connection.fetch("SELECT epoch FROM tidemill.clock"))[0][0]) - 1


@pytest.mark.parametrize("by", [HOUR, -HOUR, 24 * HOUR, -24 * HOUR])
async def test_i26_a_step_of_the_server_moves_the_wall_clock_only(
    connection: PostgresConnection, by: float
) -> None:
    before = await read(connection)
    await step_server_clock(connection, by)
    after = await read(connection)
    assert after.boot - before.boot == pytest.approx(0, abs=1)
    assert after.wall - before.wall == pytest.approx(by, abs=1)
    assert await corrections(connection) == 1


async def test_i26_all_handles_accept_the_first_correction(connect: Connect) -> None:
    """Also handles that first read the clock between the step and its correction."""
    old, other = await connect(), await connect()
    before = await read(old)
    await read(other)
    await step_server_clock(old, HOUR)
    late = await connect()
    assert (await read(late)).boot - before.boot == pytest.approx(HOUR, abs=1)
    for connection in (old, late, other, late, old):
        assert (await read(connection)).boot - before.boot == pytest.approx(0, abs=1)
    assert await corrections(old) == 1


async def test_a_halted_caller_is_ignored_if_a_worker_confirms_the_clock(
    connection: PostgresConnection,
) -> None:
    """Its clock stood still with its virtual machine; the server's is right."""
    before = await read(connection)
    await step_server_clock(connection, 60)
    await connection.fetch(
        "INSERT INTO tidemill.workers (id, number, lease, seen, clock_epoch) VALUES ('w', 1, $1, $2, 1)",
        before.boot + 90,
        before.wall + 59,
    )
    for _ in range(2):
        assert (await read(connection)).boot - before.boot == pytest.approx(60, abs=1)
    assert not await corrections(connection)


async def test_i26_a_worker_without_an_expectation_confirms_nothing(
    connection: PostgresConnection, postgres_url: str
) -> None:
    """A worker that is new, or does not know the last correction, accepts any time."""
    before = await read(connection)
    await step_server_clock(connection, HOUR)
    late = await PostgresStore(postgres_url).open()
    await late.extend(Heartbeat(worker="late", received=0, lease=30.0))
    assert (await read(connection)).boot - before.boot == pytest.approx(0, abs=1)
    await step_server_clock(connection, HOUR)
    await late.extend(Heartbeat(worker="late", received=0, lease=30.0))
    assert (await read(connection)).boot - before.boot == pytest.approx(0, abs=1)
    await late.close()


@pytest.mark.parametrize("by", [HOUR, -HOUR])
async def test_i26_a_clock_step_that_is_reverted_at_once(
    connection: PostgresConnection, postgres_url: str, by: float
) -> None:
    """A worker that confirmed the clock just before both steps does not confirm the second."""
    before = await read(connection)
    worker = await PostgresStore(postgres_url).open()
    await worker.read_clock()
    await worker.extend(Heartbeat(worker="w", received=0, lease=30.0))
    for step in (by, -by):
        await step_server_clock(connection, step)
        assert (await read(connection)).boot - before.boot == pytest.approx(0, abs=1)
    await worker.close()


async def test_i26_a_handle_that_only_sends_heartbeats_learns_of_corrections(
    connection: PostgresConnection, postgres_url: str
) -> None:
    """Otherwise it could not detect the next step."""
    worker = await PostgresStore(postgres_url).open()
    beat = Heartbeat(worker="w", received=0, lease=30.0)
    await worker.extend(beat)
    before = await read(connection)
    await step_server_clock(connection, HOUR)
    await read(connection)
    await worker.extend(beat)
    await step_server_clock(connection, -HOUR)
    await worker.extend(beat)
    assert await corrections(connection) == 2
    assert (await read(connection)).boot - before.boot == pytest.approx(0, abs=1)
    await worker.close()


def test_i26_a_late_answer_does_not_revert_a_correction() -> None:
    clock = PostgresClock(None)
    clock.update(5000.0, 100.0, 2)
    clock.update(5000.0, 3700.0, 1)
    _, expected, epoch = clock.arguments()
    assert expected == pytest.approx(100.0, abs=1)
    assert epoch == 2


async def test_a_small_clock_difference_is_ignored(connection: PostgresConnection) -> None:
    await read(connection)
    await step_server_clock(connection, 4)
    await read(connection)
    await step_server_clock(connection, -1)
    await read(connection)
    assert not await corrections(connection)


async def test_an_injected_clock_is_used_unchanged(connect: Connect) -> None:
    clock = ManualClock()
    connection = await connect(clock=clock)
    assert await read(connection) == ClockReading(clock.wall(), clock.boot())
    clock.advance(HOUR)
    assert await read(connection) == ClockReading(clock.wall(), clock.boot())
    rows = await connection.fetch(
        "SELECT * FROM tidemill.read_clock($1, $2, $3)", *connection.clock.arguments()
    )
    assert (rows[0]["wall"], rows[0]["boot"]) == (clock.wall(), clock.boot())
    assert not await corrections(connection)
    assert connection.clock.boot_id == clock.boot_id


async def test_j63_a_schema_has_one_boot(connect: Connect) -> None:
    """A restart of the server ends no lease: its clock continues."""
    first, second = await connect(), await connect()
    assert first.clock.boot_id == second.clock.boot_id != ""
