"""The benchmark of retention judges what it has seen."""

from __future__ import annotations

import sys

import pytest
from benchmarks.retention import Sample, verdict

from benchmarks import retention


def _run(sizes: list[int], waits: list[float]) -> list[Sample]:
    return [
        Sample(float(at), size, 0, [wait]) for at, (size, wait) in enumerate(zip(sizes, waits, strict=True))
    ]


@pytest.mark.parametrize(
    ("sizes", "waits", "flat", "fast"),
    [
        ([10, 80, 100, 100, 100, 104], [5.0] * 6, True, True),
        ([10, 20, 30, 40, 50, 60], [5.0] * 6, False, True),
        ([100] * 6, [5.0, 5.0, 5.0, 5.0, 8.0, 8.0], True, False),
        ([100] * 6, [0.0] * 6, True, True),
    ],
)
def test_a_store_is_flat_and_its_claims_no_slower(
    sizes: list[int], waits: list[float], flat: bool, fast: bool
) -> None:
    found = verdict(_run(sizes, waits))
    assert (found.is_flat, found.is_fast) == (flat, fast)


def test_a_run_that_is_too_short_to_compare_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["retention", "--store", "sqlite", "--seconds", "2"])
    with pytest.raises(SystemExit) as ended:
        retention.main()
    assert ended.value.code == 2
    assert "--seconds: must be 6 or more, is 2" in capsys.readouterr().err
