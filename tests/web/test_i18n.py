"""All texts of pages are in the locale files, complete in every language."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from string import Formatter

import pytest
from jinja2 import Environment

import tidemill.web
from tidemill.web.i18n import LANGUAGES, Translation, Translator, load_locale, translator

WEB = Path(tidemill.web.__file__).parent
TEMPLATES = sorted((WEB / "templates").rglob("*.html"))
ENGLISH = load_locale("en")

_CALL = re.compile(
    r"""(?:\bt\(|\btranslate\(|translator\([\w.]+\)\(|\bnotice=)\s*f?["']([a-z_.]+)(["'{])(\s*~)?"""
)
"""A used key, or its constant prefix."""


def forms(entry: Translation) -> list[str]:
    return [entry] if isinstance(entry, str) else list(entry.values())


def names(text: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_the_same_keys_and_names(language: str) -> None:
    other = load_locale(language)
    assert sorted(other) == sorted(ENGLISH)
    for key, entry in other.items():
        for form in forms(entry):
            assert names(form) <= names(forms(ENGLISH[key])[-1]), key
        assert forms(entry)[-1].strip(), key
        assert isinstance(entry, str) == isinstance(ENGLISH[key], str), key


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_dismiss_button_differs_from_the_question(language: str) -> None:
    """ "Cancel this job?" must not have a button "Cancel" that keeps the job."""
    labels = load_locale(language)
    leave = forms(labels["action.dismiss"])[-1]
    questions = [form for entry in labels.values() for form in forms(entry) if form.endswith(("?", "\uff1f"))]
    assert len(questions) > 5
    assert [question for question in questions if leave.lower() in question.lower()] == []


def used() -> Iterator[tuple[str, bool]]:
    """Yields used keys, and whether each is only a prefix."""
    for path in (*TEMPLATES, *WEB.rglob("*.py")):
        for key, end, more in _CALL.findall(path.read_text()):
            yield key, end == "{" or bool(more)


def test_every_used_key_exists() -> None:
    assert {key for key, begins in used() if not begins} - set(ENGLISH) == set()
    begun = [key for key, begins in used() if begins]
    assert begun
    assert [key for key in begun if not any(known.startswith(key) for known in ENGLISH)] == []


def test_every_key_is_used() -> None:
    begun = tuple(key for key, begins in used() if begins)
    text = "\n".join(path.read_text() for path in (*TEMPLATES, *WEB.rglob("*.py")))
    assert [key for key in ENGLISH if f'"{key}"' not in text and not key.startswith(begun)] == []


class Texts(HTMLParser):
    """Collects the literal texts of a template, including attributes that screen readers read."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._quoted = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._quoted += tag in {"code", "kbd", "style"}
        spoken = {"title", "aria-label", "placeholder", "alt"}
        self.found += [value for name, value in attrs if name in spoken and value]

    def handle_endtag(self, tag: str) -> None:
        self._quoted -= tag in {"code", "kbd", "style"}

    def handle_data(self, data: str) -> None:
        if not self._quoted:
            self.found.append(data)


def without_expressions(template: str) -> str:
    """Replaces every expression by a symbol."""
    parts = [
        value if kind == "data" else "§" if kind == "variable_begin" else ""
        for _, kind, value in Environment(autoescape=True).lex(template)
    ]
    return "".join(parts)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_templates_have_no_literal_text(path: Path) -> None:
    reads = Texts()
    reads.feed(without_expressions(path.read_text()))
    assert [text.strip() for text in reads.found if re.search(r"[^\W\d_]{2}|[\u4e00-\u9fff]", text)] == []


def test_literal_text_is_found() -> None:
    reads = Texts()
    reads.feed(without_expressions('<p title="Hello">{{ t("a") }} jobs <code>retry</code></p>'))
    assert [text.strip(" §") for text in reads.found] == ["Hello", "jobs"]


def test_plural_forms() -> None:
    translate = Translator("en", {"jobs": {"one": "{count} job", "other": "{count} jobs"}, "by": "by {user}"})
    assert [translate("jobs", count=count) for count in (0, 1, 1200)] == ["0 jobs", "1 job", "1,200 jobs"]
    assert translate("by", user="{count}") == "by {count}"


def test_durations_have_two_units() -> None:
    spans = [0.25, 59, 3600, 3661, 200_000]
    assert [translator("en").duration(span) for span in spans] == [
        "0.2 s",
        "59 s",
        "1 h",
        "1 h 1 min",
        "2 d 7 h",
    ]
    assert translator("zh").duration(3661) == "1 小时 1 分"
