"""`python -m tidemill.testing.providers --dialect gemini`: a provider to point a client at."""

from __future__ import annotations

import asyncio
import contextlib

import click

from tidemill.clock import SystemClock
from tidemill.testing.providers.content import Replies
from tidemill.testing.providers.dialects import DIALECTS
from tidemill.testing.providers.presets import PRESETS
from tidemill.testing.providers.provider import Provider
from tidemill.testing.providers.quota import Quota
from tidemill.testing.providers.reading import options_from, quota_from, replies_from
from tidemill.testing.providers.server import Server


def _read(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> tuple[Quota, ...]:
    try:
        return tuple(quota_from(text) for text in texts)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _find(_: click.Context, __: click.Parameter, text: str | None) -> Replies | None:
    try:
        return None if text is None else replies_from(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command()
@click.option("--dialect", type=click.Choice(sorted(DIALECTS)), required=True, help="Which API to simulate.")
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="0: any that is free.")
@click.option(
    "--scale", type=click.FloatRange(0, min_open=True), default=1.0, help="Its seconds in one of yours."
)
@click.option("--seed", type=int, default=0, help="The same seed draws the same delays and losses.")
@click.option(
    "--quota",
    "quotas",
    callback=_read,
    multiple=True,
    help="Such as 'rolling requests 10/60', 'bucket tokens 250000/60', 'bucket requests 60/60/1', "
    "'day requests 250 America/Los_Angeles', 'period tokens 1000/18000' or 'concurrent 5'; may be repeated. "
    "Without it, an example account.",
)
@click.option("--start", type=float, help="The Unix time its calendar shows at the start.")
@click.option(
    "--options",
    "said",
    default="{}",
    help="JSON over the example account's behaviour, by the names of tidemill.testing.providers.Options, "
    'such as \'{"jitter": 0.5, "latency": [1, 2], "lost_rate": 0.01}\'.',
)
@click.option(
    "--replies",
    callback=_find,
    help="module:function that says what the model answers, from what was asked "
    "(tidemill.testing.providers.Asked). Without it, a made-up sentence.",
)
def main(
    *,
    dialect: str,
    port: int,
    scale: float,
    seed: int,
    quotas: tuple[Quota, ...],
    start: float | None,
    said: str,
    replies: Replies | None,
) -> None:
    """A simulator of a metered API on this machine. Its answers are made up and nothing is paid for."""
    usual, options = PRESETS[dialect]
    try:
        provider = Provider(
            DIALECTS[dialect](),
            quotas or usual,
            options_from(said, options),
            clock=SystemClock(),
            seed=seed,
            scale=scale,
            start=start,
            replies=replies,
        )
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(provider, port))


async def _serve(provider: Provider, port: int) -> None:
    try:
        async with Server(provider, port=port) as server:
            click.echo(f"{server.url} simulates the {provider.dialect.name} API (tidemill; made-up answers)")
            await asyncio.Event().wait()
    except OSError as error:
        raise click.ClickException(f"port {port}: {error.strerror}; choose another or 0") from error


if __name__ == "__main__":
    main(prog_name="python -m tidemill.testing.providers")
