"""Where the primary is right now: where the URL says, where Sentinels say, or by its slot in a Cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tidemill.errors import ConfigurationError
from tidemill.stores.redis.address import Address, Login, Node
from tidemill.stores.redis.faults import Lost, Said
from tidemill.stores.redis.greeting import expect, log_in
from tidemill.stores.redis.lines import Connection, Line

Question = Callable[[Connection, Node, float], Awaitable[Node | None]]


class Topology:
    """Remembers who was named last: the one in the URL may be gone for good."""

    def __init__(self, address: Address, line: Line) -> None:
        self._address, self._line = address, line
        self._known = list(address.nodes)
        self._named: Node | None = None

    async def locate(self, until: float) -> Node:
        named, self._named = self._named, None
        if named is not None:
            return named
        match self._address.found:
            case "sentinel":
                return await self._ask(self._primary_by_name, self._address.sentinel_login, until)
            case "cluster":
                return await self._ask(self._node_by_slot, self._address.login, until)
            case _:
                return self._address.nodes[0]

    def moved(self, said: Said, by: Node) -> None:
        """`MOVED 3999 127.0.0.1:6381`: look there first. Without a host it is the one who said so."""
        host, _, port = str(said).rpartition(" ")[2].rpartition(":")
        if self._address.found != "cluster":
            raise ConfigurationError(
                f"{self._address}: the server is a node of a Cluster and has other keys; write "
                f"{self._address.scheme}+cluster://… instead"
            )
        self._named = Node(host.strip("[]") or by.host, int(port))

    async def _ask(self, question: Question, login: Login, until: float) -> Node:
        """Whoever answers first, in the order they are known; they share the time there is."""
        why = Lost("nobody was asked")
        left = until - self._line.time()
        for node in list(self._known):
            by = min(self._line.time() + left / len(self._known), until)
            try:
                wire = await self._line.connect(node, self._address.tls, by)
            except Lost as lost:
                why = Lost(f"{node}: {lost}")
                continue
            try:
                await log_in(wire, login, by)
                found = await question(wire, node, by)
            except Lost as lost:
                why = Lost(f"{node}: {lost}")
                continue
            finally:
                await wire.close()
            if found is None:
                raise Lost("no node of the Cluster has the slot where the keys of this prefix are")
            return found
        raise why

    async def _primary_by_name(self, wire: Connection, _: Node, until: float) -> Node:
        service = self._address.service
        found = await expect(wire, until, b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", service)
        if found is None:
            raise ConfigurationError(
                f"{self._address}: its Sentinels watch no service {service!r}; put the name of `sentinel "
                "monitor` into the URL"
            )
        return Node(found[0].decode(), int(found[1]))

    async def _node_by_slot(self, wire: Connection, asked: Node, until: float) -> Node | None:
        try:
            slot = await expect(wire, until, b"CLUSTER", b"KEYSLOT", self._address.root)
            ranges = await expect(wire, until, b"CLUSTER", b"SLOTS")
        except Said as said:
            if "cluster support disabled" not in str(said):
                raise
            plain = self._address.scheme.partition("+")[0]
            raise ConfigurationError(
                f"{self._address}: the server is not part of a Cluster; write {plain}://… instead"
            ) from said
        primaries = {first: Node((at[0] or b"").decode() or asked.host, at[1]) for first, _, at, *_ in ranges}
        self._known = list(dict.fromkeys([*primaries.values(), *self._address.nodes]))
        for first, last, *_ in ranges:
            if first <= slot <= last:
                return primaries[first]
        return None
