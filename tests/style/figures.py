"""Measures names, sentences, files and functions of the source."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

from tests.style.prose import Sentence, prose

ROOT = Path(__file__).parents[2]

# Words that mark a sentence without a plain subject, or a word no engineer of the field would use.
HARD_WORDS = re.compile(
    r"\b(whoever|whomever|whom|whose turn|nobody|somebody|everybody|whatever|whichever|anew|thereof|"
    r"therein|shall|"
    r"so many|so much|in vain|is told|are told|be told|was told|were told|told of|said so|let go of|seen to|"
    r"looked after|goes on with|comes of it|as it were|one that|ones that|those that|of its own accord)\b",
    re.IGNORECASE,
)
# "What waits." or "Those that ended.": a clause where a sentence should be.
HEADLESS = re.compile(r"(?:^|(?<=[.:;] ))(?:What|Who|Those|That which|Where) [a-z']+ [^.?]{0,80}\.(?:\s|$)")

PARTICIPLES = frozenset(
    """Told Kept Shown Asked Said Known Meant Held Drawn Taken Looked Wanted Given Made Found Lost Left Led
    Stopped Shut Standing Beginning Seen Sent Heard Read Written Begun Ended Changed Done Gone Put Set Met
    Paid Chosen Counted Answered Embedded Refused Claimed Settled Marked Stirred Stored Opened Closed Listed
    Sorted Named""".split()  # noqa: SIM905 - a list of words reads better as text
)
# Words that end in -ing and are nouns of the field.
NOUNS_IN_ING = frozenset(
    """testing string ping ring setting routing logging billing pricing rating polling batching sharding
    chunking tracing embedding packaging dubbing timing building encoding hashing
    heading""".split()  # noqa: SIM905 - a list of words reads better as text
)


@cache
def tracked(*folders: str) -> tuple[str, ...]:
    """Paths of the files that git tracks below the folders, without vendored ones."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *folders],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return tuple(sorted({p for p in listing.splitlines() if "vendor" not in p and (ROOT / p).is_file()}))


@cache
def tree(path: str) -> ast.Module:
    """The syntax tree of a Python file."""
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def python_files(*folders: str) -> list[str]:
    """The Python files below the folders."""
    return [path for path in tracked(*folders) if path.endswith(".py")]


def hard_sentences(*folders: str, suffixes: tuple[str, ...] = (".py",)) -> tuple[list[Sentence], int]:
    """The sentences with a hard word or without a subject, and the number of all words."""
    hard, words = [], 0
    for sentence in prose(ROOT, [path for path in tracked(*folders) if path.endswith(suffixes)]):
        words += len(sentence.text.split())
        if HARD_WORDS.search(sentence.text) or HEADLESS.search(sentence.text):
            hard.append(sentence)
    return hard, words


def hard_names(*folders: str) -> list[str]:
    """Test functions whose name, read as a sentence, has a hard word."""
    tests = (
        (path, node)
        for path in python_files(*folders)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )
    return [
        f"{path}:{node.lineno}: {node.name}"
        for path, node in tests
        if HARD_WORDS.search(node.name.replace("_", " "))
    ]


def classes() -> dict[str, list[str]]:
    """The modules that define each class of `src`; a leading underscore makes no other name."""
    found = defaultdict(list)
    for path in python_files("src"):
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].append(path)
    return dict(found)


def repeated_classes() -> dict[str, list[str]]:
    """Class names that two or more modules define."""
    return {name: where for name, where in classes().items() if len(where) > 1}


def participle_classes() -> dict[str, list[str]]:
    """Classes whose name is a participle."""
    return {name: where for name, where in classes().items() if name in PARTICIPLES}


def gerund_modules() -> list[str]:
    """Modules of `src` whose name ends in -ing and is no noun of the field."""
    stems = ((path, Path(path).stem.lstrip("_")) for path in python_files("src"))
    return [path for path, stem in stems if stem.endswith("ing") and stem not in NOUNS_IN_ING]


def function_lengths() -> list[tuple[int, str]]:
    """The length of every function of `src`, the longest first."""
    lengths = [
        ((node.end_lineno or node.lineno) - node.lineno + 1, f"{path}:{node.lineno}: {node.name}")
        for path in python_files("src")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return sorted(lengths, reverse=True)


def percentile_90(values: list[int]) -> int:
    """The 90th percentile, as the smallest value that nine in ten values do not exceed."""
    ordered = sorted(values)
    return ordered[-(-9 * len(ordered) // 10) - 1]


def file_lengths() -> Counter[str]:
    """The number of lines of every Python file of `src`."""
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in python_files("src")}
    return Counter({path: text.count("\n") for path, text in texts.items()})


def median_file_length() -> float:
    """The median number of lines of a Python file of `src`."""
    return statistics.median(file_lengths().values())
