"""docs/reference/api.md is generated from the code, and every public method has a docstring."""

from __future__ import annotations

import inspect
import runpy
from pathlib import Path

import pytest

import tidemill
from tidemill import Context, Inspector, JobHandle, Task, Tidemill

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts/api_page.py"))


def test_every_public_name_is_on_the_page() -> None:
    text = SCRIPT["page"]()
    for name in tidemill.__all__:
        assert f"\n### {name}\n" in text or f"\n| `{name}` | " in text, name


def test_the_page_is_generated_from_the_code() -> None:
    written = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    assert written == SCRIPT["page"](), "the code has changed: run python scripts/api_page.py"


@pytest.mark.parametrize("owner", [Tidemill, Task, JobHandle, Context, Inspector])
def test_every_public_method_has_a_docstring(owner: type) -> None:
    public = {name: member for name, member in vars(owner).items() if not name.startswith("_")}
    silent = [
        name
        for name, member in public.items()
        if (inspect.isfunction(member) or isinstance(member, property)) and not member.__doc__
    ]
    assert not silent
    assert owner.__doc__
