"""Merges the keyword arguments of a worker with the settings, and checks the result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, get_type_hints

import msgspec

from tidemill.core.queues import QueueSettings
from tidemill.core.validation import refuse_unknown_options
from tidemill.errors import ConfigurationError
from tidemill.settings.settings import Settings
from tidemill.worker.options import WorkerOptions


class WorkerArguments(TypedDict, total=False):
    """The keyword arguments of a worker; `WorkerOptions` explains them. `queues` is a list of queue names, or
    maps each name to its weight."""

    queues: Mapping[str, int] | Mapping[str, int | None] | Iterable[str] | None
    strict: bool
    concurrency: int
    lease: float
    heartbeat: float | None
    lead_every: float
    reclaim_every: float
    prune_every: float
    grace: float
    poll: float
    threads: int | None
    isolated_processes: int | None
    id: str | None
    until_idle: bool
    heartbeat_thread: bool
    isolation: bool


QueuesArgument = Mapping[str, int | None] | Iterable[str] | None


def resolve_worker_options(
    settings: Settings, arguments: Mapping[str, Any], known: Mapping[str, QueueSettings]
) -> WorkerOptions:
    """Returns the checked options of a worker. `arguments` win over `settings`. `known` are the application's
    queues. Raises ConfigurationError for an unknown option or a wrong type."""
    refuse_unknown_options(arguments, WorkerOptions.__dataclass_fields__, "worker")
    options = {**settings.configured("worker"), **arguments}
    options.pop("processes", None)  # read by the supervisor, not by a single worker
    options["queues"] = resolve_weights(options.get("queues"), known)
    _refuse_wrong_types(options, get_type_hints(WorkerOptions))
    return WorkerOptions(**options)


def resolve_weights(queues: QueuesArgument, known: Mapping[str, QueueSettings]) -> dict[str, int]:
    """Returns the weight of each queue that a worker serves. A queue without a given weight has its declared
    weight from `known`. `queues=None`: all known queues."""
    if queues is None:
        queues = list(known) or ["default"]
    elif isinstance(queues, str):
        queues = [queues]
    weights = queues if isinstance(queues, Mapping) else dict.fromkeys(queues)
    plain = QueueSettings()
    return {
        name: known.get(name, plain).weight if weight is None else weight for name, weight in weights.items()
    }


def _refuse_wrong_types(options: Mapping[str, Any], types: Mapping[str, Any]) -> None:
    for name, value in options.items():
        try:
            msgspec.convert(value, types[name])
        except msgspec.ValidationError as error:
            raise ConfigurationError(
                f"worker: {name}: {error}; it is {value!r}, give it as a value of that type"
            ) from None
