"""The provider as a coroutine: `await provider.call(request)`, in virtual time or real."""

from __future__ import annotations

import asyncio

from tidemill.testing.providers.asked import Answer, Request
from tidemill.testing.providers.provider import Provider, Served
from tidemill.testing.virtual import VirtualLoop


class AnswerLost(ConnectionError):
    """The connection was cut, and the call may have been billed."""


class CalledProvider(Provider):
    async def call(self, request: Request) -> Answer:
        """What is sent goes on at the provider, and is billed there, whatever becomes of the caller: it may
        be cancelled, or its process killed."""
        loop = asyncio.get_running_loop()
        serving = self.serve(request)
        task: asyncio.Task[Served] = (
            loop.outside(serving) if isinstance(loop, VirtualLoop) else loop.create_task(serving)
        )
        served = await asyncio.shield(task)
        if served.answer is None:
            raise AnswerLost("the connection was closed before the answer came")
        if served.bill is not None:
            served.bill.answered = True
        return served.answer
