"""The page for authors of stores: its test module runs the suite on a store that is not ours."""

from __future__ import annotations

from pathlib import Path

from tests.docs import terminal
from tests.docs.pages import page
from tests.docs.session import write_files

MYSTORE = """
from tidemill.stores.memory import MemoryStore


class MyStore(MemoryStore):
    def __init__(self, path, *, clock, entropy):
        super().__init__(clock=clock, entropy=entropy)

    write_arrival = MemoryStore.arrive
"""


def test_the_suite_is_taken_as_the_page_says(tmp_path: Path) -> None:
    write_files(page("how-to/write-a-store.md"), tmp_path)
    (tmp_path / "mystore.py").write_text(MYSTORE, encoding="utf-8")
    code, printed = terminal.run("python -m pytest -q -p no:cacheprovider -k 'j1 or j80'", tmp_path)
    assert code == 0, printed
    assert " passed" in printed
