"""`python -m tests.mutation [--mutants 300] [--seed N] [--only path] [--seconds S] [--jobs 1]`

Changes one line at a time in a copy of the project, runs the tests that run that line, and prints the
changes that no test detects. A mutant that exceeds the time limit counts as detected."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

from tests.mutation.coverage import CoveringTest, recorded
from tests.mutation.mutants import Mutant, choose, mutants_of
from tests.mutation.project_copies import ProjectCopy, create_copies, import_packages
from tests.mutation.trials import Counts, Trial, Verdict, trial_of

PROJECT = Path(__file__).parents[2]
PACKAGES = ("core", "engine", "worker", "feedback")
# Tests that check the four packages in seconds and without a server.
TESTS = (
    "tests/core",
    "tests/engine",
    "tests/feedback",
    "tests/conformance/test_memory.py",
    "tests/conformance/test_sqlite.py",
    "tests/auth/test_redaction.py",
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


def main() -> None:
    arguments = _arguments()
    began = time.monotonic()
    print(f"seed {arguments.seed}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # removes the copies
    import_packages()
    with create_copies(PROJECT, arguments.jobs) as copies:
        root = copies[0].root
        watched = [str(path.relative_to(root)) for path in _sources(root, PACKAGES)]
        tests = list(recorded(copies[0], watched, arguments.tests or TESTS))
        wanted = [
            path
            for path in watched
            if not arguments.only or any(path.startswith(one) for one in arguments.only)
        ]
        every = [one for path in wanted for one in mutants_of(root, path)]
        chosen = (
            _repeated(every, arguments.again)
            if arguments.again
            else choose(every, arguments.seed, arguments.mutants)
        )
        print(
            f"{len(tests)} tests, {len(chosen)} mutants, {time.monotonic() - began:.0f} s to prepare",
            flush=True,
        )
        counts = Counts()
        try:
            _run(chosen, tests, copies, counts, arguments)
        finally:
            counts.report()
    sys.exit(bool(counts.survivors))


def _arguments() -> argparse.Namespace:
    read = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    read.add_argument("--mutants", type=int, default=300, help="number of mutants")
    read.add_argument(
        "--seed",
        type=int,
        default=random.SystemRandom().randrange(10**6),
        help="the seed of the random choice",
    )
    read.add_argument("--again", type=Path, help="the output of a run: try only its survivors")
    read.add_argument(
        "--only", action="append", default=[], help="a path that mutants must begin with; may repeat"
    )
    read.add_argument("--tests", action="append", default=[], help="a test file or folder to use; may repeat")
    read.add_argument(
        "--seconds", type=float, default=float("inf"), help="start no mutant after these seconds"
    )
    read.add_argument(
        "--budget", type=float, default=90.0, help="limit of the recorded seconds of tests per mutant"
    )
    read.add_argument("--jobs", type=int, default=1, help="concurrent mutants")
    return read.parse_args()


def _repeated(every: Sequence[Mutant], output: Path) -> list[Mutant]:
    return [one for one in every if f"survived {one}  (" in output.read_text()]


def _run(
    chosen: Sequence[Mutant],
    tests: Sequence[CoveringTest],
    copies: Sequence[ProjectCopy],
    counts: Counts,
    arguments: argparse.Namespace,
) -> None:
    allowed = {(one["path"], one["original"], one["mutant"]) for one in equivalents()}
    deadline = time.monotonic() + arguments.seconds
    free, trials, waiting = list(copies), list[Trial](), list(reversed(chosen))
    while trials or (waiting and time.monotonic() < deadline):
        while free and waiting and time.monotonic() < deadline:
            mutant = waiting.pop()
            if (mutant.path, mutant.original, mutant.mutated) in allowed:
                counts.add(mutant, Verdict.EQUIVALENT, 0)
            else:
                trials.append(trial_of(mutant, tests, free.pop(), arguments.budget))
        for trial in list(trials):
            verdict = trial.verdict()
            if verdict is not None:
                counts.add(trial.mutant, verdict, trial.tests)
                trial.tree.restore()
                trials.remove(trial)
                free.append(trial.tree)
        time.sleep(0.02)


def equivalents() -> list[dict[str, str]]:
    """Returns the mutants that behave like the original, each with its reason."""
    return list(tomllib.loads(EQUIVALENT.read_text()).get("mutant", []))


def _sources(root: Path, packages: Sequence[str]) -> list[Path]:
    return [path for package in packages for path in sorted((root / "src/tidemill" / package).rglob("*.py"))]


if __name__ == "__main__":
    main()
