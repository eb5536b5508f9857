"""The few server connections of one event loop."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from typing import Any

from tidemill.stores.postgres.address import Address
from tidemill.stores.postgres.faults import TROUBLE
from tidemill.stores.postgres.links import Links


async def test_whoever_stops_waiting_for_a_connection_leaves_nothing_to_complain_of() -> None:
    """At whichever moment it does: so many turns of the loop after it began."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, said: complaints.append(said))

    def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        for turns in range(20):
            links = Links(Address.parse(f"postgresql://someone@{host}:{port}/tests", None))
            taking = asyncio.create_task(links.take())
            for _ in range(turns):
                await asyncio.sleep(0)
            taking.cancel()
            with suppress(asyncio.CancelledError, *TROUBLE):
                await taking
            await links.close()
    del taking
    gc.collect()
    assert complaints == []
