"""Entries are matched with stored articles by guid, then URL, then digest, whatever a publisher changes."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill_apps.feeds.documents import FeedEntry
from tidemill_apps.feeds.entries import ArticleChanges, ArticleUpdate, KnownArticle, plan_changes


def entry(guid: str | None, url: str | None, digest: str, published: float | None = None) -> FeedEntry:
    return FeedEntry(
        guid=guid, url=url, title=digest, content="", text="", published=published, digest=digest
    )


class Articles:
    """The stored articles of one feed."""

    def __init__(self) -> None:
        self.rows: dict[str, KnownArticle] = {}

    def refresh(self, *entries: FeedEntry) -> ArticleChanges:
        changes = plan_changes(list(self.rows.values()), entries)
        for new in changes.new:
            article_id = f"a{len(self.rows)}"
            self.rows[article_id] = KnownArticle(article_id, new.guid, new.url, new.digest)
        for update in changes.updated:
            version = update.entry
            self.rows[update.article_id] = KnownArticle(
                update.article_id, version.guid, version.url, version.digest
            )
        return changes


FIRST, SECOND, THIRD = entry("g1", "/1", "d1"), entry("g2", "/2", "d2"), entry("g3", "/3", "d3")


def test_a_first_refresh_has_only_new_entries() -> None:
    assert plan_changes([], [FIRST, SECOND]) == ArticleChanges((FIRST, SECOND), (), ())


def test_the_same_document_changes_nothing_in_any_order() -> None:
    articles = Articles()
    articles.refresh(FIRST, SECOND)
    assert articles.refresh(SECOND, FIRST) == ArticleChanges((), (), ("a1", "a0"))
    assert articles.refresh(THIRD, SECOND, FIRST) == ArticleChanges((THIRD,), (), ("a1", "a0"))


def test_an_entry_that_left_the_document_and_came_back_is_known() -> None:
    articles = Articles()
    articles.refresh(FIRST)
    articles.refresh(SECOND)
    assert articles.refresh(FIRST).unchanged == ("a0",)


def test_a_changed_text_updates_its_row() -> None:
    articles = Articles()
    articles.refresh(FIRST, SECOND)
    version = entry("g1", "/1", "d1 corrected")
    assert articles.refresh(version, SECOND) == ArticleChanges((), (ArticleUpdate("a0", version),), ("a1",))


def test_a_changed_url_is_recognised_by_its_guid() -> None:
    articles = Articles()
    articles.refresh(FIRST)
    moved = entry("g1", "/moved", "d1 corrected")
    assert articles.refresh(moved).updated == (ArticleUpdate("a0", moved),)


def test_a_changed_guid_is_recognised_by_its_url() -> None:
    articles = Articles()
    articles.refresh(FIRST, SECOND)
    changed = entry("other", "/1", "d1 corrected")
    assert articles.refresh(changed, SECOND).updated == (ArticleUpdate("a0", changed),)


def test_a_changed_guid_and_url_are_recognised_by_the_text() -> None:
    articles = Articles()
    articles.refresh(FIRST, SECOND)
    changed = entry("other", "/moved", "d1")
    assert articles.refresh(changed, SECOND).updated == (ArticleUpdate("a0", changed),)


def test_entries_without_guids_are_recognised_by_url_or_text() -> None:
    articles = Articles()
    articles.refresh(entry(None, "/1", "d1"), entry(None, None, "d2"))
    version = entry(None, "/1", "d1 corrected")
    changes = articles.refresh(entry(None, None, "d2"), version)
    assert changes == ArticleChanges((), (ArticleUpdate("a0", version),), ("a1",))


def test_a_guid_that_every_entry_has_identifies_none() -> None:
    articles = Articles()
    articles.refresh(entry("same", "/1", "d1"), entry("same", "/2", "d2"))
    assert len(articles.rows) == 2
    version = entry("same", "/2", "d2 corrected")
    changes = articles.refresh(entry("same", "/3", "d3"), version, entry("same", "/1", "d1"))
    assert [new.url for new in changes.new] == ["/3"]
    assert changes.updated == (ArticleUpdate("a1", version),)
    assert [new.url for new in articles.refresh(entry("same", "/4", "d4")).new] == ["/4"]


def test_the_guid_counts_more_than_the_url_and_the_url_more_than_the_text() -> None:
    articles = Articles()
    articles.refresh(FIRST, SECOND, THIRD)
    by_guid = entry("g1", "/2", "d3")
    assert articles.refresh(by_guid).updated == (ArticleUpdate("a0", by_guid),)
    articles = Articles()
    articles.refresh(FIRST, SECOND, THIRD)
    by_url = entry("other", "/2", "d3")
    assert articles.refresh(by_url).updated == (ArticleUpdate("a1", by_url),)


def test_a_url_that_every_entry_has_identifies_none() -> None:
    """Episodes of a podcast often link to the page of the show."""
    articles = Articles()
    articles.refresh(*(entry(f"g{number}", "/show", f"d{number}") for number in range(3)))
    changes = articles.refresh(entry("g3", "/show", "d3"), entry("g2", "/show", "d2"))
    assert [new.guid for new in changes.new] == ["g3"]
    changes = articles.refresh(entry("g4", "/show", "d4"))
    assert [new.guid for new in changes.new] == ["g4"], "no episode that left the document is overwritten"


def test_an_equal_text_is_another_article_if_the_first_is_still_there() -> None:
    articles = Articles()
    articles.refresh(FIRST)
    again = entry("g9", "/9", "d1")
    assert articles.refresh(again, FIRST) == ArticleChanges((again,), (), ("a0",))


def test_an_entry_that_the_document_has_twice_is_stored_once() -> None:
    articles = Articles()
    assert articles.refresh(FIRST, SECOND, FIRST).new == (FIRST, SECOND)
    assert articles.refresh(FIRST, FIRST, SECOND).unchanged == ("a0", "a1")


def test_a_back_dated_entry_is_new_and_a_changed_date_is_no_update() -> None:
    articles = Articles()
    articles.refresh(entry("g1", "/1", "d1", published=2_000.0))
    old = entry("g0", "/0", "d0", published=1.0)
    assert articles.refresh(entry("g1", "/1", "d1", published=1_000.0), old) == ArticleChanges(
        (old,), (), ("a0",)
    )


VALUES = st.sampled_from(["a", "b", "c"])
ENTRIES = st.lists(
    st.builds(entry, st.none() | VALUES, st.none() | VALUES, VALUES, st.none() | st.floats(0, 9)), max_size=8
)


@settings(max_examples=500, deadline=None)
@given(st.lists(ENTRIES, max_size=4), st.randoms(use_true_random=False))
def test_no_entry_is_lost_or_stored_twice(documents: Sequence[list[FeedEntry]], random: object) -> None:
    articles = Articles()
    for document in documents:
        before = set(articles.rows)
        changes = articles.refresh(*document)
        touched = [update.article_id for update in changes.updated] + list(changes.unchanged)
        assert len(set(touched)) == len(touched), "one entry for each article"
        assert set(touched) <= before
        distinct = {(one.guid, one.url, one.digest) for one in document}
        assert len(changes.new) + len(touched) == len(distinct), "each entry is in one of the three"
        stored = {row[1:] for row in articles.rows.values()}
        assert distinct <= stored, "the newest version of each entry is stored"
        shuffled = list(document)
        random.shuffle(shuffled)  # type: ignore[attr-defined]
        again = articles.refresh(*shuffled)
        assert (again.new, again.updated) == ((), ()), "a second refresh changes nothing, in any order"
