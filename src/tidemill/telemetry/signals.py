"""Who listens to which events.

A listener is a plain, quick function. It is called where the event happens, which may be the
worker's event loop, its heartbeat's thread or the thread of an enqueue: what takes long belongs into
a queue of the listener's own. What it raises is told once and hurts nobody.
"""

from __future__ import annotations

import inspect
import threading
import traceback
from collections.abc import Callable
from typing import Any

from tidemill.errors import ConfigurationError
from tidemill.telemetry.base import RANKS, Event

Listener = Callable[[Any], object]


class Signals:
    """May be used from any thread: what is read while an event is told is replaced, never changed."""

    def __init__(self) -> None:
        self._subscribed: dict[type[Event], tuple[tuple[Listener, int], ...]] = {}
        self._listeners: dict[type[Event], tuple[Listener, ...]] = {}
        self._failed: list[Listener] = []
        self._lock = threading.Lock()

    def subscribe(self, listener: Listener, *types: type[Event], level: str = "debug") -> None:
        """Without types, to everything from `level` on; a base stands for all its events. Repeated, the
        last level counts."""
        self.check(types)
        _check_listener(listener)
        with self._lock:
            for kind in types or (Event,):
                others = (other for other in self._subscribed.get(kind, ()) if other[0] != listener)
                self._subscribed[kind] = (*others, (listener, RANKS[level]))
            self._listeners = {}

    def unsubscribe(self, listener: Listener) -> None:
        """From everything. One that is being told of an event now still is."""
        with self._lock:
            for kind, known in list(self._subscribed.items()):
                self._subscribed[kind] = tuple(other for other in known if other[0] != listener)
            self._listeners = {}

    @staticmethod
    def check(types: tuple[type[Event], ...]) -> None:
        """Refuse what is not an event, saying what to write."""
        for kind in types:
            if not (isinstance(kind, type) and issubclass(kind, Event)):
                if callable(kind) and not isinstance(kind, type):
                    raise ConfigurationError(
                        f"on: {kind!r} is not an event; events go into the parentheses, as "
                        "`@app.on(JobFailed)` above a function, and come from tidemill.telemetry.events"
                    )
                name = getattr(kind, "__name__", "JobFailed")  # the error JobFailed has the event's name
                raise ConfigurationError(
                    f"on: {kind!r} is not an event; events come from their own module, as by "
                    f"`from tidemill.telemetry.events import {name}`; @app.on() is told all of them"
                )

    def wants(self, kind: type[Event]) -> bool:
        """Whether building such an event is worth while. Asked once per job: a look into a dict."""
        listeners = self._listeners.get(kind)
        return bool(self._find(kind) if listeners is None else listeners)

    def emit(self, event: Event) -> None:
        kind = type(event)
        listeners = self._listeners.get(kind)
        for listener in self._find(kind) if listeners is None else listeners:
            try:
                listener(event)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - a listener may raise anything and hurts no job
                self._tell(listener, event, error)

    def _find(self, kind: type[Event]) -> tuple[Listener, ...]:
        known = self._listeners  # one that was replaced meanwhile is not read any more
        found: list[Listener] = []
        for base in kind.__mro__:
            for listener, rank in self._subscribed.get(base, ()):
                if rank <= RANKS[kind.level] and listener not in found:
                    found.append(listener)
        listeners = known[kind] = tuple(found)
        return listeners

    def _tell(self, listener: Listener, event: Event, error: BaseException) -> None:
        if listener in self._failed:
            return
        from tidemill.telemetry.worker_events import ListenerFailed

        self._failed.append(listener)  # before telling: it may be the one that is told
        self.emit(
            ListenerFailed(
                listener=getattr(listener, "__qualname__", None) or repr(listener),
                about=type(event).__name__,
                error=type(error).__name__,
                message=_text(error),
                traceback="".join(traceback.format_exception(error)),
            )
        )


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - its own __str__ may raise anything
        return "(its message cannot be shown)"


def _check_listener(listener: Listener) -> None:
    if not callable(listener):
        raise ConfigurationError(f"on: {listener!r} cannot be called; give a function of one event")
    if inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(type(listener).__call__):
        raise ConfigurationError(
            f"on: {listener!r} is async, and an event is told where it happens, also without a loop; "
            "write `def`, and put what takes long into a queue of your own"
        )
    try:
        inspect.signature(listener).bind(None)
    except TypeError:
        raise ConfigurationError(
            f"on: {listener!r} is called with the event; take exactly one argument"
        ) from None
    except ValueError:  # a builtin may have no signature to look at
        return
