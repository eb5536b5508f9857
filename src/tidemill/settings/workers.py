"""The options of a worker: arguments first, then the environment, then the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, get_type_hints

import msgspec

from tidemill.core.names import refuse_unknown
from tidemill.core.queues import QueueSettings
from tidemill.errors import ConfigurationError
from tidemill.settings.settings import Settings
from tidemill.worker.options import WorkerOptions

Queues = Mapping[str, int | None] | Iterable[str] | None


def worker_options(
    settings: Settings, arguments: Mapping[str, Any], known: Mapping[str, QueueSettings]
) -> WorkerOptions:
    """`known` are the application's queues: all of them are served when nothing else is said."""
    refuse_unknown(arguments, WorkerOptions.__dataclass_fields__, "worker")
    options = {**settings.given("worker"), **arguments}
    options.pop("processes", None)  # of the command line's supervisor: this is one of them
    options["queues"] = weights(options.get("queues"), known)
    _refuse_wrong_types(options, get_type_hints(WorkerOptions))
    return WorkerOptions(**options)


def weights(queues: Queues, known: Mapping[str, QueueSettings]) -> dict[str, int]:
    """Named without a weight, a queue has the one it was declared with."""
    if queues is None:
        queues = list(known) or ["default"]
    elif isinstance(queues, str):
        queues = [queues]
    given = queues if isinstance(queues, Mapping) else dict.fromkeys(queues)
    plain = QueueSettings()
    return {
        name: known.get(name, plain).weight if weight is None else weight for name, weight in given.items()
    }


def _refuse_wrong_types(options: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    for name, value in options.items():
        try:
            msgspec.convert(value, wanted[name])
        except msgspec.ValidationError as error:
            raise ConfigurationError(
                f"worker: {name}: {error}; it is {value!r}, give it as a value of that type"
            ) from None
