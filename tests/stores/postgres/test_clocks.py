"""The server's clock is the truth, and a step of it moves neither leases nor windows (I26).

No test can step the machine's clock: `skew` in the table `clock` is added to what the server reads, which
is where a step would show.
"""

from __future__ import annotations

import pytest

from tests.stores.postgres.conftest import Connect
from tidemill.contract.jobs import Reading
from tidemill.core.claims import Heartbeat
from tidemill.stores.postgres import PostgresStore
from tidemill.stores.postgres.clocks import StoreClock
from tidemill.stores.postgres.connection import Connection
from tidemill.stores.postgres.step import Step
from tidemill.testing.manual import ManualClock

HOUR = 3600.0


async def read(connection: Connection) -> Reading:
    async def work(step: Step) -> Reading:
        return await step.time()

    return await connection.run(work)


async def step_server_clock(connection: Connection, by: float) -> None:
    await connection.fetch("UPDATE tidemill.clock SET skew = skew + $1", by)


async def corrections(connection: Connection) -> int:
    return int((await connection.fetch("SELECT epoch FROM tidemill.clock"))[0][0]) - 1


@pytest.mark.parametrize("by", [HOUR, -HOUR, 24 * HOUR, -24 * HOUR])
async def test_i26_a_step_of_the_server_moves_the_wall_clock_only(connection: Connection, by: float) -> None:
    before = await read(connection)
    await step_server_clock(connection, by)
    after = await read(connection)
    assert after.boot - before.boot == pytest.approx(0, abs=1)
    assert after.wall - before.wall == pytest.approx(by, abs=1)
    assert await corrections(connection) == 1


async def test_i26_everybody_believes_the_first_who_notices(connect: Connect) -> None:
    """Also whoever came between the step and its correction, and took the wrong time for the right one."""
    old, other = await connect(), await connect()
    before = await read(old)
    await read(other)
    await step_server_clock(old, HOUR)
    late = await connect()
    assert (await read(late)).boot - before.boot == pytest.approx(HOUR, abs=1)
    for connection in (old, late, other, late, old):
        assert (await read(connection)).boot - before.boot == pytest.approx(0, abs=1)
    assert await corrections(old) == 1


async def test_who_was_halted_is_not_believed_where_a_worker_knows_better(connection: Connection) -> None:
    """Its own clock stood still with its virtual machine; the server's is right."""
    before = await read(connection)
    await step_server_clock(connection, 60)
    await connection.fetch(
        "INSERT INTO tidemill.workers (id, number, lease, seen, agreed) VALUES ('w', 1, $1, $2, 1)",
        before.boot + 90,
        before.wall + 59,
    )
    for _ in range(2):
        assert (await read(connection)).boot - before.boot == pytest.approx(60, abs=1)
    assert not await corrections(connection)


async def test_i26_who_expected_nothing_does_not_speak_for_a_step(
    connection: Connection, postgres_url: str
) -> None:
    """A worker that came just after it, or has not heard of the last correction, takes any time for the right
    one."""
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
async def test_i26_a_step_that_is_taken_back_at_once(
    connection: Connection, postgres_url: str, by: float
) -> None:
    """A worker that agreed just before both does not speak for the second."""
    before = await read(connection)
    worker = await PostgresStore(postgres_url).open()
    await worker.read_clock()
    await worker.extend(Heartbeat(worker="w", received=0, lease=30.0))
    for step in (by, -by):
        await step_server_clock(connection, step)
        assert (await read(connection)).boot - before.boot == pytest.approx(0, abs=1)
    await worker.close()


async def test_i26_who_only_says_what_it_holds_hears_of_corrections_too(
    connection: Connection, postgres_url: str
) -> None:
    """Else it could not tell the next step."""
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


def test_i26_an_answer_that_was_overtaken_takes_no_correction_back() -> None:
    clock = StoreClock(None)
    clock.heard(5000.0, 100.0, 2)
    clock.heard(5000.0, 3700.0, 1)
    _, expected, epoch = clock.asked()
    assert expected == pytest.approx(100.0, abs=1)
    assert epoch == 2


async def test_a_small_difference_is_none(connection: Connection) -> None:
    await read(connection)
    await step_server_clock(connection, 4)
    await read(connection)
    await step_server_clock(connection, -1)
    await read(connection)
    assert not await corrections(connection)


async def test_the_clock_of_a_test_is_taken_as_it_is(connect: Connect) -> None:
    clock = ManualClock()
    connection = await connect(clock=clock)
    assert await read(connection) == Reading(clock.wall(), clock.boot())
    clock.advance(HOUR)
    assert await read(connection) == Reading(clock.wall(), clock.boot())
    rows = await connection.fetch("SELECT * FROM tidemill.read_clock($1, $2, $3)", *connection.clock.asked())
    assert (rows[0]["wall"], rows[0]["boot"]) == (clock.wall(), clock.boot())
    assert not await corrections(connection)
    assert connection.clock.boot_id == clock.boot_id


async def test_j63_a_schema_has_one_boot(connect: Connect) -> None:
    """A restart of the server ends no lease: its clock goes on."""
    first, second = await connect(), await connect()
    assert first.clock.boot_id == second.clock.boot_id != ""
