"""Runs one mutant against the tests that run its line, and counts the verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import pytest

from tests.mutation.coverage import QUIET, CoveringTest, covering
from tests.mutation.mutants import Mutant
from tests.mutation.plugin import Selection, register_profile
from tests.mutation.project_copies import ForkedRun, ProjectCopy

FIRST_SECONDS, FIRST_FILES = 4.0, 4
PROGRESS = 25


class Verdict(StrEnum):
    CAUGHT = "caught"
    SURVIVED = "survived"
    EQUIVALENT = "equivalent"


@dataclass(slots=True)
class Trial:
    """The progress of one mutant through the batches of tests that run its line."""

    mutant: Mutant
    batches: list[list[CoveringTest]]
    tests: int
    tree: ProjectCopy
    run: ForkedRun | None = None

    def start(self) -> None:
        batch = self.batches.pop(0)
        names = [test.name for test in batch]
        files = list(dict.fromkeys(test.file for test in batch))

        def run() -> int:
            register_profile()
            return int(pytest.main([*QUIET, *files], plugins=[Selection(names)]))

        self.run = self.tree.start(run, 30 + 4 * sum(test.seconds for test in batch))

    def verdict(self) -> Verdict | None:
        """Returns the verdict, or None while tests run."""
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
        if (tried := self.verdicts.total()) % PROGRESS == 0:
            print(f"{tried} tried, {len(self.survivors)} survived", flush=True)

    def report(self) -> None:
        print(f"\n{len(self.survivors)} survivors")
        for survivor in sorted(self.survivors):
            print(survivor)
        print(
            f"\n{'package':10} {'mutants':>8} {'caught':>8} {'survived':>9} {'equivalent':>11} {'share':>8}"
        )
        packages = sorted({package for package, _ in self.verdicts})
        for package in [*packages, "all"]:
            caught, survived, equivalent = (
                sum(self.verdicts[one, verdict] for one in (packages if package == "all" else [package]))
                for verdict in Verdict
            )
            share = 100 * caught / max(1, caught + survived)
            whole = caught + survived + equivalent
            print(f"{package:10} {whole:8} {caught:8} {survived:9} {equivalent:11} {share:6.1f} %")


def trial_of(mutant: Mutant, tests: Sequence[CoveringTest], tree: ProjectCopy, budget: float) -> Trial:
    found = covering(tests, mutant)
    trial = Trial(mutant, list(_batches(found, budget)), len(found), tree)
    if trial.batches:
        tree.change(mutant.path, mutant.source(tree.root))
        trial.start()
    return trial


def _batches(found: Sequence[CoveringTest], budget: float) -> Iterator[list[CoveringTest]]:
    """Yields a short batch from few files, which detects most mutants, and one with the rest up to the
    budget."""
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
