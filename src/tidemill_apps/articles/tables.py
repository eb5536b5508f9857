"""The table of articles, with the source's names for what it names. A table that is there already gets what
it lacks, and keeps what it has."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table, Text


def posts_table(name: str) -> Table:
    """rag_version: counts the texts an article has had, and how often it was to be embedded again.
    rag_current: the version whose vectors are searched, in `rag_chunks` pieces; 0 for those of another
    program.
    rag_label: counts the titles and hidings; rag_labelled: the one that the vectors carry.
    rag_job: the job that embeds it next, or did last.
    rag_run: the run that took it up last; what an earlier one still writes does not count."""
    return Table(
        name,
        MetaData(),
        Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True),
        Column("title", String, info={"given": True}),
        Column("content", Text, info={"given": True}),
        Column("hide", String, server_default="0", info={"any_type": True, "given": True}),
        Column("rag_status", String),
        Column("rag_error", Text, info={"emptied": True}),
        Column("rag_version", Integer, nullable=False, server_default="0"),
        Column("rag_current", Integer, nullable=False, server_default="0"),
        Column("rag_chunks", Integer, nullable=False, server_default="0"),
        Column("rag_label", Integer, nullable=False, server_default="0"),
        Column("rag_labelled", Integer, nullable=False, server_default="0"),
        Column("rag_job", String),
        Column("rag_run", String),
        Index(f"{name}_by_rag_status", "rag_status"),
        Index(f"{name}_by_rag_job", "rag_job"),
        sqlite_autoincrement=True,  # else the next article has the id, and so the points, of one that is gone
    )
