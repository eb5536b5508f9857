"""Quotas, options and what answers, as a person writes them on a command line."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast, get_args

import msgspec

from tidemill.testing.providers.content import Replies
from tidemill.testing.providers.options import Options
from tidemill.testing.providers.quota import Quota, Unit

FORMS = (
    "'rolling requests 10/60', 'bucket tokens 250000/60', 'bucket requests 60/60/1', "
    "'day requests 250 America/Los_Angeles', 'period tokens 1000/18000' or 'concurrent 5'"
)


def quota_from(text: str) -> Quota:
    words = text.split()
    try:
        match words:
            case ["concurrent", amount]:
                return Quota.concurrent(int(amount))
            case ["day", unit, amount, *zone]:
                return Quota.day(_unit(unit), int(amount), zone=zone[0] if zone else "UTC")
            case ["rolling", unit, amount]:
                much, per = amount.split("/")
                return Quota.rolling(_unit(unit), int(much), per=float(per))
            case ["period", unit, amount]:
                much, per = amount.split("/")
                return Quota.period(_unit(unit), int(much), per=float(per))
            case ["bucket", unit, amount]:
                much, per, *interval = amount.split("/")
                short = float(interval[0]) if interval else None
                return Quota.bucket(_unit(unit), int(much), per=float(per), interval=short)
    except (ValueError, KeyError) as error:
        raise ValueError(f"{text!r} is not a quota ({error}); write it as {FORMS}") from error
    raise ValueError(f"{text!r} is not a quota; write it as {FORMS}")


def options_from(text: str, usual: Options) -> Options:
    """JSON with the options that are not to be the usual ones."""
    try:
        said = msgspec.json.decode(text, type=dict[str, Any])
        return msgspec.convert(msgspec.structs.asdict(usual) | said, Options)
    except msgspec.MsgspecError as error:
        raise ValueError(f"options: {error}") from error


def replies_from(text: str) -> Replies:
    """`module:function`, of a module in the working folder or an installed one."""
    module, colon, name = text.partition(":")
    if not (module and colon and name):
        raise ValueError(f"{text!r} is not module:function, such as songs:described")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{text!r} cannot be found: {error}") from error
    if callable(found):
        return cast("Replies", found)
    raise ValueError(f"{text!r} is no function")


def _unit(word: str) -> Unit:
    if word not in get_args(Unit):
        raise ValueError(f"{word} is not one of {', '.join(get_args(Unit))}")
    return cast("Unit", word)
