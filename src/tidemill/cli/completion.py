"""`tidemill completion`: the script that completes commands in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from tidemill.cli.output import echo, print_json

_HOW = {
    "bash": 'eval "$(tidemill completion bash)"  # in ~/.bashrc',
    "zsh": 'eval "$(tidemill completion zsh)"  # in ~/.zshrc',
    "fish": "tidemill completion fish > ~/.config/fish/completions/tidemill.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(list(_HOW)))
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
        print_json({"shell": shell, "script": script, "how": _HOW[shell]})
    else:
        echo(f"# {_HOW[shell]}\n{script}")
