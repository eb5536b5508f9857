"""Tests of the mutation run: its mutants are valid Python, and it reports the ones that a test detects."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutation.__main__ import EQUIVALENT, PACKAGES, PROJECT, equivalents
from tests.mutation.coverage import CoveringTest, covering
from tests.mutation.mutants import Mutant, choose, mutants_of

DEFINITION = "def cheap(price: int, limit: int = 10) -> bool:"
SMALL = f"""
{DEFINITION}
    if price < limit:
        return True
    return False
"""
TESTS = """
from small import cheap

def test_far_from_the_limit():
    assert cheap(5)
    assert not cheap(15)
"""
RUN = """
import sys
from dataclasses import replace
import time
from pathlib import Path

from tests.mutation import coverage
from tests.mutation.mutants import mutants_of
from tests.mutation.project_copies import create_copies
from tests.mutation.trials import trial_of

coverage.CACHE = Path(sys.argv[1]) / "cache"
with create_copies(Path(sys.argv[1]) / "project", 1) as [tree]:
    tests = list(coverage.recorded(tree, ["src/small.py"], ["tests"]))
    for mutant in mutants_of(tree.root, "src/small.py"):
        trial = trial_of(mutant, tests, tree, 60.0)
        while (verdict := trial.verdict()) is None:
            time.sleep(0.01)
        tree.restore()
        print(verdict, mutant)
"""


def mutated(folder: Path, source: str) -> set[str]:
    (folder / "some.py").write_text(source)
    return {one.mutated for one in mutants_of(folder, "some.py")}


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("x = a < b", {"x = (a <= b)"}),
        ("x = a is None", {"x = (a is not None)"}),
        ("x = a and b", {"x = (a or b)", "x = (a)", "x = (b)"}),
        ("x = not a", {"x = (a)"}),
        ("x = a if b else c", {"x = a if (not (b)) else c"}),
        ("x = [a for a in b if c]", {"x = [a for a in b if True]"}),
        ("x = a + b", {"x = (a - b)"}),
        ("x = 'a' + b", set()),
        ("x = 3", {"x = 4"}),
        ("x = True", {"x = False"}),
        ("x = max(a, b)", {"x = min(a, b)", "x = (a)", "x = (b)"}),
        ("x = abs(a)", {"x = (a)"}),
        ("x = f(a, b=c)", {"x = (f(a))"}),
        ("f(a)", {"pass"}),
        ("x.y = a", {"pass"}),
        ("x: int | None = a", set()),
        ("raise f(a, b=c)", {"pass"}),
        ('"""a < b"""', set()),
    ],
)
def test_the_mutants_of_a_line(tmp_path: Path, source: str, wanted: set[str]) -> None:
    assert mutated(tmp_path, source) == wanted


def test_every_mutant_of_a_choice_is_python() -> None:
    paths = [path for name in PACKAGES for path in (PROJECT / "src/tidemill" / name).rglob("*.py")]
    every = [one for path in sorted(paths) for one in mutants_of(PROJECT, str(path.relative_to(PROJECT)))]
    for mutant in choose(every, 1, 200):
        compile(mutant.source(PROJECT), mutant.path, "exec")
        assert mutant.original != mutant.mutated


def test_a_choice_is_the_same_by_its_seed_and_takes_every_line_first() -> None:
    mutants = [
        Mutant("a.py", line, (line, line), 0, 0, "", "", f"{n}") for line in range(5) for n in range(9)
    ]
    chosen = choose(mutants, 3, 10)
    assert chosen == choose(mutants, 3, 10)
    assert sorted(one.line for one in chosen[:5]) == [0, 1, 2, 3, 4]


def test_mutants_are_reported_as_caught_or_survived(tmp_path: Path) -> None:
    project = tmp_path / "project"
    for name, text in (("src/small.py", SMALL), ("tests/test_small.py", TESTS), ("pytest.ini", "[pytest]\n")):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    ran = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path)], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    verdicts = [line for line in ran.stdout.splitlines() if line.startswith(("caught", "survived"))]
    assert verdicts == [
        f"survived src/small.py:2 {DEFINITION} → {DEFINITION.replace('10', '11')}",
        "caught src/small.py:3 if price < limit: → if (not (price < limit)):",
        "caught src/small.py:4 return True → pass",
        "survived src/small.py:3 if price < limit: → if (price <= limit):",
        "caught src/small.py:4 return True → return False",
        "caught src/small.py:5 return False → return True",
    ]
    assert (project / "src/small.py").read_text() == SMALL


def test_a_line_at_import_is_met_by_the_tests_of_its_file_or_by_all() -> None:
    structs = Mutant("structs.py", 4, (4, 4), 0, 1, "1", "a = 0", "a = 1", at_import=True)
    functions = replace(structs, path="functions.py")
    tests = [
        CoveringTest("of other lines", 0.1, 5, {"functions.py": 1 << 9}),
        CoveringTest("of another file", 0.1, 5, {"other.py": 1 << 4}),
    ]
    assert [test.name for test in covering(tests, functions)] == ["of other lines"]
    assert {test.name for test in covering(tests, structs)} == {test.name for test in tests}
    assert covering(tests, replace(structs, at_import=False)) == []


def test_an_equivalent_mutant_has_a_reason() -> None:
    for one in equivalents():
        assert set(one) == {"path", "original", "mutant", "reason"}, f"{EQUIVALENT}: {one}"
        assert (PROJECT / one["path"]).exists(), f"{EQUIVALENT}: {one['path']} is gone"
        assert len(one["reason"]) > 10, f"{EQUIVALENT}: {one['original']} has no reason"
