"""Records which tests run which lines, once per test file, in a temporary folder.

A record is valid until that test file or one of the watched source files changes."""

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
from tests.mutation.project_copies import ProjectCopy

CACHE = Path(tempfile.gettempdir()) / "tidemill-mutants-lines"
QUIET = ["-q", "-x", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not alone"]
RECORD_SECONDS = 1200.0
# Below this many seconds a test is cheap; of two cheap tests the narrower one comes first.
CHEAP_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class CoveringTest:
    """A test and its lines. `width` is the number of source lines it runs: a narrow test is likely to be
    about the line."""

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
    """Returns the tests that run the changed line, cheapest and narrowest first.

    Every test that runs any line of a file covers its lines that run at import. If no test runs a
    function of the file, such as a file with structs only, every test covers them."""
    first, last = mutant.lines
    if mutant.at_import and not any(test.lines.get(mutant.path) for test in tests):
        return sorted(tests, key=lambda test: test.rank)
    mask = -1 if mutant.at_import else ((1 << (last - first + 1)) - 1) << first
    return sorted(
        (test for test in tests if test.lines.get(mutant.path, 0) & mask), key=lambda test: test.rank
    )


def recorded(tree: ProjectCopy, watched: Sequence[str], folders: Sequence[str]) -> Iterator[CoveringTest]:
    """Yields every test that passes, with its lines; records the test files that are not in the cache."""
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


def _record(tree: ProjectCopy, watched: Sequence[str], file: str, kept: Path) -> None:
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
    """Returns the files of the conformance suite for a test file that imports it."""
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
