"""The comparison with another scheduler's log (S17)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidemill_apps.feeds.__main__ import main
from tidemill_apps.feeds.shadow import compare, read_log

LOG = """a 00:00:00 00:00:02 success
a 01:00:02 01:00:06 failed
a 02:00:06 02:00:06 failed
a 03:00:06 03:00:06 success
b 00:00:00 - -
b 00:30:00 02:31:00 success"""
LINES = [
    {
        "feedId": feed,
        "dueAt": f"2026-01-01T{due}Z",
        "startedAt": None if start == "-" else f"2026-01-01T{start}Z",
        "status": None if status == "-" else status,
    }
    for feed, due, start, status in (line.split() for line in LOG.splitlines())
]


def test_start_times_missed_refreshes_and_errors_are_compared_s17() -> None:
    report = compare(read_log(json.dumps(line) for line in LINES), 60)
    assert (report.feeds, report.runs, report.missed, report.failed) == (2, 6, 2, 2)
    assert (report.median_lag, report.longest_lag) == (2.0, 7260.0)
    # After two failures in a row this application waits two hours, the other scheduler one.
    assert (report.early, report.longest_difference, report.median_difference) == (1, -3600.0, 0.0)


def test_the_command_prints_the_report_and_fetches_nothing_s17(tmp_path: Path) -> None:
    log = tmp_path / "old.jsonl"
    log.write_text("\n".join(json.dumps(line) for line in LINES) + "\n\n", encoding="utf-8")
    shown = CliRunner().invoke(main, ["shadow", str(log)])
    assert (shown.exit_code, "6 runs of 2 feeds" in shown.output) == (0, True)
    printed = CliRunner().invoke(main, ["shadow", str(log), "--json"])
    assert json.loads(printed.output)["missed"] == 2
    assert compare([], 60).runs == 0


@pytest.mark.parametrize("line", ["no JSON", '{"feedId": "a"}', '{"feedId": "a", "dueAt": "soon"}'])
def test_a_line_that_is_wrong_is_named_s17(tmp_path: Path, line: str) -> None:
    log = tmp_path / "old.jsonl"
    log.write_text(f"{json.dumps(LINES[0])}\n{line}\n", encoding="utf-8")
    refused = CliRunner().invoke(main, ["shadow", str(log)])
    assert refused.exit_code == 2
    assert "line 2" in refused.output
