"""`python -m tests.mutation [--mutants 300] [--seed N] [--only path] [--seconds S] [--jobs 1]`: the mutation run.

Changes one line at a time in a copy of the project, runs the tests that run that line, and prints the changes that
no test noticed. A mutant that runs too long counts as noticed.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import pytest

from tests.mutation.coverage import QUIET, CoveringTest, covering, recorded
from tests.mutation.mutants import Mutant, choose, mutants_of
from tests.mutation.plugin import Selection, register_profile
from tests.mutation.trees import Run, Tree, import_packages, trees

PROJECT = Path(__file__).parents[2]
PACKAGES = ("core", "engine", "worker", "feedback")
# What judges the four packages in seconds and without a server.
TESTS = (
    "tests/core",
    "tests/engine",
    "tests/feedback",
    "tests/conformance/test_memory.py",
    "tests/conformance/test_sqlite.py",
    "tests/forecast",
    "tests/stores/memory",
    "tests/worker",
    "tests/flows",
    "tests/schedules",
    "tests/quotas",
    "tests/simulation",
    "tests/inspect",
    "tests/client",
)
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
FIRST_SECONDS, FIRST_FILES = 4.0, 4


class Verdict(StrEnum):
    CAUGHT = "caught"
    SURVIVED = "survived"
    EQUIVALENT = "equivalent"


@dataclass(slots=True)
class Trial:
    """One mutant on its way through the batches of tests that run its line."""

    mutant: Mutant
    batches: list[list[CoveringTest]]
    tests: int
    tree: Tree
    run: Run | None = None

    def start(self) -> None:
        batch = self.batches.pop(0)
        names = [test.name for test in batch]
        files = list(dict.fromkeys(test.file for test in batch))

        def run() -> int:
            register_profile()
            return int(pytest.main([*QUIET, *files], plugins=[Selection(names)]))

        self.run = self.tree.start(run, 30 + 4 * sum(test.seconds for test in batch))

    def verdict(self) -> Verdict | None:
        """None while tests still run."""
        if self.run is None:
            return Verdict.SURVIVED
        code = self.run.poll()
        if code is None:
            return None
        if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            if not self.batches:
                return Verdict.SURVIVED
            self.start()
            return None
        return Verdict.CAUGHT


@dataclass(slots=True)
class Counts:
    """The verdicts per package."""

    verdicts: Counter[tuple[str, Verdict]] = field(default_factory=Counter)
    survivors: list[str] = field(default_factory=list)

    def add(self, mutant: Mutant, verdict: Verdict, tests: int) -> None:
        self.verdicts[mutant.path.split("/")[2], verdict] += 1
        if verdict is Verdict.SURVIVED:
            self.survivors.append(f"{mutant}  ({tests} tests ran the line)")
            print(f"survived {self.survivors[-1]}", flush=True)

    def report(self) -> None:
        print(f"\n{len(self.survivors)} survivors")
        for survivor in sorted(self.survivors):
            print(survivor)
        print(
            f"\n{'package':10} {'mutants':>8} {'caught':>8} {'survived':>9} {'equivalent':>11} {'caught of the rest':>19}"
        )
        packages = sorted({package for package, _ in self.verdicts})
        for package in [*packages, "all"]:
            caught, survived, equivalent = (
                sum(self.verdicts[one, verdict] for one in (packages if package == "all" else [package]))
                for verdict in Verdict
            )
            share = 100 * caught / max(1, caught + survived)
            whole = caught + survived + equivalent
            print(f"{package:10} {whole:8} {caught:8} {survived:9} {equivalent:11} {share:17.1f} %")


def main() -> None:
    asked = _arguments()
    began = time.monotonic()
    print(f"seed {asked.seed}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # removes the copies
    import_packages()
    with trees(PROJECT, asked.jobs) as copies:
        root = copies[0].root
        watched = [str(path.relative_to(root)) for path in _sources(root, PACKAGES)]
        tests = list(recorded(copies[0], watched, asked.tests or TESTS))
        wanted = [
            path for path in watched if not asked.only or any(path.startswith(one) for one in asked.only)
        ]
        every = [one for path in wanted for one in mutants_of(root, path)]
        chosen = _repeated(every, asked.again) if asked.again else choose(every, asked.seed, asked.mutants)
        print(
            f"{len(tests)} tests, {len(chosen)} mutants, {time.monotonic() - began:.0f} s to prepare",
            flush=True,
        )
        counts = Counts()
        try:
            _run(chosen, tests, copies, counts, asked)
        finally:
            counts.report()
    sys.exit(bool(counts.survivors))


def _arguments() -> argparse.Namespace:
    read = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    read.add_argument("--mutants", type=int, default=300, help="how many")
    read.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(10**6), help="repeats a choice"
    )
    read.add_argument("--again", type=Path, help="the survivors in the output of an earlier run, and no others")
    read.add_argument(
        "--only", action="append", default=[], help="a path that mutants must begin with; may repeat"
    )
    read.add_argument("--tests", action="append", default=[], help="a test file or folder to use; may repeat")
    read.add_argument("--seconds", type=float, default=float("inf"), help="start no mutant after so long")
    read.add_argument(
        "--budget", type=float, default=90.0, help="seconds of tests for one mutant, as recorded"
    )
    read.add_argument("--jobs", type=int, default=1, help="mutants at once")
    return read.parse_args()


def _repeated(every: Sequence[Mutant], output: Path) -> list[Mutant]:
    return [one for one in every if f"survived {one}  (" in output.read_text()]


def _run(
    chosen: Sequence[Mutant],
    tests: Sequence[CoveringTest],
    copies: Sequence[Tree],
    counts: Counts,
    asked: argparse.Namespace,
) -> None:
    allowed = {(one["path"], one["original"], one["mutant"]) for one in equivalents()}
    deadline = time.monotonic() + asked.seconds
    free, trials, waiting = list(copies), list[Trial](), list(reversed(chosen))
    while trials or (waiting and time.monotonic() < deadline):
        while free and waiting and time.monotonic() < deadline:
            mutant = waiting.pop()
            if (mutant.path, mutant.original, mutant.mutated) in allowed:
                counts.add(mutant, Verdict.EQUIVALENT, 0)
            else:
                trials.append(_trial(mutant, tests, free.pop(), asked.budget))
        for trial in list(trials):
            verdict = trial.verdict()
            if verdict is not None:
                counts.add(trial.mutant, verdict, trial.tests)
                trial.tree.restore()
                trials.remove(trial)
                free.append(trial.tree)
        time.sleep(0.02)


def _trial(mutant: Mutant, tests: Sequence[CoveringTest], tree: Tree, budget: float) -> Trial:
    found = covering(tests, mutant)
    trial = Trial(mutant, list(_batches(found, budget)), len(found), tree)
    if trial.batches:
        tree.change(mutant.path, mutant.source(tree.root))
        trial.start()
    return trial


def _batches(found: Sequence[CoveringTest], budget: float) -> Iterator[list[CoveringTest]]:
    """A short batch from few files, which catches most mutants, and one with the rest up to the budget."""
    first: list[CoveringTest] = []
    rest: list[CoveringTest] = []
    seconds = 0.0
    files: set[str] = set()
    for test in found:
        seconds += test.seconds
        if seconds <= FIRST_SECONDS and (test.file in files or len(files) < FIRST_FILES):
            files.add(test.file)
            first.append(test)
        elif seconds <= budget:
            rest.append(test)
    yield from (batch for batch in (first, rest) if batch)


def equivalents() -> list[dict[str, str]]:
    """The mutants that behave as the original does, each with its reason."""
    return list(tomllib.loads(EQUIVALENT.read_text()).get("mutant", []))


def _sources(root: Path, packages: Sequence[str]) -> list[Path]:
    return [path for package in packages for path in sorted((root / "src/tidemill" / package).rglob("*.py"))]


if __name__ == "__main__":
    main()
