"""The page runner detects what it should."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.page_runner import matches_output, run_page


def fence(language: str, body: str) -> str:
    return f"```{language}\n{body}```\n"


def test_files_grow_block_by_block_and_commands_see_them(tmp_path: Path) -> None:
    page = (
        fence("python", "# a.py\nprint('one')\n")
        + fence("python", "# a.py\nprint('two')\n")
        + fence("console", "$ python a.py\none\ntwo\n")
        + fence("python", "# a.py, from the start\nprint('three')\n")
        + fence("console", "$ python a.py\nthree\n$ true\n")
    )
    assert run_page(page, tmp_path) == 3


@pytest.mark.parametrize(
    "console", ["$ echo one\ntwo\n", "$ false\n", "$ true\n[exit code 1]\n", "$ echo one\n", "$ true\none\n"]
)
def test_another_output_or_exit_code_is_noticed(console: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        run_page(fence("console", console), tmp_path)


def test_an_exit_code_can_be_expected(tmp_path: Path) -> None:
    run_page(fence("console", "$ echo no; exit 3\nno\n[exit code 3]\n"), tmp_path)


def test_an_ellipsis_stands_for_what_differs() -> None:
    assert matches_output("job … done\n", "job 01a1 done  \n")
    assert matches_output("first\n…\nlast\n", "first\na\nb\nlast\n")
    assert matches_output("first\n…\nlast\n", "first\nlast\n")
    assert not matches_output("job … done\n", "job 01a1\ndone\n")
