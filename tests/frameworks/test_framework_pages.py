"""The programs of the framework pages run as the pages say."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tests.docs.page_runner import code_blocks, run_page
from tests.docs.pages import page


@pytest.mark.parametrize("name", ["django", "fastapi", "flask"])
def test_the_page_is_what_happens(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE", raising=False)  # set by the tests of the Django project
    assert run_page(page(f"how-to/{name}.md"), tmp_path) > 0


PAGE = page("how-to/scripts-and-notebooks.md")
CELLS = [body for language, body in code_blocks(PAGE) if language == "python" and body.startswith("# cell\n")]


def test_the_scripts_are_what_happens(tmp_path: Path) -> None:
    assert run_page(PAGE, tmp_path) == 3


async def run_cell(cell: str, names: dict[str, Any]) -> Any:
    """Runs a cell like IPython with `autoawait`: the value of its last expression is returned."""
    module = ast.parse(cell)
    last = module.body.pop() if isinstance(module.body[-1], ast.Expr) else None
    value = await _run(module, "exec", names)
    if isinstance(last, ast.Expr):
        value = await _run(ast.Expression(last.value), "eval", names)
    return value


async def _run(code: ast.Module | ast.Expression, mode: str, names: dict[str, Any]) -> Any:
    compiled = compile(code, "cell", mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    value = types.FunctionType(compiled, names)()
    return await value if inspect.isawaitable(value) else value


async def test_the_cells_of_the_page_run_on_a_running_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (jobs,) = [body for _, body in code_blocks(PAGE) if body.startswith("# jobs.py\n")]
    (tmp_path / "jobs.py").write_text(jobs, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "jobs", raising=False)
    importlib.invalidate_caches()
    names: dict[str, Any] = {}
    try:
        values = [await run_cell(cell, names) for cell in CELLS]
    finally:
        await names["app"].close()
        sys.modules.pop("jobs", None)
    assert values[:3] == ["ready", 49, [4, 9]]
    assert "write `await result(…)`" in values[3]
    assert len(CELLS) == 4
