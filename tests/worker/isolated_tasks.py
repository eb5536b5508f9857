"""Handlers that an isolated process finds by import, some of them deadly."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import subprocess
import sys
import threading
import time
from contextvars import ContextVar
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.worker.fake_provider import Refused
from tidemill.core.feedback import Reason, Refusal
from tidemill.core.limits import Limit
from tidemill.core.retry import Retry
from tidemill.errors import SnoozeFor
from tidemill.hooks.watched_call import WatchedResponse, begin_call
from tidemill.tasks.context import Context
from tidemill.tasks.definition import TaskDefinition, make_task_definition
from tidemill.tasks.pools import Classifiers, declare_pool


class Decorated:
    """The object that a decorator returns: not the function, but something with its definition."""

    def __init__(self, definition: TaskDefinition) -> None:
        self.definition = definition


def pid() -> int:
    return os.getpid()


async def reports(ctx: Context, number: int) -> int:
    ctx.log(f"attempt {ctx.attempt}")
    await ctx.progress(0.25, "quarter")
    await asyncio.sleep(0)
    return number + 1


SEEN: ContextVar[int] = ContextVar("SEEN", default=0)


def remembers() -> int:
    SEEN.set(SEEN.get() + 1)
    return SEEN.get()


def exits() -> None:
    os._exit(7)


def segfaults() -> None:
    ctypes.string_at(0)


def endless(path: str) -> None:
    """Starts another program, then spins without ever yielding."""
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(path).write_text(f"{os.getpid()} {program.pid}")
    while True:
        pass


def raises() -> None:
    raise LookupError("in its own process")


class Panic(BaseException):
    """Raised by an extension written in Rust when it panics; it is no Exception."""


def panics() -> None:
    raise Panic("in its own process")


def snoozes() -> None:
    raise SnoozeFor(9)


def odd() -> Any:
    return threading.Lock()


def babbles() -> None:
    """Writes bytes into the pipe that no worker understands."""
    for pipe in gc.get_objects():
        if isinstance(pipe, Connection):
            pipe.send_bytes(b"\xc1")
    time.sleep(600)


def returns_more_than_it_said() -> None:
    return 5  # type: ignore[return-value]


def waits(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    time.sleep(600)


API = declare_pool("api", (Limit.tokens(1000, per="minute"),), {"jitter": 60})
OTHER = declare_pool("other", (Limit.tokens(100, per="minute"), Limit.concurrent(1)), {"jitter": 60})
HASTY = declare_pool("hasty", (Limit.requests(10, per="minute"),), {"jitter": 0.1})


def _judged(error: Any) -> Refusal | None:
    if isinstance(error, LookupError):
        return Refusal(reason=Reason.SPENDING, text="no more money")
    raise KeyError("code")


JUDGED = declare_pool(
    "judged",
    (Limit.requests(10, per="minute"),),
    {"jitter": 60, "classify": _judged},
    Classifiers(),
)


def _judges(kind: str) -> None:
    raise LookupError(kind) if kind == "money" else ValueError(kind)


judges = Decorated(
    make_task_definition(_judges, name="judges", pool=JUDGED, isolate=True, retry=Retry(attempts=1))
)
_judges.__qualname__ = "judges"


async def meters(ctx: Context) -> None:
    ctx.used(tokens=40)
    async with ctx.spend(OTHER, tokens=30):
        ctx.used(tokens=7)


async def asks_for_more(ctx: Context) -> None:
    async with ctx.spend(OTHER, tokens=100):
        raise AssertionError("there is less than that left")


def bill(path: str, word: str) -> str:
    """Records calls in a file, which outlives the process."""
    with Path(path).open("a") as bills:
        bills.write(f"{word}\n")
    return word


def _ends_badly(path: str) -> None:
    """Kills its process the first time, and raises the second time."""
    bills = Path(path).read_text().splitlines()
    if "died" not in bills:
        bill(path, "died")
        os._exit(7)
    if "raised" not in bills:
        bill(path, "raised")
        raise LookupError("once more")


async def pays(ctx: Context, path: str) -> list[str]:
    steps = [ctx.step("ask", bill, path, "paid", paid=True), ctx.step("look", bill, path, word="free")]
    found = [await one for one in steps]
    _ends_badly(path)
    return found


def pays_plainly(ctx: Context, path: str) -> list[str]:
    found = [ctx.step_sync("ask", bill, path, "paid", paid=True), ctx.step_sync("look", bill, path, "free")]
    _ends_badly(path)
    return found


def _bill_and_die(path: str) -> None:
    bill(path, "paying")
    os._exit(7)


def dies_paying(ctx: Context, path: str) -> None:
    ctx.step_sync("ask", _bill_and_die, path, paid=True, on_unknown="park")


def refused() -> None:
    raise Refused(429, {"retry-after": "3600"})


def hasty() -> int:
    return os.getpid()


def _picky() -> None:
    raise LookupError("not worth another try")


_picky.__qualname__ = "picky"  # found under the name a decorator would have bound
picky = Decorated(make_task_definition(_picky, name="picky", retry=Retry(give_up_on=(LookupError,))))


def watches(ctx: Context) -> None:
    """Sends two requests where one was reserved; the second is also reported by hand."""
    for tokens in (40, 50):
        call = begin_call(API)
        assert call is not None
        call.before_send_sync()
        call.answered(WatchedResponse(200, {}, {"usage": {"total_tokens": tokens}}))
    ctx.used(tokens=60)
