"""A user's application: at module level, on a file that no test may touch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tidemill import Context, Retry, SnoozeFor, Tidemill, Unique

URL = "sqlite:////nowhere/that/exists/jobs.db"

app = Tidemill(URL)
app.queue("mail", concurrency=1)


class Mail:
    """The state that the lifespan opens. A real one would open a socket."""

    def __init__(self, fails: int = 0) -> None:
        self.fails, self.sent = fails, list[int]()


@app.lifespan
async def opened() -> AsyncIterator[Mail]:
    yield Mail()


@app.task(name="receipt", queue="mail", retry=Retry(attempts=3, first=60, jitter=0))
async def receipt(ctx: Context, order: int, copies: int = 1) -> str:
    await asyncio.sleep(30)
    ctx.log(f"attempt {ctx.attempt}")
    mail: Mail = ctx.state
    if ctx.attempt <= mail.fails:
        raise OSError(f"no connection for order {order}")
    mail.sent.append(order)
    return f"{copies} sent"


@app.task(name="refund", retry=Retry(attempts=1))
def refund(order: int) -> int:
    """A sync handler that enqueues a job."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        receipt.enqueue_sync(order)
        return order
    raise AssertionError("a sync handler sees a running loop")


@app.task(name="broken", retry=Retry(attempts=1))
async def broken(order: int) -> None:
    raise ValueError(f"order {order} is broken")


@app.task(name="later")
async def later() -> None:
    raise SnoozeFor(3600)


@app.task(name="once", unique=Unique("only"))
async def once() -> None: ...
