"""A job of a batch task from the command line: one item."""

from __future__ import annotations

from pathlib import Path

from tests.cli.support import Cli

EMBEDDING = """
from __future__ import annotations
from dataclasses import dataclass
from tidemill import Context, Failed, Tidemill

app = Tidemill("sqlite:///embedding.db")

@dataclass
class Text:
    words: str

@app.batch_task(name="embed", max_items=10)
async def embed(ctx: Context, texts: list[Text]) -> list[int | Failed]:
    return [len(text.words) for text in texts]

@app.batch_task(name="shout", max_items=10)
def shout(texts: list[str]) -> list[str]:
    return [text.upper() for text in texts]
"""

AT = ("--app", "embedding:app")


def test_one_item_is_one_job(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "embedding.py").write_text(EMBEDDING)
    first = cli("enqueue", "embed", 'item={"words": "hello"}', *AT)
    assert first.code == 0, first.err
    second = cli("enqueue", "shout", "item=12", *AT)
    assert second.code == 0, second.err
    assert cli("worker", "embedding:app", "--until-idle").code == 0
    jobs = [cli("jobs", "show", ran.out.strip(), *AT, "--json").json for ran in (first, second)]
    assert [job["result"] for job in jobs] == [5, "12"]


def test_a_wrong_item_is_told_with_what_the_task_takes(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "embedding.py").write_text(EMBEDDING)
    ran = cli("enqueue", "embed", "texts=hello", *AT)
    assert ran.code == 2
    assert "it takes item: Text" in ran.err
    ran = cli("enqueue", "embed", "item=hello", *AT)
    assert ran.code == 2
    assert "item: must be a Text (words), is a string" in ran.err


def test_many_items_from_a_file(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "embedding.py").write_text(EMBEDDING)
    (tmp_path / "items").write_text('{"item": "a"}\n{"item": "b"}\n')
    ran = cli("enqueue", "shout", "--from", str(tmp_path / "items"), *AT)
    assert ran.out == "2 jobs sent\n", ran.err
