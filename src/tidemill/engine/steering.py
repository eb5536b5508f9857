"""What is set on queues, and who does the chores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tidemill.contract.coordinator import Led
from tidemill.contract.jobs import Reading
from tidemill.contract.queues import QueueInfo
from tidemill.contract.wakeups import queue_topic
from tidemill.core.courses import ADVANCING, Kind
from tidemill.core.names import problem_with_name
from tidemill.core.queues import Override, Pause, QueueSettings, redeclared, without
from tidemill.engine.records import Leader, Records
from tidemill.errors import ConfigurationError


def declare(records: Records, queues: Mapping[str, QueueSettings]) -> None:
    """All or nothing: a setting that cannot work is told before anything is written."""
    for name, settings in queues.items():
        _check(name, settings)
    for name, settings in queues.items():
        queue = records.queue(name)
        queue.declared = redeclared(queue.declared, settings)
        records.topics[queue_topic(name)] = None


def override(records: Records, queue: str, change: Callable[[Override | None, float], Override]) -> None:
    """Q2."""
    check_name(queue)
    new = change(_override_of(records, queue), records.clock.wall())
    if problem := new.problem():
        raise ConfigurationError(f"queue {queue!r}: {problem}")
    _set_override(records, queue, new)


def clear_override(records: Records, queue: str, names: Sequence[str]) -> None:
    """Q6."""
    check_name(queue)
    _set_override(records, queue, without(_override_of(records, queue), names))


def _override_of(records: Records, queue: str) -> Override | None:
    known = records.queues.get(queue)
    return None if known is None else known.override


def _set_override(records: Records, queue: str, new: Override | None) -> None:
    """Rings: a limit may have been raised, or a parked worker has to learn the end of the override."""
    records.queue(queue).override = new
    records.topics[queue_topic(queue)] = None


def pause(records: Records, queue: str, until: float | None, reason: str | None) -> None:
    """A second pause takes the place of the first. Rings, so that a parked worker learns the
    end of the pause as its next time to look."""
    check_name(queue)
    mark = Pause(records.clock.wall(), until, reason)
    if problem := mark.problem():
        raise ConfigurationError(f"queue {queue!r}: {problem}")
    records.queue(queue).pause = mark
    records.topics[queue_topic(queue)] = None


def resume(records: Records, queue: str) -> None:
    check_name(queue)
    records.queue(queue).pause = None
    records.topics[queue_topic(queue)] = None


def queues(records: Records) -> list[QueueInfo]:
    """Q5. A pause that has ended by itself is still shown: its `until` tells."""
    now = records.clock.wall()
    return [
        QueueInfo(
            name=name,
            declared=queue.declared,
            override=queue.override if queue.override is not None and queue.override.holds(now) else None,
            settings=queue.settings,
            pause=queue.pause,
        )
        for name, queue in sorted(records.queues.items())
    ]


def lead(records: Records, duties: Sequence[str], worker: str, lease: float) -> Led:
    """C1, C3."""
    wall, boot, leaders = records.clock.wall(), records.clock.boot(), records.leaders
    others = [duty for duty in duties if _is_anothers(leaders.get(duty), worker, boot)]
    leads = tuple(duty for duty in duties if duty not in others)
    for duty in leads:
        leaders[duty] = Leader(worker, boot + lease)
    return Led(
        leads=leads,
        free_in=min((leaders[duty].lease - boot for duty in others), default=None),
        clock=Reading(wall, boot),
        arrivals=bool(records.arrivals),
        dues={kind: _due(records, kind, wall) for kind in ADVANCING},
    )


def _is_anothers(leader: Leader | None, worker: str, boot: float) -> bool:
    return leader is not None and leader.worker != worker and leader.lease > boot


def _due(records: Records, kind: Kind, now: float) -> float | None:
    if any(stir.course[0] is kind and stir.course in records.courses for stir in records.stirs.values()):
        return 0.0
    first = records.dues[kind].at(0)
    return None if first is None else max(0.0, first[0] - now)


def resign(records: Records, duties: Sequence[str], worker: str) -> None:
    """C2."""
    for duty in duties:
        leader = records.leaders.get(duty)
        if leader is not None and leader.worker == worker:
            del records.leaders[duty]


def _check(queue: str, settings: QueueSettings) -> None:
    check_name(queue)
    if problem := settings.problem():
        raise ConfigurationError(f"queue {queue!r}: {problem}")


def check_name(queue: str) -> None:
    if problem := problem_with_name("queue", queue):
        raise ConfigurationError(problem)
