"""What a program that runs us reads on stdout: a JSON document a line when something has started or stopped.

The log stays on stderr, and is JSON too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tidemill.app import Tidemill
from tidemill.cli.output import print_json_line
from tidemill.telemetry.base import Event
from tidemill.telemetry.events import WorkerDied, WorkerStarted, WorkerStopped


def milestone(word: str, **facts: Any) -> None:
    print_json_line({"event": word} | facts)


def tell_milestones(app: Tidemill, spec: str, links: Sequence[str] = ()) -> None:
    """Of workers in this process or of those that a supervisor here looks after. The first of `links` signs
    in to the dashboard beside the worker, once it is served."""

    @app.on(WorkerStarted)
    def started(event: WorkerStarted) -> None:
        milestone("started", application=spec, link=next(iter(links), None), **_facts(event))

    @app.on(WorkerStopped)
    def stopped(event: WorkerStopped) -> None:
        milestone("stopped", **_facts(event))

    @app.on(WorkerDied)
    def died(event: WorkerDied) -> None:
        milestone("died", **_facts(event))


def _facts(event: Event) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(event).items() if value is not None}
