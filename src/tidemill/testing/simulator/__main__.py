"""The command line of the simulator: python -m tidemill.testing.simulator."""

from __future__ import annotations

import asyncio
import contextlib
from importlib import import_module
from typing import Any, cast, get_args

import click
import msgspec

from tidemill.clock import SystemClock
from tidemill.testing.simulator.dialects import DIALECTS
from tidemill.testing.simulator.options import PRESETS, SimulatorOptions
from tidemill.testing.simulator.provider import SimulatedProvider
from tidemill.testing.simulator.quotas import Quota, QuotaUnit
from tidemill.testing.simulator.replies import ReplyFunction
from tidemill.testing.simulator.server import SimulatorServer

QUOTA_EXAMPLES = (
    "'rolling requests 10/60', 'bucket tokens 250000/60', 'bucket requests 60/60/1', "
    "'day requests 250 America/Los_Angeles', 'period tokens 1000/18000' or 'concurrent 5'"
)


def parse_quota(text: str) -> Quota:
    words = text.split()
    try:
        match words:
            case ["concurrent", amount]:
                return Quota.concurrent(int(amount))
            case ["day", unit, amount, *zone]:
                return Quota.day(_parse_unit(unit), int(amount), zone=zone[0] if zone else "UTC")
            case ["rolling", unit, amount]:
                units, per = amount.split("/")
                return Quota.rolling(_parse_unit(unit), int(units), per=float(per))
            case ["period", unit, amount]:
                units, per = amount.split("/")
                return Quota.period(_parse_unit(unit), int(units), per=float(per))
            case ["bucket", unit, amount]:
                units, per, *interval = amount.split("/")
                short = float(interval[0]) if interval else None
                return Quota.bucket(_parse_unit(unit), int(units), per=float(per), interval=short)
    except (ValueError, KeyError) as error:
        raise ValueError(f"{text!r} is not a quota ({error}); write it as {QUOTA_EXAMPLES}") from error
    raise ValueError(f"{text!r} is not a quota; write it as {QUOTA_EXAMPLES}")


def parse_options(text: str, usual: SimulatorOptions) -> SimulatorOptions:
    """Returns a copy of the options `usual`; the values in the JSON object `text` replace the values of
    `usual`."""
    try:
        values = msgspec.json.decode(text, type=dict[str, Any])
        return msgspec.convert(msgspec.structs.asdict(usual) | values, SimulatorOptions)
    except msgspec.MsgspecError as error:
        raise ValueError(f"options: {error}") from error


def load_reply_function(text: str) -> ReplyFunction:
    """Returns the function that `text` names as `module:function`. The module is in the working folder or in
    an installed package."""
    module, colon, name = text.partition(":")
    if not (module and colon and name):
        raise ValueError(f"{text!r} is not module:function, such as songs:described")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{text!r} cannot be found: {error}") from error
    if callable(found):
        return cast("ReplyFunction", found)
    raise ValueError(f"{text!r} is no function")


def _parse_unit(word: str) -> QuotaUnit:
    if word not in get_args(QuotaUnit):
        raise ValueError(f"{word} is not one of {', '.join(get_args(QuotaUnit))}")
    return cast("QuotaUnit", word)


def _parse_quotas(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> tuple[Quota, ...]:
    try:
        return tuple(parse_quota(text) for text in texts)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _load_replies(_: click.Context, __: click.Parameter, text: str | None) -> ReplyFunction | None:
    try:
        return None if text is None else load_reply_function(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command()
@click.option("--dialect", type=click.Choice(sorted(DIALECTS)), required=True, help="Which API to simulate.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=0, help="Port to listen on; 0 takes a free one."
)
@click.option(
    "--scale",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    help="How many simulated seconds pass per real second.",
)
@click.option(
    "--seed", type=int, default=0, help="Random seed; the same seed gives the same delays and lost replies."
)
@click.option(
    "--quota",
    "quotas",
    callback=_parse_quotas,
    multiple=True,
    help="Such as 'rolling requests 10/60', 'bucket tokens 250000/60', 'bucket requests 60/60/1', "
    "'day requests 250 America/Los_Angeles', 'period tokens 1000/18000' or 'concurrent 5'; may be repeated. "
    "Without it, an example account.",
)
@click.option("--start", type=float, help="The provider's wall time at the start, in Unix seconds.")
@click.option(
    "--options",
    "provider_options",
    default="{}",
    help="JSON over the example account's behaviour, by the names of "
    "tidemill.testing.simulator.SimulatorOptions, "
    'such as \'{"jitter": 0.5, "latency": [1, 2], "lost_rate": 0.01}\'.',
)
@click.option(
    "--replies",
    callback=_load_replies,
    help="module:function that says what the model answers, from what was asked "
    "(tidemill.testing.simulator.SimulatorCall). Without it, a made-up sentence.",
)
def main(
    *,
    dialect: str,
    port: int,
    scale: float,
    seed: int,
    quotas: tuple[Quota, ...],
    start: float | None,
    provider_options: str,
    replies: ReplyFunction | None,
) -> None:
    """Runs a simulator of a metered API on this machine. Its answers are made up and nothing is paid for."""
    usual, options = PRESETS[dialect]
    try:
        provider = SimulatedProvider(
            DIALECTS[dialect](),
            quotas or usual,
            parse_options(provider_options, options),
            clock=SystemClock(),
            seed=seed,
            scale=scale,
            start=start,
            replies=replies,
        )
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run_server(provider, port))


async def _run_server(provider: SimulatedProvider, port: int) -> None:
    try:
        async with SimulatorServer(provider, port=port) as server:
            click.echo(f"{server.url} simulates the {provider.dialect.name} API (tidemill; made-up answers)")
            await asyncio.Event().wait()
    except OSError as error:
        raise click.ClickException(f"port {port}: {error.strerror}; choose another or 0") from error


if __name__ == "__main__":
    main(prog_name="python -m tidemill.testing.simulator")
