"""Where the primary is right now."""

from __future__ import annotations

from tidemill.stores.redis.address import Address, Node


async def locate(address: Address) -> Node:
    return address.nodes[0]
