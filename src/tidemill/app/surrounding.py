"""What stands around every handler, and who is told what happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tidemill.app.application import Application
from tidemill.client.hooks import Opens, check_middleware, lifespan_of
from tidemill.errors import ConfigurationError
from tidemill.tasks.definition import Middleware
from tidemill.telemetry.base import Event

Listens = TypeVar("Listens", bound=Callable[[Any], object])


class Surrounds(Application):
    def lifespan(self, function: Opens) -> Opens:
        """What handlers share: an async generator function that yields once, with or without
        `@asynccontextmanager`. `ctx.state` is what it yielded; the rest of it runs when the worker stops."""
        if self._lifespan is not None:
            raise ConfigurationError("lifespan is given twice; open everything in one function")
        self._lifespan = lifespan_of(function)
        return function

    def middleware(self, function: Middleware) -> Middleware:
        """Wrap every attempt: `async def around(ctx, run): …; return await run()`. The first
        registered is the outermost."""
        check_middleware(function)
        self.middlewares.append(function)
        return function

    def on(self, *types: type[Event]) -> Callable[[Listens], Listens]:
        """Be told what happens: `@app.on(JobFailed)` above a function of one event, `@app.on()` for all.
        Events are in `tidemill.telemetry.events`. The function is called where it happens, on any thread:
        it must be quick and plain. What it raises is logged once and hurts no job."""

        def subscribe(listener: Listens) -> Listens:
            self.signals.subscribe(listener, *types)
            return listener

        self.signals.check(types)
        return subscribe
