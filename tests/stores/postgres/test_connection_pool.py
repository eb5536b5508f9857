"""The connection pool of one event loop."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from typing import Any

from tidemill.stores.postgres.address import PostgresAddress
from tidemill.stores.postgres.connection_pool import ConnectionPool
from tidemill.stores.postgres.errors import DRIVER_ERRORS


async def test_a_cancelled_connect_leaves_no_unread_exception() -> None:
    """Cancels after every possible number of loop iterations."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))

    def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        for turns in range(20):
            links = ConnectionPool(PostgresAddress.parse(f"postgresql://someone@{host}:{port}/tests", None))
            taking = asyncio.create_task(links.take())
            for _ in range(turns):
                await asyncio.sleep(0)
            taking.cancel()
            with suppress(asyncio.CancelledError, *DRIVER_ERRORS):
                await taking
            await links.close()
    del taking
    gc.collect()
    assert complaints == []
