"""Subscribes listeners to events and calls them; also contains the listener that writes the log."""

from __future__ import annotations

import inspect
import math
import threading
import traceback
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

from tidemill.errors import ConfigurationError
from tidemill.telemetry.event_base import LEVEL_RANKS, Event, LogLevel

Listener = Callable[[Any], object]


class Signals:
    """Delivers events to listeners. It is thread-safe."""

    def __init__(self) -> None:
        # The tuples are replaced, never changed, so `emit` can read one at any time.
        self._subscribed: dict[type[Event], tuple[tuple[Listener, int], ...]] = {}
        self._listeners: dict[type[Event], tuple[Listener, ...]] = {}
        self._failed: list[Listener] = []
        self._lock = threading.Lock()

    def subscribe(self, listener: Listener, *types: type[Event], level: str = "debug") -> None:
        """Subscribes `listener` to the given event types. A base class means all its subclasses; no types
        means every event. Only events of `level` or above are delivered."""
        self.check(types)
        _check_listener(listener)
        with self._lock:
            for kind in types or (Event,):
                others = (other for other in self._subscribed.get(kind, ()) if other[0] != listener)
                self._subscribed[kind] = (*others, (listener, LEVEL_RANKS[level]))
            self._listeners = {}

    def unsubscribe(self, listener: Listener) -> None:
        """Removes the listener from all events. A call of the listener that is running still completes."""
        with self._lock:
            for kind, known in list(self._subscribed.items()):
                self._subscribed[kind] = tuple(other for other in known if other[0] != listener)
            self._listeners = {}

    @staticmethod
    def check(types: tuple[type[Event], ...]) -> None:
        """Raises ConfigurationError if one of `types` is not an event. The message says what to write
        instead."""
        for kind in types:
            if not (isinstance(kind, type) and issubclass(kind, Event)):
                if callable(kind) and not isinstance(kind, type):
                    raise ConfigurationError(
                        f"on: {kind!r} is not an event; events go into the parentheses, as "
                        "`@app.on(JobFailed)` above a function, and come from tidemill.telemetry.events"
                    )
                name = getattr(kind, "__name__", "JobFailed")  # there is also an error named JobFailed
                raise ConfigurationError(
                    f"on: {kind!r} is not an event; events come from their own module, as by "
                    f"`from tidemill.telemetry.events import {name}`; @app.on() is told all of them"
                )

    def wants(self, kind: type[Event]) -> bool:
        """True if at least one listener receives events of this class."""
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
            except BaseException as error:  # noqa: BLE001 - a listener may raise anything; jobs must not suffer
                self._tell(listener, event, error)

    def _find(self, kind: type[Event]) -> tuple[Listener, ...]:
        known = self._listeners  # a cache that `subscribe` replaces meanwhile is never read again
        found: list[Listener] = []
        for base in kind.__mro__:
            for listener, rank in self._subscribed.get(base, ()):
                if rank <= LEVEL_RANKS[kind.level] and listener not in found:
                    found.append(listener)
        listeners = known[kind] = tuple(found)
        return listeners

    def _tell(self, listener: Listener, event: Event, error: BaseException) -> None:
        if listener in self._failed:
            return
        from tidemill.telemetry.worker_events import ListenerFailed

        self._failed.append(listener)  # before `emit`: the failed listener may also receive ListenerFailed
        self.emit(
            ListenerFailed(
                listener=getattr(listener, "__qualname__", None) or repr(listener),
                about=type(event).__name__,
                error=type(error).__name__,
                message=_error_text(error),
                traceback="".join(traceback.format_exception(error)),
            )
        )


def _error_text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - a user's __str__ may raise anything
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
    except ValueError:  # some builtins have no signature
        return


LOG_THROTTLE_SECONDS = 60.0


class EventLogger:
    """The listener that writes events to the log. `now` returns the time of a monotonic clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._last_logged: dict[type[Event], float] = {}

    def __call__(self, event: Event) -> None:
        kind = type(event)
        fields = {name: _rounded(value) for name, value in msgspec.structs.asdict(event).items()}
        fields = {name: value for name, value in fields.items() if value is not None}
        if "traceback" in fields:
            fields["exception"] = fields.pop("traceback")  # structlog's renderers expect it there
        getattr(_logger(), self._level(kind))(kind.sentence, **fields)

    def _level(self, kind: type[Event]) -> LogLevel:
        if kind.is_log_throttled:
            now = self._now()
            if now - self._last_logged.get(kind, -math.inf) < LOG_THROTTLE_SECONDS:
                return "debug"
            self._last_logged[kind] = now
        return kind.level


def _rounded(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value


@cache
def _logger() -> Any:
    import structlog

    return structlog.get_logger("tidemill")
