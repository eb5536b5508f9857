"""The tables `feeds` and `articles`, which may exist already, and the application's own tables."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    DateTime,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    inspect,
)

from tidemill_apps.common.database_types import UnixTime, UuidText

STATE_COLUMNS: dict[Any, tuple[str, ...]] = {
    Text: ("url", "etag", "last_modified", "digest", "next_reason", "redirect_url", "import_id"),
    Float: ("next_at", "closed_until", "failing_since", "redirect_since"),
    Integer: ("interval", "failures", "successes", "failed", "redirect_count"),
    Boolean: ("timed_out", "gone", "paused"),
}
EMPTY_ALLOWED: dict[str, Any] = {"any_type": True, "writes_null": True}
ALWAYS_SET: dict[str, Any] = {"any_type": True, "always_set": True}


class FeedTables(NamedTuple):
    """The tables. `states` has what the application knows about a feed. `article_keys` identifies articles in
    later documents. `hours` has the outcomes per feed and hour, `site_minutes` the connections per site and
    minute."""

    metadata: MetaData
    feeds: Table
    articles: Table
    states: Table
    article_keys: Table
    hours: Table
    site_minutes: Table


def create_tables(*, text_ids: bool = False, naive_times: bool = False) -> FeedTables:
    """Returns the descriptions of the tables. It creates nothing in the database."""
    metadata, row_id, time = MetaData(), UuidText(text=text_ids), UnixTime(naive=naive_times)
    feeds = Table(
        "feeds",
        metadata,
        Column("id", row_id, primary_key=True, info=ALWAYS_SET),
        Column("user_id", row_id, info=EMPTY_ALLOWED),
        Column("title", Text),
        Column("url", Text, nullable=False),
        Column("refresh_interval", Integer, nullable=False, server_default="60"),
        Column("last_fetched", time, info=EMPTY_ALLOWED),
        Column("last_fetch_status", Text),
        Column("last_fetch_error", Text, info={"writes_null": True}),
        Index("feeds_by_url", "url"),
    )
    articles = Table(
        "articles",
        metadata,
        Column("id", row_id, primary_key=True, info=ALWAYS_SET),
        Column("feed_id", row_id, nullable=False, info=ALWAYS_SET),
        *(Column(name, Text) for name in ("title", "url", "content")),
        Column("published_at", time, info=EMPTY_ALLOWED),
        Index("articles_by_feed", "feed_id"),
    )
    return FeedTables(metadata, feeds, articles, *_create_own_tables(metadata, row_id))


def _create_own_tables(metadata: MetaData, row_id: UuidText) -> tuple[Table, Table, Table, Table]:
    states = Table(
        "feed_state",
        metadata,
        Column("feed_id", row_id, primary_key=True, info=ALWAYS_SET),
        *(Column(name, kind) for kind, names in STATE_COLUMNS.items() for name in names),
        Index("feed_state_by_import", "import_id"),
    )
    article_keys = Table(
        "article_keys",
        metadata,
        Column("article_id", row_id, primary_key=True, info=ALWAYS_SET),
        Column("feed_id", row_id, nullable=False, info=ALWAYS_SET),
        *(Column(name, Text) for name in ("guid", "url", "digest")),
        Column("added", Float, nullable=False),
        Index("article_keys_by_feed", "feed_id", "added"),
    )
    hours = Table(
        "feed_hours",
        metadata,
        Column("feed_id", row_id, primary_key=True, info=ALWAYS_SET),
        Column("hour", BigInteger, primary_key=True, autoincrement=False),
        *(Column(name, Integer) for name in ("successes", "failed", "articles")),
        Column("seconds", Float),
    )
    site_minutes = Table(
        "feed_site_minutes",
        metadata,
        Column("site", String, primary_key=True),
        Column("minute", BigInteger, primary_key=True, autoincrement=False),
        *(Column(name, Integer) for name in ("connected", "failed")),
    )
    return states, article_keys, hours, site_minutes


def describe_tables(connection: Connection) -> FeedTables:
    """Returns the tables with the types that existing columns have in the database."""
    if connection.dialect.name != "postgresql" or not inspect(connection).has_table("feeds"):
        return create_tables()
    types = {column["name"]: column["type"] for column in inspect(connection).get_columns("feeds")}
    time = types.get("last_fetched")
    naive = isinstance(time, DateTime) and not time.timezone
    return create_tables(text_ids=isinstance(types.get("id"), String), naive_times=naive)
