from __future__ import annotations

from typing import Any

import pytest

from tidemill.errors import ConfigurationError
from tidemill.worker import WorkerOptions


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"queues": {}}, "queues: name at least one"),
        ({"queues": {"a": 0}}, "queues: the weight of 'a'"),
        ({"concurrency": 0}, "concurrency: must be 1 or more, is 0"),
        ({"threads": 0}, "threads: must be 1 or more"),
        ({"isolated_processes": -1}, "isolated_processes: must be 1 or more"),
        ({"lease": 0}, "lease: must be above 0"),
        ({"poll": float("nan")}, "poll: must be above 0"),
        ({"grace": -1}, "grace: must be 0 or more"),
        ({"lease": 3, "heartbeat": 3}, "heartbeat: must be shorter than the lease"),
    ],
)
def test_a_bad_option_is_refused_by_name(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        WorkerOptions(**options)


def test_the_heartbeat_is_a_third_of_the_lease_by_default() -> None:
    assert WorkerOptions(lease=12).beat_every == 4
    assert WorkerOptions(lease=12, heartbeat=1).beat_every == 1
