"""Opens TCP connections to a host name with several addresses, some of which may be dead.

The next address is tried while earlier attempts still wait for an answer (RFC 8305, "Happy Eyeballs").
asyncio has an option for this, uvloop has none."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

STAGGER_SECONDS = 0.25
"""The next address is tried after this time, beside the addresses that have not answered."""

IDLE_SECONDS, PROBE_SECONDS, MAX_PROBES = 15, 5, 3
"""TCP keepalive: a connection that the network dropped is closed after half a minute without traffic."""

AddressInfo = tuple[Any, Any, int, str, Any]
"""One result of `getaddrinfo`."""


async def open_socket(host: str, port: int) -> socket.socket:
    """Returns a socket that is connected to the first address of `host` that answers. If all addresses fail,
    raises the error that occurred first."""
    loop = asyncio.get_running_loop()
    addresses = interleave_families(await _addresses(host, port))
    if len(addresses) == 1:
        return await _connect(addresses[0])
    pending: set[asyncio.Task[socket.socket]] = set()
    errors: list[BaseException] = []
    try:
        while addresses or pending:
            if addresses:
                pending.add(loop.create_task(_connect(addresses.pop(0))))
            done, pending = await asyncio.wait(
                pending, timeout=STAGGER_SECONDS if addresses else None, return_when=asyncio.FIRST_COMPLETED
            )
            winners = [task for task in done if task.exception() is None]
            errors += [error for task in done if (error := task.exception()) is not None]
            if winners:
                _discard(winners[1:])
                return winners[0].result()
    finally:
        _discard(pending)
    raise errors[0]


def open_blocking_socket(host: str, port: int, seconds: float) -> socket.socket:
    """Returns a connected socket, without an event loop. `seconds`: the limit for all addresses together, and
    the timeout of the returned socket."""
    addresses = interleave_families(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    errors: list[OSError] = []
    for address in addresses:
        try:
            opened = _connect_blocking(address, seconds / len(addresses))
        except OSError as error:
            errors.append(error)
        else:
            opened.settimeout(seconds)
            return opened
    raise errors[0]


def interleave_families(addresses: Sequence[AddressInfo]) -> list[AddressInfo]:
    """Returns the addresses with IPv6 and IPv4 alternating. The first address stays first."""
    first = [address for address in addresses if address[0] == addresses[0][0]]
    other = [address for address in addresses if address[0] != addresses[0][0]]
    turns = [address for pair in zip(first, other, strict=False) for address in pair]
    return turns + first[len(other) :] + other[len(first) :]


def keep_alive(opened: socket.socket) -> None:
    """Turns on TCP keepalive, and turns off the delay that collects small packets (TCP_NODELAY)."""
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("KEEPIDLE", IDLE_SECONDS), ("KEEPINTVL", PROBE_SECONDS), ("KEEPCNT", MAX_PROBES)):
        if (
            number := getattr(socket, f"TCP_{option}", None)
        ) is not None:  # macOS names one of them otherwise
            opened.setsockopt(socket.IPPROTO_TCP, number, value)


async def _addresses(host: str, port: int) -> Sequence[AddressInfo]:
    """Returns the addresses of a host. A host name is resolved in a thread."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


async def _connect(address: AddressInfo) -> socket.socket:
    opened = _new_socket(address)
    opened.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(opened, address[4])
    except BaseException:
        opened.close()
        raise
    return opened


def _connect_blocking(address: AddressInfo, seconds: float) -> socket.socket:
    opened = _new_socket(address)
    opened.settimeout(seconds)
    try:
        opened.connect(address[4])
    except BaseException:
        opened.close()
        raise
    return opened


def _new_socket(address: AddressInfo) -> socket.socket:
    opened = socket.socket(address[0], socket.SOCK_STREAM)
    keep_alive(opened)
    return opened


def _discard(tasks: Sequence[asyncio.Task[socket.socket]] | set[asyncio.Task[socket.socket]]) -> None:
    for task in tasks:
        if not task.cancel() and not task.cancelled() and task.exception() is None:
            task.result().close()
