"""Names and sentences stay as plain as they are: each figure has a limit that may only fall."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.style import figures
from tests.style.prose import Sentence, comment_prose, label_prose, python_prose

LIMITS = tomllib.loads((Path(__file__).parent / "limits.toml").read_text(encoding="utf-8"))
GERUND_MODULES: dict[str, str] = LIMITS["gerund_modules"]

# Each kind of prose: its folders and file endings.
KINDS = {
    "code": (("src",), (".py",)),
    "tests": (("tests", "benchmarks", "scripts"), (".py",)),
    "sql_and_lua": (("src",), (".sql", ".lua")),
    "labels": (("src",), ("en.toml",)),
}


def at_limit(figure: float, limit: float, places: object, name: str) -> None:
    """Fails when the figure is over its limit, and when the limit has become too generous."""
    assert figure <= limit, f"{name}: {figure:.2f} is over the limit of {limit}: {places}"
    slack = max(0.1 * limit, 0.1)
    assert figure >= limit - slack, f"{name}: {figure:.2f} is below {limit}: lower the limit in limits.toml"


@pytest.mark.parametrize("kind", KINDS)
def test_hard_sentences_per_thousand_words(kind: str) -> None:
    folders, suffixes = KINDS[kind]
    hard, words = figures.hard_sentences(*folders, suffixes=suffixes)
    places = "\n".join(f"{one.path}:{one.line}: {one.text[:120]}" for one in hard)
    at_limit(1000 * len(hard) / words, LIMITS["hard_sentences_per_thousand_words"][kind], places, kind)


def test_names_of_tests() -> None:
    found = figures.hard_names("tests")
    at_limit(len(found), LIMITS["hard_test_names"], "\n".join(found), "names of tests")


def test_class_names_are_unique() -> None:
    found = figures.repeated_classes()
    at_limit(len(found), LIMITS["repeated_class_names"], found, "repeated class names")


def test_no_class_is_named_by_a_participle() -> None:
    assert figures.participle_classes() == {}


def test_module_names_are_nouns() -> None:
    """Every exception is listed in limits.toml with its reason."""
    assert sorted(figures.gerund_modules()) == sorted(GERUND_MODULES)
    assert all(GERUND_MODULES.values())


def test_functions_are_short() -> None:
    lengths = figures.function_lengths()
    assert lengths[0][0] <= LIMITS["longest_function"], lengths[:5]
    assert figures.percentile_90([length for length, _ in lengths]) <= LIMITS["function_90th_percentile"]


def test_files_are_neither_tiny_nor_huge() -> None:
    lengths = figures.file_lengths()
    assert len(lengths) <= LIMITS["files"]
    assert figures.median_file_length() >= LIMITS["median_file_length"]
    assert max(lengths.values()) <= LIMITS["longest_file"], lengths.most_common(5)


def test_every_kind_of_prose_is_read() -> None:
    """The reader sees docstrings, comments, help texts, log lines, labels, and comments in SQL and Lua."""
    code = (
        '"""Top."""\n'
        'x = option(help="Asks whoever.")  # Kept by nobody\n'
        'class E:\n    sentence: str = "told of it"\n'
    )
    found = sorted((one.line, one.text) for one in python_prose("a.py", code))
    assert found == [(1, "Top."), (2, "Asks whoever."), (2, "Kept by nobody"), (4, "told of it")]
    assert list(comment_prose("a.sql", "-- Rows of a job\nselect 1; -- one\n")) == [
        Sentence("a.sql", 1, "Rows of a job"),
        Sentence("a.sql", 2, "one"),
    ]
    assert list(label_prose("en.toml", '[jobs]\nall = "All jobs"\n')) == [Sentence("en.toml", 2, "All jobs")]


@pytest.mark.parametrize(
    "text", ["Shown to whoever wonders.", "What waits for a pool.", "Those are gone. Who listens hears it."]
)
def test_a_hard_sentence_is_found(text: str) -> None:
    assert figures.HARD_WORDS.search(text) or figures.HEADLESS.search(text)


@pytest.mark.parametrize(
    "text", ["The worker renews the lease.", "Returns None if the job is gone.", "Where: the queue."]
)
def test_a_plain_sentence_is_not_found(text: str) -> None:
    assert not figures.HARD_WORDS.search(text)
    assert not figures.HEADLESS.search(text)
