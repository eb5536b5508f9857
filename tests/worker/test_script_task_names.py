"""A script and the worker that imports it use the same task names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
from tidemill import Tidemill
app = Tidemill("memory://")

@app.task
async def refresh() -> None: ...

if __name__ in ("__main__", "__mp_main__"):
    print(refresh.name)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(SCRIPT)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "jobs.py").write_text(SCRIPT)
    return tmp_path


def _name(folder: Path, *arguments: str, stdin: str | None = None) -> str:
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, input=stdin, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.parametrize(
    ("arguments", "imported_as"),
    [(("jobs.py",), "jobs"), (("-m", "jobs"), "jobs"), (("-m", "shop.jobs"), "shop.jobs")],
)
def test_a_script_names_its_tasks_as_a_worker_that_imports_it(
    folder: Path, arguments: tuple[str, ...], imported_as: str
) -> None:
    imported = _name(folder, "-c", f"import {imported_as} as jobs; print(jobs.refresh.name)")
    assert _name(folder, *arguments) == imported == f"{imported_as}.refresh"


def test_a_process_started_by_the_script_uses_the_same_task_names(folder: Path) -> None:
    spawns = SCRIPT + (
        "if __name__ == '__main__':\n"
        "    import multiprocessing\n"
        "    child = multiprocessing.get_context('spawn').Process(target=print, args=('over',))\n"
        "    child.start(); child.join()\n"
    )
    (folder / "spawns.py").write_text(spawns)
    assert _name(folder, "spawns.py").split() == ["spawns.refresh", "spawns.refresh", "over"]


def test_without_a_file_there_is_nothing_to_import(folder: Path) -> None:
    assert _name(folder, "-", stdin=SCRIPT) == "__main__.refresh"
