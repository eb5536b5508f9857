"""What the pages show is what happens: their Python runs, and prints what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

README, TUTORIAL = "README.md", "docs/tutorial/first-job.md"


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def write_scripts(page: str, folder: Path) -> None:
    """A block goes to the end of the file its first line names; without one it is `first.py`."""
    for block in blocks(page, "python"):
        named = re.match(r"# (\w+\.py)\n", block)
        with (folder / (named[1] if named else "first.py")).open("a", encoding="utf-8") as script:
            script.write(block + "\n")


def run(folder: Path, *arguments: str) -> str:
    """What a Python prints on stdout."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL_")}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("page", [README, TUTORIAL])
def test_the_code_prints_what_the_page_says(page: str, tmp_path: Path) -> None:
    write_scripts(page, tmp_path)
    assert run(tmp_path, "first.py") == "".join(blocks(page, "text"))


def test_the_worker_of_the_tutorial_serves_what_the_tutorial_declares(tmp_path: Path) -> None:
    """Importing the application must not run the script that uses it."""
    write_scripts(TUTORIAL, tmp_path)
    named = re.search(r"`tidemill worker (\w+:\w+)`", (ROOT / TUTORIAL).read_text(encoding="utf-8"))
    assert named
    send = f"from {named[1].replace(':', ' import ')}, count; print(count.enqueue_sync('tide').id)"
    job = run(tmp_path, "-c", send).strip()
    assert run(tmp_path, "-m", "tidemill", "worker", named[1], "--until-idle") == ""
    look = f"from jobs import app; print(app.job({job!r}).result_sync(timeout=1))"
    assert run(tmp_path, "-c", look) == "4\n"


def test_the_script_of_the_readme_may_isolate_its_jobs(tmp_path: Path) -> None:
    """The child imports the script again, and must not run it again."""
    write_scripts(README, tmp_path)
    script = tmp_path / "first.py"
    text = script.read_text(encoding="utf-8")
    assert '@app.task(name="greet")\n' in text
    isolated = text.replace('(name="greet")', '(name="greet", isolate=True)')
    script.write_text(isolated, encoding="utf-8")
    assert run(tmp_path, "first.py") == "".join(blocks(README, "text"))


def test_every_make_target_the_readme_names_exists() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    assert set(re.findall(r"(?:`|^ +)make ([a-z]+)\b", readme, re.MULTILINE)) <= targets
