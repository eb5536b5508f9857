"""A job's steps as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from tidemill.cli.output import moment, size
from tidemill.core.terminal_text import one_line
from tidemill.inspect.steps import CheckpointView


def as_data(steps: Sequence[CheckpointView]) -> list[dict[str, Any]]:
    """Without results, which may be long: `app.inspect.job(id)` has them."""
    return [
        {name: value for name, value in msgspec.structs.asdict(step).items() if name != "result"}
        for step in steps
    ]


def lines_about(steps: Sequence[CheckpointView]) -> Iterator[str]:
    if steps:
        yield "checkpoints:"
    for step in steps:
        paid = " paid" if step.paid else ""
        kept = "" if step.size is None else f", {size(step.size)}"
        again = f", called again without knowing: {step.unknown}" if step.unknown else ""
        when = moment(step.kept if step.kept is not None else step.begun)
        yield one_line(f"  {step.name} ({step.arguments[:8]}){paid} {step.state} {when}{kept}{again}")
