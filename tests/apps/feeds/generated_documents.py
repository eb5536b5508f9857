"""Generates feed documents of every format in many languages and encodings, with what they contain."""

# ruff: noqa: RUF001 - letters of other languages look like Latin ones

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime
from typing import NamedTuple
from xml.sax.saxutils import escape

BASE = "https://news.example/feeds/all.xml"
FIRST = datetime(2026, 11, 2, 8, 30, tzinfo=timezone(timedelta(hours=8)))

TEXTS = {
    "zh": [
        "城市公园今天开放",
        "图书馆发布新的阅读计划",
        "明天北方地区有小雪",
        "科学家发现新的星系",
        "地铁新线路下月通车",
    ],
    "zh-hant": [
        "城市公園今天開放",
        "圖書館發布新的閱讀計畫",
        "明天北部地區有小雨",
        "科學家發現新的星系",
        "捷運新路線下月通車",
    ],
    "ja": [
        "市の公園が今日から開きます",
        "図書館が新しい計画を発表",
        "明日は北の地方で雪になる",
        "新しい駅が来月に完成します",
    ],
    "ru": ["Городской парк открыт сегодня", "Библиотека объявила новый план", "Завтра на севере снег"],
    "pl": [
        "Park miejski już otwarty",
        "Biblioteka ogłosiła nowy plan",
        "Jutro śnieg na północy",
        "Święto książki w Łodzi",
    ],
    "en": ["The city park opens “today”", "The library’s new plan", "Snow – tomorrow in the north"],
    "fr": [
        "Le parc de la ville est déjà ouvert",
        "La bibliothèque présente son été",
        "Neige à Orléans dès demain",
    ],
    "el": ["Το πάρκο της πόλης άνοιξε", "Η βιβλιοθήκη έχει νέο σχέδιο", "Αύριο χιόνι στον βορρά"],
    "tr": [
        "Şehir parkı bugün açıldı",
        "Kütüphanenin yeni planı",
        "Yarın kuzeyde kar yağışı",
        "Işıklı çarşı günü",
    ],
    "he": ["הפארק העירוני נפתח היום", "הספרייה הציגה תוכנית חדשה", "מחר שלג בצפון"],
    "ar": ["افتتاح حديقة المدينة اليوم", "المكتبة تعلن خطة جديدة", "ثلوج غدا في الشمال"],
    "lt": ["Miesto parkas šiandien atidarytas", "Biblioteka paskelbė naują planą", "Rytoj šiaurėje sniegas"],
    "vi": ["Công viên mở cửa hôm nay", "Thư viện có kế hoạch mới", "Ngày mai tuyết rơi"],
}


class Story(NamedTuple):
    """One entry of a document, as a reader must find it. Some formats have no guid, date or content."""

    number: int
    title: str
    text: str

    @property
    def url(self) -> str:
        return f"https://news.example/stories/{self.number}?lang=a&page=1"

    @property
    def moment(self) -> datetime:
        return FIRST - timedelta(hours=7 * self.number)


class Sample(NamedTuple):
    """A document, how the server declares it, and its stories."""

    name: str
    body: bytes
    content_type: str | None
    title: str
    stories: list[Story]
    has_dates: bool
    has_content: bool


def stories_in(language: str) -> tuple[str, list[Story]]:
    """The title of the feed and its stories. Each text repeats other titles, so that it is a paragraph."""
    first, *titles = TEXTS[language]
    separator = "。" if language.startswith(("zh", "ja")) else ". "
    texts = [
        separator.join([*TEXTS[language][number:], *TEXTS[language][:number]])
        for number in range(len(titles))
    ]
    return first, [Story(number, *pair) for number, pair in enumerate(zip(titles, texts, strict=True))]


def _rss_items(stories: list[Story], *, dates: bool, guids: bool, content: bool) -> str:
    parts = []
    for story in stories:
        parts.append(f"<item><title>{escape(story.title)}</title><link>{escape(story.url)}</link>")
        if content:
            parts.append(f"<description>{escape(f'<p>{escape(story.text)}</p>')}</description>")
        if guids:
            parts.append(f'<guid isPermaLink="false">story-{story.number}</guid>')
        if dates:
            parts.append(f"<pubDate>{format_datetime(story.moment)}</pubDate>")
        parts.append("</item>\n")
    return "".join(parts)


