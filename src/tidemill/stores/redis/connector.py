"""Finds the primary (by URL, Sentinel or Cluster) and keeps one connection to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tidemill.clock import SystemEntropy
from tidemill.errors import ConfigurationError, StoreReadOnly, StoreUnavailable
from tidemill.stores.redis.address import RedisAddress, RedisLogin, RedisNode
from tidemill.stores.redis.clock import InjectedRedisClock, RedisServerClock
from tidemill.stores.redis.connection import ConnectionFactory, RedisConnection
from tidemill.stores.redis.errors import (
    RETRYABLE_CODES,
    ConnectionLostError,
    RedisReplyError,
    translate_reply,
)
from tidemill.stores.redis.handshake import RedisServer, log_in, perform_handshake, read_reply

NodeLookup = Callable[[RedisConnection, RedisNode, float], Awaitable[RedisNode | None]]


class RedisTopology:
    """Finds the primary server. Remembers the nodes of a Cluster, because the node in the URL may be gone."""

    def __init__(self, address: RedisAddress, factory: ConnectionFactory) -> None:
        self._address, self._factory = address, factory
        self._known = list(address.nodes)
        self._named: RedisNode | None = None

    async def locate(self, until: float) -> RedisNode:
        named, self._named = self._named, None
        if named is not None:
            return named
        match self._address.discovery:
            case "sentinel":
                return await self._query_nodes(self._primary_by_name, self._address.sentinel_login, until)
            case "cluster":
                return await self._query_nodes(self._node_by_slot, self._address.login, until)
            case _:
                return self._address.nodes[0]

    def follow_moved(self, error_reply: RedisReplyError, by: RedisNode) -> None:
        """Handles the reply `MOVED <slot> <host>:<port>` of a Cluster: the next `locate` returns that node.
        `by`: the node that replied. Raises ConfigurationError if the URL is not for a Cluster."""
        host, _, port = str(error_reply).rpartition(" ")[2].rpartition(":")
        if self._address.discovery != "cluster":
            raise ConfigurationError(
                f"{self._address}: the server is a node of a Cluster and has other keys; write "
                f"{self._address.scheme}+cluster://… instead"
            )
        self._named = RedisNode(host.strip("[]") or by.host, int(port))

    async def _query_nodes(self, lookup: NodeLookup, login: RedisLogin, until: float) -> RedisNode:
        """Asks the known nodes in order with `lookup`, and returns the first answer. The nodes share the time
        that is left. Raises ConnectionLostError if no node answers."""
        reason = ConnectionLostError("nobody was asked")
        left = until - self._factory.time()
        for node in list(self._known):
            by = min(self._factory.time() + left / len(self._known), until)
            try:
                connection = await self._factory.connect(node, self._address.tls, by)
            except ConnectionLostError as lost:
                reason = ConnectionLostError(f"{node}: {lost}")
                continue
            try:
                await log_in(connection, login, by)
                found = await lookup(connection, node, by)
            except ConnectionLostError as lost:
                reason = ConnectionLostError(f"{node}: {lost}")
                continue
            finally:
                await connection.close()
            if found is None:
                raise ConnectionLostError(
                    "no node of the Cluster has the slot where the keys of this prefix are"
                )
            return found
        raise reason

    async def _primary_by_name(self, connection: RedisConnection, _: RedisNode, until: float) -> RedisNode:
        service = self._address.service
        found = await read_reply(connection, until, b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", service)
        if found is None:
            raise ConfigurationError(
                f"{self._address}: its Sentinels watch no service {service!r}; put the name of `sentinel "
                "monitor` into the URL"
            )
        return RedisNode(found[0].decode(), int(found[1]))

    async def _node_by_slot(
        self, connection: RedisConnection, node: RedisNode, until: float
    ) -> RedisNode | None:
        try:
            slot = await read_reply(connection, until, b"CLUSTER", b"KEYSLOT", self._address.root)
            ranges = await read_reply(connection, until, b"CLUSTER", b"SLOTS")
        except RedisReplyError as error_reply:
            if "cluster support disabled" not in str(error_reply):
                raise
            plain = self._address.scheme.partition("+")[0]
            raise ConfigurationError(
                f"{self._address}: the server is not part of a Cluster; write {plain}://… instead"
            ) from error_reply
        primaries = {
            first: RedisNode((at[0] or b"").decode() or node.host, at[1]) for first, _, at, *_ in ranges
        }
        self._known = list(dict.fromkeys([*primaries.values(), *self._address.nodes]))
        for first, last, *_ in ranges:
            if first <= slot <= last:
                return primaries[first]
        return None


CONNECT_TIMEOUT_SECONDS = 2.0
"""A connection attempt to one server ends after this many seconds; then comes the next attempt."""
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.02, 0.5

MIN_TRY_SECONDS = 0.1
"""With less time left, another attempt would only time out, and a timeout hides the real error."""

FailureReason = ConnectionLostError | RedisReplyError | StoreReadOnly


class RedisConnector:
    """Keeps one connection to the primary server. `on_connected` is called whenever a new connection is
    ready."""

    def __init__(
        self,
        address: RedisAddress,
        factory: ConnectionFactory,
        clock: InjectedRedisClock | RedisServerClock,
        on_connected: Callable[[], None] | None,
    ) -> None:
        self.connection: RedisConnection | None = None
        self.server: RedisServer | None = None
        self.node: RedisNode | None = None
        self._address, self._factory, self._clock = address, factory, clock
        self._on_connected = on_connected
        self._topology = RedisTopology(address, factory)
        self._jitter = SystemEntropy()  # not the injected entropy: its draws belong to the store's decisions
        self._pause = FIRST_PAUSE_SECONDS
        self._closed = False

    async def get_connection(self, until: float) -> RedisConnection:
        """Returns the open connection, or opens one before the deadline `until`. Concurrent callers wait for
        the same attempt. Raises ConfigurationError if the settings are wrong."""
        last_error: FailureReason | None = None
        async with self._factory.connect_lock():
            while self.connection is None or self.connection.lost is not None:
                if self._closed:
                    raise StoreUnavailable(f"{self._address}: the store is closed; open it again")
                is_cut_off = self._factory.time() + CONNECT_TIMEOUT_SECONDS > until
                try:
                    self.connection = await self._connect(
                        min(until, self._factory.time() + CONNECT_TIMEOUT_SECONDS)
                    )
                except ConnectionLostError as lost:
                    last_error = last_error if is_cut_off and last_error is not None else lost
                    await self.back_off(until, last_error)
                except RedisReplyError as error_reply:
                    if error_reply.word not in RETRYABLE_CODES:
                        raise translate_reply(error_reply, str(self._address)) from error_reply
                    self.note_moved(error_reply)
                    last_error = error_reply
                    await self.back_off(until, error_reply)
                except StoreReadOnly as error:
                    if self.server is None and not self._address.discovery:
                        raise  # at start the URL is wrong; later a replica is being promoted
                    last_error = error
                    await self.back_off(until, error)
            self._pause = FIRST_PAUSE_SECONDS
            return self.connection

    async def close(self) -> None:
        """Waits until the requests in flight have ended, and then closes the connection."""
        self._closed = True
        connection = self.connection
        if connection is not None:
            await connection.finish()
            self.connection = None
            await connection.close()

    def note_moved(self, error_reply: RedisReplyError) -> None:
        if error_reply.word == "MOVED" and self.node is not None:
            self._topology.follow_moved(error_reply, self.node)

    async def back_off(self, until: float, reason: FailureReason) -> None:
        """Waits before the next attempt, with growing pauses. Raises the error for `reason` if no time is
        left for another attempt."""
        pause = self._pause * (0.5 + self._jitter.chance())
        self._pause = min(self._pause * 2, MAX_PAUSE_SECONDS)
        if self._factory.time() + pause >= until - MIN_TRY_SECONDS:
            raise self.error(reason) from reason
        await self._factory.pause(pause)

    def error(self, reason: FailureReason) -> Exception:
        """Returns the error that the caller of a store method gets for `reason`. A ConfigurationError becomes
        StoreUnavailable, so that callers try again."""
        if isinstance(reason, ConnectionLostError):
            remedy = "" if self.server else "; check host and port in the URL, and that Redis runs there"
            return StoreUnavailable(f"{self._address}: the server cannot be reached: {reason}{remedy}")
        error = translate_reply(reason, str(self._address)) if isinstance(reason, RedisReplyError) else reason
        return StoreUnavailable(str(error)) if isinstance(error, ConfigurationError) else error

    async def _connect(self, until: float) -> RedisConnection:
        self.node = await self._topology.locate(until)
        connection = await self._factory.connect(self.node, self._address.tls, until)
        try:
            self.server = await perform_handshake(connection, self._address, self._clock, until)
        except BaseException:
            await connection.close()
            raise
        if self._on_connected is not None:
            self._on_connected()
        return connection
