"""What a server must be like before a job is trusted to it, and what is worth a warning (S1)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from tidemill.errors import ConfigurationError, StoreReadOnly, StoreUnavailable
from tidemill.stores.redis.faults import Lost

OLDEST = (6, 0)


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """What INFO tells of a server; empty where it keeps something to itself, as managed ones do."""

    name: str
    version: str
    identity: str
    """Another one after a restart or a failover: what was acknowledged last may be missing."""
    is_primary: bool
    eviction: str
    appends: bool | None
    loading: bool
    bytes: int | None
    """What is kept, in memory; the server itself not counted."""

    @property
    def engine(self) -> str:
        return f"{self.name} {self.version}"


def read(info: bytes | str) -> Server:
    text = info if isinstance(info, str) else info.decode(errors="replace")
    facts = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    aof = facts.get("aof_enabled")
    return Server(
        name="Valkey" if "valkey_version" in facts else "Redis",
        version=facts.get("valkey_version") or facts.get("redis_version", ""),
        identity=f"{facts.get('run_id', '')}/{facts.get('master_replid', '')}",
        is_primary=facts.get("role", "master") == "master",
        eviction=facts.get("maxmemory_policy", ""),
        appends=None if aof is None else aof == "1",
        loading=facts.get("loading", "0") not in ("0", ""),
        bytes=_kept(facts),
    )


def _kept(facts: dict[str, str]) -> int | None:
    used, empty = facts.get("used_memory", ""), facts.get("used_memory_startup", "")
    return int(used) - int(empty) if used.isdigit() and empty.isdigit() else None


def check(server: Server, place: str, *, evicts: bool = False) -> None:
    """Raises when jobs would not be safe there. `evicts`: who set it up knows that it throws keys away."""
    if server.loading:
        raise Lost("the server is still loading its data")
    found = tuple(map(int, re.findall(r"\d+", server.version)[:2]))
    if server.name == "Redis" and found and found < OLDEST:
        raise StoreUnavailable(
            f"{place}: {server.engine} is too old; Tidemill needs Redis 6.0 or newer, or Valkey"
        )
    if not server.is_primary:
        raise StoreReadOnly(
            f"{place}: the server is a read-only replica; name the primary in the URL, or its Sentinels "
            "(redis+sentinel://)"
        )
    if server.eviction not in ("", "noeviction") and not evicts:
        raise ConfigurationError(
            f"{place}: the server throws keys away when its memory is full (maxmemory-policy "
            f"{server.eviction}), and jobs with them; run CONFIG SET maxmemory-policy noeviction and put "
            "the same line into its configuration, or use a server of its own; ?eviction=allowed in the URL "
            "takes the risk"
        )


def warnings(server: Server) -> Iterator[str]:
    if server.eviction not in ("", "noeviction"):
        yield (
            f"the server throws jobs away when its memory is full (maxmemory-policy {server.eviction}), "
            "without a word to anybody; run CONFIG SET maxmemory-policy noeviction"
        )
    if not server.eviction:
        yield (
            "the server does not say what it does when its memory is full: if it throws keys away, jobs are "
            "lost without a word; see that its maxmemory-policy is noeviction"
        )
    if server.appends is False:
        yield (
            "the server keeps no append-only file: jobs accepted since its last snapshot are lost when it "
            "dies; run CONFIG SET appendonly yes and put the same line into its configuration"
        )
