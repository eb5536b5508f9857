"""The application's own judgement of errors and responses, asked before the built-in adapters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal

from tidemill.core.refusals import Refusal
from tidemill.errors import ConfigurationError

Verdict = Refusal | Literal[False] | None
Classify = Callable[[Any], Verdict]
"""Gets the exception or response itself. A `Refusal`: that is what it means. False: surely no refusal, the
job's own failure. None: not known here, the others are asked."""


class Classifiers:
    """A pool's own is asked before those of the whole application. An application has one of these, and
    every pool of it knows it: so it is found in a thread and in a process of its own too."""

    def __init__(self) -> None:
        self._of_pools: dict[str, Classify] = {}
        self._of_all: list[Classify] = []

    def add(self, classify: Classify, pool: str | None = None) -> None:
        whose = "classify" if pool is None else f"pool {pool!r}: classify"
        if not callable(classify):
            raise ConfigurationError(
                f"{whose}: must be a function of an exception or response, is {classify!r}"
            )
        if inspect.iscoroutinefunction(classify):
            raise ConfigurationError(f"{whose}: must be a plain function, not async: it only looks")
        if pool is None:
            self._of_all.append(classify)
        else:
            self._of_pools[pool] = classify

    def of(self, pool: str) -> tuple[Classify, ...]:
        own = self._of_pools.get(pool)
        return (*((own,) if own is not None else ()), *self._of_all)