def _rss(version: str, *, dates: bool, guids: bool, doctype: str = "") -> Callable[[str, list[Story]], str]:
    def build(title: str, stories: list[Story]) -> str:
        items = _rss_items(stories, dates=dates, guids=guids, content=True)
        channel = (
            f"<title>{escape(title)}</title><link>https://news.example/</link><description/><ttl>90</ttl>"
        )
        return f'{doctype}<rss version="{version}"><channel>{channel}\n{items}</channel></rss>'

    return build


def _rdf(namespace: str, *, rss10: bool) -> Callable[[str, list[Story]], str]:
    def build(title: str, stories: list[Story]) -> str:
        items = "".join(
            (f'<item rdf:about="{escape(story.url)}">' if rss10 else "<item>")
            + f"<title>{escape(story.title)}</title><link>{escape(story.url)}</link>"
            + (f"<dc:date>{story.moment.isoformat()}</dc:date>" if rss10 else "")
            + (f"<description>{escape(story.text)}</description>" if rss10 else "")
            + "</item>\n"
            for story in stories
        )
        return (
            '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" '
            f'xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns="{namespace}">'
            f"<channel><title>{escape(title)}</title><link>https://news.example/</link></channel>\n"
            f"{items}</rdf:RDF>"
        )

    return build


def _atom(namespace: str, published: str) -> Callable[[str, list[Story]], str]:
    def build(title: str, stories: list[Story]) -> str:
        entries = "".join(
            f"<entry><id>tag:news.example,2026:{story.number}</id><title>{escape(story.title)}</title>"
            f'<link rel="alternate" type="text/html" href="{escape(story.url)}"/>'
            f"<{published}>{story.moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}</{published}>"
            f'<content type="html">{escape(f"<p>{escape(story.text)}</p>")}</content></entry>\n'
            for story in stories
        )
        link = '<link rel="alternate" type="text/html" href="https://news.example/"/>'
        return (
            f'<feed xmlns="{namespace}" version="0.3"><title>{escape(title)}</title>{link}\n{entries}</feed>'
        )

    return build


NETSCAPE = (
    '<!DOCTYPE rss PUBLIC "-//Netscape Communications//DTD RSS 0.91//EN" "http://dtd.example/rss-0.91.dtd">\n'
)
FORMATS: dict[str, Callable[[str, list[Story]], str]] = {
    "rss-0.90": _rdf("http://my.netscape.com/rdf/simple/0.9/", rss10=False),
    "rss-0.91": _rss("0.91", dates=False, guids=False, doctype=NETSCAPE),
    "rss-0.92": _rss("0.92", dates=False, guids=False),
    "rss-1.0": _rdf("http://purl.org/rss/1.0/", rss10=True),
    "rss-2.0": _rss("2.0", dates=True, guids=True),
    "atom-0.3": _atom("http://purl.org/atom/ns#", "issued"),
    "atom-1.0": _atom("http://www.w3.org/2005/Atom", "published"),
}
WITHOUT_DATES = ("rss-0.90", "rss-0.91", "rss-0.92")

IN_HEADER, IN_DECLARATION, UNDECLARED = "header", "declaration", "none"
FALSE_HEADER, FALSE_DECLARATION = "false-header", "false-declaration"
"""Where the encoding stands; a false one says iso-8859-1."""

