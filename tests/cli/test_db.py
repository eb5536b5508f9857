"""`db`: info, check, backup and compact; and `bench`, which must not touch existing stores."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from tests.cli.support import Cli
from tidemill import Tidemill

AT = ("--app", "shop:app")


def test_info_describes_the_store(cli: Cli, tmp_path: Path) -> None:
    cli.send("a")
    output = cli("db", "info", *AT).out
    assert f"location:    {tmp_path / 'shop.db'}" in output
    assert "store:       sqlite" in output
    assert cli("db", "--json", "info", *AT).json["schema"] >= 1


def test_check_accepts_an_undamaged_store(cli: Cli) -> None:
    cli.send("a")
    result = cli("db", "check", *AT)
    assert (result.code, result.out) == (0, "whole\n")
    assert cli("db", "check", *AT, "--json").json == {"whole": True, "damage": []}


def test_damage_is_reported_with_exit_code_1(cli: Cli, tmp_path: Path) -> None:
    for n in range(40):
        cli.send(f"{n}@example.org")
    file = apsw.Connection(str(tmp_path / "shop.db"))
    file.pragma("journal_mode", "delete")
    index = file.execute(
        "SELECT rootpage FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL LIMIT 1"
    ).get
    size = file.pragma("page_size")
    file.close()
    with (tmp_path / "shop.db").open("r+b") as raw:
        raw.seek((index - 1) * size + size // 2)
        raw.write(b"\xa5" * (size // 2))
    result = cli("db", "check", *AT)
    assert result.code == 1
    assert "Traceback" not in result.err + result.out
    assert "damage" in result.err + result.out


def test_a_backup_is_a_complete_store(cli: Cli, tmp_path: Path) -> None:
    job = cli.send("a")
    assert cli("db", "backup", "copy.db", *AT).out.startswith("copied to copy.db (")
    assert cli("jobs", "show", job, "--url", "sqlite:///copy.db", "--json").json["id"] == job
    before = (tmp_path / "copy.db").read_bytes()
    result = cli("db", "backup", "copy.db", *AT)
    assert (result.code, len(result.err.splitlines())) == (2, 1)
    assert "copy.db is there already" in result.err
    assert (tmp_path / "copy.db").read_bytes() == before


@pytest.mark.parametrize(
    ("copy", "code", "says"),
    [("no/folder.db", 2, "there is no folder"), ("/proc/copy.db", 2, "/proc/copy.db")],
)
def test_a_backup_that_cannot_be_written_is_refused(cli: Cli, copy: str, code: int, says: str) -> None:
    cli.send("a")
    result = cli("db", "backup", copy, *AT)
    assert (result.code, result.out, len(result.err.splitlines())) == (code, "", 1)
    assert says in result.err


def test_compacting_frees_space(cli: Cli) -> None:
    for n in range(40):
        cli.send("x" * 900 + str(n))
    cli("jobs", "delete", "--queue", "mail", "--yes", *AT)
    found = cli("db", "compact", *AT, "--json").json
    assert found["bytes"] < found["bytes_before"]
    assert " before, " in cli("db", "compact", *AT).out


def test_bench_measures_on_a_temporary_file(cli: Cli, tmp_path: Path) -> None:
    before = set(tmp_path.iterdir())
    result = cli("bench", "--jobs", "40", "--json")
    assert result.code == 0, result.err
    assert [(each["what"], each["jobs"]) for each in result.json] == [
        ("enqueue one by one", 4),
        ("enqueue 64 at once", 18),
        ("enqueue in bulk", 18),
        ("run by one worker", 40),
    ]
    assert all(each["per_second"] > 0 for each in result.json)
    assert set(tmp_path.iterdir()) == before


def test_bench_beside_a_store_does_not_touch_it(cli: Cli, tmp_path: Path) -> None:
    """It uses neither the store's jobs and queues nor the settings of the folder."""
    cli.send("a")
    (tmp_path / "tidemill.toml").write_text("[queues.songs]\nweight = 2\n")
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    for url in ("sqlite:///shop.db", "sqlite:///fresh.db"):
        result = cli("bench", "--jobs", "20", "--url", url)
        assert result.code == 0, result.err
        assert result.out.splitlines()[0].split() == ["jobs", "seconds", "jobs/s"]
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_bench_beside_a_store_measures_its_disk(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls: list[str] = []

    def measured(url: str) -> Tidemill:
        urls.append(url)
        return Tidemill(url)

    monkeypatch.setattr("tidemill.cli.bench.Tidemill", measured)
    (tmp_path / "disk").mkdir()
    assert cli("bench", "--jobs", "10", "--url", "sqlite:///disk/jobs.db").code == 0
    assert urls[0].startswith(f"sqlite:///{tmp_path / 'disk'}/tidemill-bench-")
    assert cli("bench", "--jobs", "10", "--url", "memory://").code == 0
    assert urls[1] == "memory://"
