"""Looking after the shard: what serves it, and giving memory back. Copies are the server's own business."""

from __future__ import annotations

from pathlib import Path

from tidemill.contract.upkeep import StoreFacts
from tidemill.errors import ConfigurationError
from tidemill.stores.redis import policy
from tidemill.stores.redis.greeting import SCHEMA
from tidemill.stores.redis.handle import Handle


async def describe(handle: Handle) -> StoreFacts:
    """A server does not count by prefix: `bytes` is all it keeps, for other programs too."""
    server = policy.read(await handle.shard.ask(b"INFO"))
    return StoreFacts(
        kind="redis",
        engine=server.engine,
        location=str(handle.address),
        schema=SCHEMA,
        bytes=server.bytes,
        warnings=(*policy.warnings(server), *handle.warnings()),
    )


def refuse_backup(handle: Handle, target: Path) -> ConfigurationError:
    """U3"""
    node = handle.shard.connector.node
    where = "" if node is None else f" -s {node.path}" if node.path else f" -h {node.host} -p {node.port}"
    return ConfigurationError(
        f"{target}: a Redis server makes its own copies; run `redis-cli{where} --rdb {target}`, or BGSAVE "
        "and copy the server's dump.rdb"
    )


async def compact(handle: Handle) -> None:
    """U4: what the allocator kept of freed memory goes back to the machine, where the server can do that."""
    await handle.shard.ask(b"MEMORY", b"PURGE")
