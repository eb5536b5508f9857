"""What the commands that change a flow say."""

from __future__ import annotations

from tidemill.cli.output import echo, note, print_json
from tidemill.cli.target import Target


def steered(target: Target, flow: str, done: bool, did: str, could_not: str) -> int:
    if target.json:
        print_json({"flow": flow, "changed": done})
    elif done:
        echo(f"{flow} {did}")
    if not done:
        note(f"nothing was changed: {flow} {could_not}")
    return 0 if done else 1
