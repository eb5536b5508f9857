"""Which tests run which lines, recorded once for each test file and kept in a temporary folder.

A record holds until that test file or one of the watched source files changes.
"""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.mutation.mutants import Mutant
from tests.mutation.plugin import LineRecord, register_profile
from tests.mutation.trees import Tree

CACHE = Path(tempfile.gettempdir()) / "tidemill-mutants-lines"
QUIET = ["-q", "-x", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not alone"]
RECORD_SECONDS = 1200.0
# Below this many seconds a test is cheap, and the narrower of two cheap ones comes first.
CHEAP_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class CoveringTest:
    """`width` is how many lines of the source the test runs: a narrow test is likely to be about the line."""

    name: str
    seconds: float
    width: int
    lines: dict[str, int]

    @property
    def rank(self) -> tuple[int, int]:
        return max(0, math.ceil(math.log2(max(self.seconds, CHEAP_SECONDS) / CHEAP_SECONDS))), self.width

    @property
    def file(self) -> str:
        return self.name.partition("::")[0]


def covering(tests: Sequence[CoveringTest], mutant: Mutant) -> list[CoveringTest]:
    """The tests that run the changed line, cheapest and narrowest first.

    A line that runs at import is met by every test that runs anything of its file. Of a file of which no test
    runs a function, such as one of structs only, it is met by every test.
    """
    first, last = mutant.lines
    if mutant.at_import and not any(test.lines.get(mutant.path) for test in tests):
        return sorted(tests, key=lambda test: test.rank)
    mask = -1 if mutant.at_import else ((1 << (last - first + 1)) - 1) << first
    return sorted(
        (test for test in tests if test.lines.get(mutant.path, 0) & mask), key=lambda test: test.rank
    )


def recorded(tree: Tree, watched: Sequence[str], folders: Sequence[str]) -> Iterator[CoveringTest]:
    """Every test that passes, with its lines; records those test files that are not in the cache."""
    for file in _files(tree.root, folders, "test_*.py"):
        name = f"{file} {_digest(tree.root, [*watched, file, *_suite(tree.root, file)])}"
        kept = CACHE / f"{hashlib.sha256(name.encode()).hexdigest()}.json"
        if not kept.exists():
            print(f"recording {file}", flush=True)
            _record(tree, watched, file, kept)
        for test, found in json.loads(kept.read_text()).items():
            if found["passed"]:
                lines = {path: int(bits, 16) for path, bits in found["lines"].items()}
                yield CoveringTest(test, found["seconds"], sum(map(int.bit_count, lines.values())), lines)


def _record(tree: Tree, watched: Sequence[str], file: str, kept: Path) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)

    def run() -> int:
        register_profile()
        record = LineRecord(tree.root, watched)
        pytest.main([one for one in QUIET if one != "-x"] + [file], plugins=[record])
        kept.write_text(json.dumps(record.tests))
        return 0

    process = tree.start(run, RECORD_SECONDS)
    while process.poll() is None:
        time.sleep(0.02)
    if not kept.exists():
        print(f"no lines of {file}: its tests are not used", flush=True)
        kept.write_text("{}")


def _suite(root: Path, file: str) -> list[str]:
    """Where the tests of a file stand when they are not in it."""
    folder = "src/tidemill/testing/conformance"
    return _files(root, [folder], "*.py") if file.startswith("tests/conformance") else []


def _files(root: Path, folders: Sequence[str], pattern: str) -> list[str]:
    found: list[Path] = []
    for folder in folders:
        path = root / folder
        found += [path] if path.is_file() else sorted(path.rglob(pattern))
    return [str(path.relative_to(root)) for path in found]


def _digest(root: Path, files: Sequence[str]) -> str:
    whole = hashlib.sha256()
    for file in files:
        whole.update((root / file).read_bytes())
    return whole.hexdigest()
