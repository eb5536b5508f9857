"""`python -m tidemill_apps.articles.minilm`: serve until Ctrl-C."""

from __future__ import annotations

import socket
import sys

import click
import uvicorn

from tidemill import ConfigurationError
from tidemill_apps.articles.minilm.model import NAME, MiniLM
from tidemill_apps.articles.minilm.server import served

HOST = "127.0.0.1"


@click.command(help=f"Serve {NAME} on this machine, by the embeddings API that OpenAI's clients speak.")
@click.option("--port", default=8091, show_default=True, help="0 takes any that is free.")
def main(port: int) -> None:
    model = MiniLM()
    try:
        model.embed(["warm"])
        listening = _listen(port)
    except ConfigurationError as error:
        click.echo(f"minilm: {error}", err=True)
        sys.exit(2)
    click.echo(f"{NAME} answers on http://{HOST}:{listening.getsockname()[1]}/v1 until Ctrl-C")
    config = uvicorn.Config(served(model), lifespan="off", log_level="warning", access_log=False)
    uvicorn.Server(config).run([listening])


def _listen(port: int) -> socket.socket:
    """Bound before it says that it answers."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise ConfigurationError(
            f"port: {HOST}:{port} cannot be listened on ({error}); choose another"
        ) from None
    return listening


if __name__ == "__main__":
    main()
