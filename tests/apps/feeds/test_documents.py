"""Details of documents: links, titles, contents, odd encodings, broken documents, and feeds of web pages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidemill_apps.feeds.charsets import decode_document
from tidemill_apps.feeds.documents import FeedDocument, FeedEntry, UnreadableFeed, parse_document
from tidemill_apps.feeds.html_content import FeedLink, find_feed_links
from tidemill_apps.feeds.parser_process import FeedParser

URL = "https://news.example/feeds/all.xml"


def rss(items: str, channel: str = "<title>新闻</title>") -> FeedDocument:
    text = f'<?xml version="1.0"?><rss version="2.0"><channel>{channel}{items}</channel></rss>'
    return parse_document(text.encode(), "application/rss+xml", URL)


def entry_of(item: str) -> FeedEntry:
    [entry] = rss(f"<item>{item}</item>").entries
    return entry


def json_feed(**feed: Any) -> FeedDocument:
    feed = {"version": "https://jsonfeed.org/version/1.1", "items": []} | feed
    return parse_document(json.dumps(feed).encode(), "application/feed+json", URL)


@pytest.mark.parametrize(
    ("link", "url"),
    [
        ("<link>https://a.example/1</link>", "https://a.example/1"),
        ("<link> /stories/1 </link>", "https://news.example/stories/1"),
        ("<link>1.html?a=1&amp;b=2</link>", "https://news.example/feeds/1.html?a=1&b=2"),
        ("<link>//cdn.example/1</link>", "https://cdn.example/1"),
        ("<link>/文章/一</link>", "https://news.example/文章/一"),
        ("<guid>https://a.example/guid</guid>", "https://a.example/guid"),
        ('<guid isPermaLink="false">https://a.example/guid</guid>', None),
        ('<enclosure url="/1.mp3" type="audio/mpeg" length="1"/>', "https://news.example/1.mp3"),
        ("<link>javascript:alert(1)</link>", None),
        ("<link>data:text/html,x</link>", None),
        ("<link>ftp://a.example/1</link>", None),
        ("<link>http://[::1/</link>", None),
        ("<link></link>", None),
    ],
)
def test_links_are_absolute_and_http(link: str, url: str | None) -> None:
    assert entry_of(f"<title>标题</title>{link}").url == url


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("  一 \n 二  ", "一 二"),
        ("AT&amp;T", "AT&T"),
        ("Fish &amp;amp; chips", "Fish & chips"),
        ("<![CDATA[<b>粗体</b>标题]]>", "粗体标题"),
        ("a &lt; b", "a < b"),
    ],
)
def test_titles_are_plain_text(title: str, text: str) -> None:
    assert entry_of(f"<title>{title}</title><link>/1</link>").title == text


def test_an_entry_without_a_title_gets_its_first_words() -> None:
    assert entry_of("<description>第一行&lt;br&gt;第二行</description>").title == "第一行"
    long = entry_of(f"<description>{'word ' * 100}</description>").title
    assert (len(long) <= 100, long[-1]) == (True, "…")


def test_contents_are_sanitised_and_their_links_resolved() -> None:
    html = (
        "<p onclick='x()' style='color:red'>正文<script>alert(1)</script> <a href='/a?b=1&amp;c=2'>链接</a>"
        "<a href='javascript:alert(1)'>bad</a><img src='i.png' onerror='x()'><iframe src='//x'></iframe></p>"
    )
    entry = entry_of(f"<description><![CDATA[{html}]]></description>")
    assert entry.content == (
        '<p>正文 <a href="https://news.example/a?b=1&amp;c=2" rel="noopener noreferrer nofollow">链接</a>'
        '<a rel="noopener noreferrer nofollow">bad</a><img src="https://news.example/feeds/i.png"></p>'
    )
    assert entry.text == "正文 链接bad"


def test_xml_base_decides_where_relative_links_lead() -> None:
    atom = (
        '<feed xmlns="http://www.w3.org/2005/Atom" xml:base="https://other.example/blog/"><title>t</title><entry>'
        '<id>1</id><title>a</title><link href="1"/><content type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml">'
        '<a href="2">x</a></div></content></entry></feed>'
    )
    [entry] = parse_document(atom.encode(), None, URL).entries
    assert entry.url == "https://other.example/blog/1"
    assert 'href="https://other.example/blog/2"' in entry.content


def test_the_longest_content_is_taken() -> None:
    text = (
        '<rss version="2.0" xmlns:content="http://purl.org/rss/1.0/modules/content/"><channel><item>'
        "<description>short</description><content:encoded>&lt;p&gt;the whole text&lt;/p&gt;</content:encoded>"
        "</item></channel></rss>"
    )
    [entry] = parse_document(text.encode(), None, URL).entries
    assert (entry.content, entry.text) == ("<p>the whole text</p>", "the whole text")


@pytest.mark.parametrize(
    ("date", "published"),
    [
        ("Mon, 02 Nov 2026 08:30:00 +0800", 1793579400.0),
        ("Mon, 02 Nov 2026 00:30:00 GMT", 1793579400.0),
        ("2026-11-02T08:30:00+08:00", 1793579400.0),
        ("02 Nov 26 00:30 UT", 1793579400.0),
        ("yesterday", None),
        ("0001-01-01T00:00:00Z", None),
        ("Mon, 02 Nov 9999 00:30:00 GMT", None),
        ("", None),
    ],
)
def test_dates(date: str, published: float | None) -> None:
    assert entry_of(f"<title>a</title><pubDate>{date}</pubDate>").published == published


@pytest.mark.parametrize(
    ("ttl", "seconds"),
    [("60", 3600.0), (" 5 ", 300.0), ("0", None), ("-1", None), ("1h", None), ("9" * 20, None)],
)
def test_ttl(ttl: str, seconds: float | None) -> None:
    assert rss("", f"<title>t</title><ttl>{ttl}</ttl>").ttl_seconds == seconds


def test_an_empty_feed_is_a_feed() -> None:
    document = rss("", "<title>空</title><link>/</link>")
    assert (document.title, document.link, document.entries) == ("空", "https://news.example/", ())


def test_a_malformed_feed_is_read_as_far_as_it_goes() -> None:
    document = rss("<item><title>Tom & Jerry</title><link>/1</link></item><item><title>二<br></title></item>")
    assert [entry.title for entry in document.entries] == ["Tom & Jerry", "二"]


def test_a_very_long_guid_is_hashed() -> None:
    first, second = (entry_of(f'<guid isPermaLink="false">{"x" * 5000}{end}</guid>').guid for end in "ab")
    assert first != second
    assert first is not None
    assert len(first) == 64


def test_the_digest_follows_title_and_content_and_the_date_of_short_texts() -> None:
    text, other = "a paragraph that is long enough " * 4, "another paragraph, also long enough " * 4
    dates = [
        "<pubDate>Mon, 02 Nov 2026 08:30:00 GMT</pubDate>",
        "<pubDate>Mon, 09 Nov 2026 08:30:00 GMT</pubDate>",
    ]

    def digest(title: str, text: str, date: str = "", end: str = "<link>/1</link>") -> str:
        return entry_of(f"<title>{title}</title><description>{text}</description>{date}{end}").digest

    assert digest("a", text, dates[0]) == digest("a", text, dates[1])
    assert digest("a", text) == digest("a", text, end="<link>/2</link><guid>x</guid>")
    assert len({digest("a", text), digest("b", text), digest("a", other)}) == 3
    assert digest("Links", "today", dates[0]) != digest("Links", "today", dates[1])
    assert digest("Links", "today", dates[0], "") == digest("Links", "today", dates[1], "")


# --- JSON Feed


def test_json_feed_items() -> None:
    items = [
        {
            "id": 7,
            "url": "/1",
            "title": " 标题 ",
            "content_html": "<b>粗</b>",
            "date_published": "2026-11-02T00:30:00Z",
        },
        {
            "id": "b",
            "external_url": "https://a.example/",
            "content_text": "1 < 2\n第二行",
            "date_modified": "2026-11-02",
        },
        {"summary": "only a summary", "url": 5, "title": None, "date_published": "never", "id": None},
        "no object",
    ]
    document = json_feed(title="订阅", home_page_url="/home", items=items)
    assert (document.title, document.link) == ("订阅", "https://news.example/home")
    first, second, third = document.entries
    assert (first.guid, first.url, first.title, first.published) == (
        "7",
        "https://news.example/1",
        "标题",
        1793579400.0,
    )
    assert (second.url, second.title, second.text) == ("https://a.example/", "1 < 2", "1 < 2\n第二行")
    assert second.published == 1793577600.0
    assert (third.guid, third.url, third.title, third.published) == (None, None, "only a summary", None)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "the document is empty"),
        (b"  \n", "the document is empty"),
        (b"hello", "neither RSS, Atom nor JSON Feed"),
        (b"<!DOCTYPE html><html><body>Not found</body></html>", "is an HTML page"),
        ("<html><head><title>登录</title></head></html>".encode("gbk"), "is an HTML page"),
        (b"<opml version='2.0'></opml>", "neither RSS, Atom nor JSON Feed"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "neither RSS, Atom nor JSON Feed"),
        (b'{"version": "https://jsonfeed.org/version/1", "items": [', "is malformed"),
        (b'{"version": "1.0", "items": []}', "is JSON but no JSON Feed"),
        (b'{"version": "https://jsonfeed.org/version/1"}', "is JSON but no JSON Feed"),
        (b'{"a":' * 100_000, "is malformed"),
        (b"<rss version='2.0'><channel><item><title>a</title></item><item><ti", "is cut off"),
        (b'<!DOCTYPE r [<!ENTITY a "b"><!ENTITY c "&a;&a;">]><rss><channel/></rss>', "declares XML entities"),
        (
            b'<!-- <rss> --><!DOCTYPE r [<!ENTITY a SYSTEM "file:///etc/passwd">]><rss/>',
            "declares XML entities",
        ),
    ],
)
def test_an_unreadable_document_is_refused_with_a_sentence(body: bytes, problem: str) -> None:
    with pytest.raises(UnreadableFeed, match=problem):
        parse_document(body, None, URL)


@pytest.mark.parametrize("filler", ["\n" * 5_000, "<!-- a -->\n" * 500, "<?a b?>" * 500])
def test_fillers_before_and_after_the_feed_cost_no_time(filler: str) -> None:
    """A pattern that tries every split of the filler would never end."""
    feed = f"<rss version='2.0'><channel><title>标题</title>&x;</channel></rss>{filler}"
    document = parse_document(f"<?xml version='1.0'?>{filler}{feed}".encode(), None, URL)
    assert document.title == "标题"


def test_harmless_entities_are_read() -> None:
    doctype = (
        '<!DOCTYPE rss [<!ENTITY copy "&#169;"><!ENTITY % HTMLlat1 PUBLIC "-//W3C//x" "http://x.example/y">]>'
    )
    text = f'{doctype}<rss version="2.0"><channel><title>&copy; 公司</title></channel></rss>'
    assert parse_document(text.encode(), None, URL).title == "© 公司"


# --- encodings


@pytest.mark.parametrize(
    ("text", "encoding", "content_type"),
    [
        ("中文", "gbk", "text/xml; charset=gb2312"),
        ("中文新闻", "gbk", None),
        ("中文新闻", "gbk", "text/xml; charset=iso-8859-1"),
        ("镕𠀀", "gb18030", "text/xml; charset=gb2312"),
        ("①髙", "cp932", "text/xml; charset=Shift_JIS"),
        ("日本語", "iso2022_jp", "text/xml; charset=iso-2022-jp"),
        ("Zürich", "latin-1", "text/xml; charset=iso-8859-1"),
        ("Zürich", "latin-1", None),
        ("Zürich", "utf-8", "text/xml; charset=iso-8859-1"),
        ("“quoted”", "cp1252", "text/xml; charset=iso-8859-1"),
        ("中文新闻网站", "utf-8", "text/xml; charset=gbk"),
        ("中文新闻网站", "utf-8", "text/xml; charset=no-such-thing"),
        ("中文新闻网站", "gb18030", "text/xml; charset=utf-8"),
        ("ASCII", "ascii", "text/xml; charset=utf-16"),
        ("中文", "utf-16-le", None),
        ("中文", "utf-16-be", None),
    ],
)
def test_odd_declarations(text: str, encoding: str, content_type: str | None) -> None:
    document = f"<?xml version='1.0'?><a>{text}</a>"
    assert decode_document(document.encode(encoding), content_type) == document


def test_a_broken_character_does_not_change_the_encoding() -> None:
    whole = "城市公园今天开放。图书馆发布新的阅读计划。科学家发现新的星系。" * 5
    for encoding in ("utf-8", "gbk"):
        body = f"<a>{whole}".encode(encoding) + b"\xff" + f"{whole}</a>".encode(encoding)
        text = decode_document(body, f"text/xml; charset={encoding}")
        assert text.count(whole[5:25]) == 10


# --- web pages


PAGE = """<!doctype html><html><head><title>新闻</title><base href="/zh/">
<link rel="stylesheet" href="x.css"><link rel="alternate" hreflang="en" href="/en/">
<link rel="Alternate" type="application/rss+xml; charset=utf-8" title=" 新闻 " href="rss.xml?a=1&amp;b=2">
<link rel="alternate home" type="application/atom+xml" href="https://other.example/atom">
<link rel=alternate type=application/feed+json href=/feed.json>
<link rel="alternate" type="application/rss+xml" title="again" href="/zh/rss.xml?a=1&amp;b=2">
<link rel="alternate" type="application/json" href="/wp-json/">
<link rel="alternate" type="application/rss+xml">
<link rel="alternate" type="application/rss+xml" href="javascript:x"></head><body><p>unclosed"""

LINKS = [
    FeedLink(url="https://news.example/zh/rss.xml?a=1&b=2", title="新闻", content_type="application/rss+xml"),
    FeedLink(url="https://other.example/atom", title="", content_type="application/atom+xml"),
    FeedLink(url="https://news.example/feed.json", title="", content_type="application/feed+json"),
]


def test_the_feeds_of_a_web_page_are_found() -> None:
    assert find_feed_links(PAGE, "https://news.example/index.html") == LINKS


async def test_the_parser_process_finds_them_in_any_encoding(parser: FeedParser) -> None:
    assert (
        await parser.find_links(PAGE.encode("gb18030"), "text/html; charset=gb2312", "https://news.example/")
        == LINKS
    )
    assert await parser.find_links(b"no page", None, "https://news.example/") == []
