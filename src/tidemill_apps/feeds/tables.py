"""The tables `feeds` and `articles`, which may exist already, and the application's own tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    DateTime,
    Dialect,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    inspect,
)
from sqlalchemy.dialects.postgresql import UUID
from sqlalchemy.types import TypeDecorator, TypeEngine


class RowId(TypeDecorator[str]):
    """The id of a feed, user or article, as text. The column is UUID on PostgreSQL, unless an existing table
    has text there, and text on SQLite."""

    impl = String
    cache_ok = True

    def __init__(self, *, text: bool = False) -> None:
        super().__init__()
        self.text = text

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        native = dialect.name == "postgresql" and not self.text
        return dialect.type_descriptor(UUID(as_uuid=False) if native else String())

    def process_result_value(self, value: Any, _: Dialect) -> str | None:
        return None if value is None else str(value)


class UnixTime(TypeDecorator[float]):
    """A wall time in seconds. The column is TIMESTAMPTZ on PostgreSQL, and ISO 8601 text on SQLite. An
    existing PostgreSQL column may be a timestamp without zone (`naive=True`); its values are UTC."""

    impl = String
    cache_ok = True

    def __init__(self, *, naive: bool = False) -> None:
        super().__init__()
        self.naive = naive

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        native = dialect.name == "postgresql"
        return dialect.type_descriptor(DateTime(timezone=not self.naive) if native else String())

    def process_bind_param(self, value: float | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        moment = datetime.fromtimestamp(value, UTC)
        if dialect.name != "postgresql":
            return moment.isoformat()
        return moment.replace(tzinfo=None) if self.naive else moment

    def process_result_value(self, value: Any, _: Dialect) -> float | None:
        if value is None or value == "":
            return None
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


class FeedTables(NamedTuple):
    metadata: MetaData
    feeds: Table
    articles: Table
    states: Table
    article_keys: Table
    hours: Table
    site_minutes: Table


def create_tables(*, text_ids: bool = False, naive_times: bool = False) -> FeedTables:
    """Returns the descriptions of the tables. It creates nothing in the database. `feed_state` has what the
    application knows about a feed, `article_keys` identifies articles in later documents, `feed_hours` has
    the outcomes per hour, and `feed_site_minutes` the connections per site and minute."""
    metadata, row_id, time = MetaData(), RowId(text=text_ids), UnixTime(naive=naive_times)
    free: dict[str, Any] = {"any_type": True, "writes_null": True}
    own: dict[str, Any] = {"any_type": True, "always_set": True}
    feeds = Table(
        "feeds",
        metadata,
        Column("id", row_id, primary_key=True, info=own),
        Column("user_id", row_id, info=free),
        Column("title", Text),
        Column("url", Text, nullable=False),
        Column("refresh_interval", Integer, nullable=False, server_default="60"),
        Column("last_fetched", time, info=free),
        Column("last_fetch_status", Text),
        Column("last_fetch_error", Text, info={"writes_null": True}),
        Index("feeds_by_url", "url"),
    )
    articles = Table(
        "articles",
        metadata,
        Column("id", row_id, primary_key=True, info=own),
        Column("feed_id", row_id, nullable=False, info=own),
        Column("title", Text),
        Column("url", Text),
        Column("content", Text),
        Column("published_at", time, info=free),
        Index("articles_by_feed", "feed_id"),
    )
    return FeedTables(metadata, feeds, articles, *_create_own_tables(metadata, row_id))


def _create_own_tables(metadata: MetaData, row_id: RowId) -> tuple[Table, Table, Table, Table]:
    own: dict[str, Any] = {"any_type": True, "always_set": True}
    states = Table(
        "feed_state",
        metadata,
        Column("feed_id", row_id, primary_key=True, info=own),
        Column("url", Text, nullable=False),  # the URL that validators, digest and failures belong to
        Column("etag", Text),
        Column("last_modified", Text),
        Column("digest", String),
        Column("next_at", Float),
        Column("next_reason", String),
        Column("closed_until", Float),  # Retry-After: no fetch before, also not by hand
        Column("interval", Integer),  # minutes, as last scheduled
        Column("failures", Integer, nullable=False, server_default="0"),
        Column("failing_since", Float),
        Column("succeeded", BigInteger, nullable=False, server_default="0"),
        Column("failed", BigInteger, nullable=False, server_default="0"),
        Column("timed_out", Boolean, nullable=False, server_default="0"),
        Column("gone", Boolean, nullable=False, server_default="0"),
        Column("paused", Boolean, nullable=False, server_default="0"),
        Column("redirect_url", Text),
        Column("redirect_count", Integer, nullable=False, server_default="0"),
        Column("redirect_since", Float),
        Column("import_id", String),
        Index("feed_state_by_import", "import_id"),
    )
    article_keys = Table(
        "article_keys",
        metadata,
        Column("article_id", row_id, primary_key=True, info=own),
        Column("feed_id", row_id, nullable=False, info=own),
        Column("guid", Text),
        Column("url", Text),
        Column("digest", String, nullable=False),
        Column("added", Float, nullable=False),
        Index("article_keys_by_feed", "feed_id", "added"),
    )
    hours = Table(
        "feed_hours",
        metadata,
        Column("feed_id", row_id, primary_key=True, info=own),
        Column("hour", BigInteger, primary_key=True, autoincrement=False),
        Column("succeeded", Integer, nullable=False),
        Column("failed", Integer, nullable=False),
        Column("articles", Integer, nullable=False),
        Column("seconds", Float, nullable=False),
    )
    site_minutes = Table(
        "feed_site_minutes",
        metadata,
        Column("site", String, primary_key=True),
        Column("minute", BigInteger, primary_key=True, autoincrement=False),
        Column("connected", Integer, nullable=False),
        Column("failed", Integer, nullable=False),
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
