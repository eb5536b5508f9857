"""Lists every command by walking the tree, with arguments to call it."""

from __future__ import annotations

from collections.abc import Iterator

import click

from tidemill.cli.root import root


def _walk(group: click.Group, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from _walk(command, (*path, name))


COMMANDS = {" ".join(path): command for path, command in _walk(root, ())}

RUNNING = {"up", "web", "worker"}
"""Commands that take the application as an argument."""

WITHOUT_STORE = {"completion", "demo"}

CREATING_THE_STORE = {"up", "web", "worker", "enqueue", "bench", "token create"}
"""Commands that create the store if there is none."""

APPLICATION_ONLY = {"enqueue", "plan"}
"""Commands that need an application and have no --url."""

NEEDING_NO_STORE = {"plan"}
"""Commands that work without a store and create none."""

GROUPS_WITHOUT_COMMAND = {"db", "token"}

CALLS: dict[str, tuple[str, ...]] = {
    "up": ("--until-idle",),
    "web": ("--port", "0"),
    "worker": ("--until-idle",),
    "enqueue": ("send", "to=a@example.org"),
    "jobs": (),
    "jobs show": ("x",),
    "jobs retry": ("x",),
    "jobs cancel": ("x",),
    "jobs run": ("x",),
    "jobs archive": ("x",),
    "jobs reprioritise": ("3", "x"),
    "jobs delete": ("x",),
    "queues": (),
    "queues info": ("mail",),
    "queues pause": ("mail",),
    "queues resume": ("mail",),
    "queues set": ("mail", "weight=2"),
    "queues unset": ("mail",),
    "queues empty": ("mail", "--confirm", "mail"),
    "link": (),
    "token create": ("ann",),
    "token list": (),
    "token revoke": ("ann",),
    "webhooks": (),
    "webhooks add": ("reader", "https://reader.example/hook"),
    "webhooks remove": ("reader",),
    "webhooks test": ("reader",),
    "alerts": (),
    "alerts test": (),
    "pools": (),
    "pools info": ("mailgun",),
    "pools set": ("mailgun", "requests per minute=5"),
    "pools unset": ("mailgun",),
    "pools close": ("mailgun",),
    "pools open": ("mailgun",),
    "schedules": (),
    "schedules info": ("nightly",),
    "schedules pause": ("nightly",),
    "schedules resume": ("nightly",),
    "schedules run": ("nightly",),
    "schedules set": ("nightly", "jitter=60"),
    "schedules unset": ("nightly",),
    "schedules remove": ("nightly",),
    "flows": (),
    "flows show": ("dub/7",),
    "flows cancel": ("dub/7",),
    "flows retry": ("dub/7",),
    "plan": ("send", "--count", "10"),
    "explain": ("x",),
    "top": (),
    "doctor": (),
    "db info": (),
    "db check": (),
    "db backup": ("copy.db",),
    "db compact": (),
    "db copy": ("sqlite:///other.db",),
    "demo": (),
    "bench": ("--jobs", "10"),
    "completion": ("bash",),
}
"""The arguments of each command. A command missing here fails the tests that run all commands."""


def call(path: str, module: str, url: str) -> list[str]:
    """Returns the command line for the application of a module whose store is at the URL."""
    words = path.split()
    if path in RUNNING:
        return [*words, *CALLS[path], f"{module}:app"]
    if path == "bench":
        return [*words, *CALLS[path], "--url", url]
    return [*words, *CALLS[path], "--app", f"{module}:app"]
