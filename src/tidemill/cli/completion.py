"""Shell completion: the `tidemill completion` command and the values it offers for arguments."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import get_completion_class

from tidemill.cli.output import echo, print_json
from tidemill.cli.store_options import CommandTarget

MAX_JOBS_OFFERED = 20
MAX_FLOWS_READ = 500


def complete_tasks(ctx: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    return _matching_names(prefix, lambda: _typed_target(ctx).application().tasks)


def complete_queues(ctx: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    async def names(app: Any) -> list[str]:
        return [info.name for info in await app.store.queues()]

    return _matching_names(prefix, lambda: _typed_target(ctx).run(names))


def complete_pools(ctx: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    async def names(app: Any) -> list[str]:
        return [view.name for view in await app.store.pools() if view.key is None]

    return _matching_names(prefix, lambda: _typed_target(ctx).run(names))


def complete_schedules(ctx: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    async def names(app: Any) -> list[str]:
        return [view.name for view in (await app.schedules.list(limit=1000)).schedules]

    return _matching_names(prefix, lambda: _typed_target(ctx).run(names))


def complete_webhooks(ctx: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    async def names(app: Any) -> list[str]:
        return [view.name for view in await app.webhooks.list()]

    return _matching_names(prefix, lambda: _typed_target(ctx).run(names))


def complete_tokens(ctx: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    """Returns the user names and token ids that start with `prefix`, for shell completion."""

    async def names(app: Any) -> list[str]:
        found = await app.auth.tokens.list()
        return [*dict.fromkeys(token.name for token in found), *(token.id for token in found)]

    return _matching_names(prefix, lambda: _typed_target(ctx).run(names))


def complete_jobs(ctx: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    """Returns the ids of the newest jobs whose id starts with `prefix`, for shell completion."""

    async def names(app: Any) -> list[str]:
        from tidemill.core.filters import Filter

        return [
            job.id for job in (await app.inspect.find(Filter(id_prefix=prefix), limit=MAX_JOBS_OFFERED)).jobs
        ]

    return _matching_names(prefix, lambda: _typed_target(ctx).run(names))


def complete_flows(ctx: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    async def names(app: Any) -> list[str]:
        return [flow.id for flow in (await app.inspect.flows(limit=MAX_FLOWS_READ)).flows]

    return _matching_names(prefix, lambda: _typed_target(ctx).run(names))


def complete_flow_names(ctx: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    async def names(app: Any) -> list[str]:
        return sorted({flow.name for flow in (await app.inspect.flows(limit=MAX_FLOWS_READ)).flows})

    return _matching_names(prefix, lambda: _typed_target(ctx).run(names))


def complete_arguments(ctx: click.Context, _parameter: click.Parameter, prefix: str) -> list[str]:
    """Returns `name=` for each parameter of the typed task, for shell completion. Parameters that the user
    has already typed are left out."""

    def names() -> Iterable[str]:
        written = {word.partition("=")[0] for word in ctx.params.get("words") or ()}
        task = _typed_target(ctx).application().tasks[ctx.params["task"]]
        return [
            f"{parameter.name}=" for parameter in task.payload.parameters if parameter.name not in written
        ]

    return _matching_names(prefix, names)


def _typed_target(ctx: click.Context) -> CommandTarget:
    """Returns the application or store that the user has typed so far. --app and --url may also stand before
    the subcommand, as in `tidemill jobs --app x:app show`."""
    above = ctx.parent.params if ctx.parent else {}
    return CommandTarget(ctx.params.get("app") or above.get("app"), ctx.params.get("url") or above.get("url"))


def _matching_names(prefix: str, names: Callable[[], Iterable[str]]) -> list[str]:
    """Returns the names that start with `prefix`. `names` returns all names; if it fails, the result is
    empty. Names with control characters are left out."""
    with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
        return [name for name in names() if name.startswith(prefix) and name.isprintable()]
    return []


_SETUP_COMMANDS = {
    "bash": 'eval "$(tidemill completion bash)"  # in ~/.bashrc',
    "zsh": 'eval "$(tidemill completion zsh)"  # in ~/.zshrc',
    "fish": "tidemill completion fish > ~/.config/fish/completions/tidemill.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(list(_SETUP_COMMANDS)))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def completion(shell: str, *, as_json: bool) -> None:
    """Print the script that completes commands in a shell.

    \b
    bash: eval "$(tidemill completion bash)"  in ~/.bashrc
    zsh:  eval "$(tidemill completion zsh)"   in ~/.zshrc
    fish: tidemill completion fish > ~/.config/fish/completions/tidemill.fish
    """
    from tidemill.cli.root import root

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"{shell} is not a shell this can complete in")
    completer = kind(root, {}, "tidemill", "_TIDEMILL_COMPLETE")
    script = completer.source_template % completer.source_vars()
    if as_json:
        print_json({"shell": shell, "script": script, "how": _SETUP_COMMANDS[shell]})
    else:
        echo(f"# {_SETUP_COMMANDS[shell]}\n{script}")