CHINESE = [
    ("zh", "utf-8", (IN_HEADER, IN_DECLARATION, UNDECLARED, FALSE_HEADER, FALSE_DECLARATION)),
    ("zh", "utf-8-sig", (UNDECLARED, FALSE_HEADER)),
    ("zh", "utf-16", (UNDECLARED, FALSE_HEADER)),
    ("zh", "gb18030", (IN_HEADER, IN_DECLARATION, UNDECLARED, FALSE_HEADER, FALSE_DECLARATION)),
    ("zh", "gbk", (IN_HEADER, IN_DECLARATION, UNDECLARED, FALSE_HEADER, FALSE_DECLARATION)),
    ("zh", "gb2312", (IN_HEADER, IN_DECLARATION, UNDECLARED, FALSE_HEADER, FALSE_DECLARATION)),
    ("zh-hant", "big5", (IN_HEADER, IN_DECLARATION, UNDECLARED, FALSE_HEADER, FALSE_DECLARATION)),
    ("zh-hant", "utf-8", (IN_HEADER, IN_DECLARATION, UNDECLARED, FALSE_HEADER, FALSE_DECLARATION)),
    ("zh-hant", "gb18030", (IN_HEADER, IN_DECLARATION)),
]
OTHER_LANGUAGES = [
    ("ja", "shift_jis", (IN_HEADER, IN_DECLARATION, UNDECLARED, FALSE_HEADER)),
    ("ja", "euc-jp", (IN_HEADER, IN_DECLARATION)),
    ("ru", "windows-1251", (IN_HEADER, IN_DECLARATION, UNDECLARED)),
    ("ru", "koi8-r", (IN_DECLARATION,)),
    ("pl", "windows-1250", (IN_HEADER, IN_DECLARATION)),
    ("en", "windows-1252", (IN_HEADER, IN_DECLARATION, FALSE_HEADER, FALSE_DECLARATION)),
    ("fr", "iso-8859-1", (IN_HEADER, IN_DECLARATION)),
    ("el", "windows-1253", (IN_HEADER, IN_DECLARATION, UNDECLARED)),
    ("tr", "windows-1254", (IN_HEADER, IN_DECLARATION)),
    ("he", "windows-1255", (IN_HEADER, IN_DECLARATION)),
    ("ar", "windows-1256", (IN_HEADER, IN_DECLARATION)),
    ("lt", "windows-1257", (IN_HEADER, IN_DECLARATION)),
    ("en", "windows-1258", (IN_DECLARATION,)),
    ("vi", "utf-8", (IN_HEADER, FALSE_HEADER)),
]


def xml_samples() -> Iterator[Sample]:
    """Every XML format in every language, encoding and kind of declaration above."""
    for language, encoding, places in CHINESE + OTHER_LANGUAGES:
        title, stories = stories_in(language)
        for place in places:
            label = (
                "iso-8859-1" if place in (FALSE_HEADER, FALSE_DECLARATION) else encoding.removesuffix("-sig")
            )
            declared = f' encoding="{label}"' if place in (IN_DECLARATION, FALSE_DECLARATION) else ""
            charset = f"; charset={label}" if place in (IN_HEADER, FALSE_HEADER) else ""
            for name, build in FORMATS.items():
                text = f'<?xml version="1.0"{declared}?>\n{build(title, stories)}\n'
                yield Sample(
                    f"{name}-{language}-{encoding}-{place}",
                    text.encode(encoding),
                    f"application/xml{charset}",
                    title,
                    stories,
                    has_dates=name not in WITHOUT_DATES,
                    has_content=name != "rss-0.90",
                )


def json_samples() -> Iterator[Sample]:
    """JSON Feed in every language, with and without escapes and a byte order mark."""
    for language in TEXTS:
        title, stories = stories_in(language)
        items = [
            {
                "id": story.number if language == "zh" else f"story-{story.number}",
                "url": story.url,
                "title": story.title,
                "content_html": f"<p>{escape(story.text)}</p>",
                "date_published": story.moment.isoformat(),
            }
            for story in stories
        ]
        feed = {"version": "https://jsonfeed.org/version/1.1", "title": title, "items": items}
        for escaped, encoding in ((True, "utf-8"), (False, "utf-8"), (False, "utf-8-sig")):
            body = json.dumps(feed, ensure_ascii=escaped, indent=1).encode(encoding)
            name = f"json-{language}-{encoding}-{'escaped' if escaped else 'plain'}"
            yield Sample(
                name, body, "application/feed+json", title, stories, has_dates=True, has_content=True
            )


SAMPLES = [*xml_samples(), *json_samples()]
