"""What a worker and its isolated processes say to each other. Data only: nothing is unpickled."""

from __future__ import annotations

import math

import msgspec

from tidemill.core.claims import Claimed, Settlement
from tidemill.core.departures import Departure
from tidemill.core.needs import Need
from tidemill.core.outcomes import Done, Outcome
from tidemill.core.pools import PoolSettings
from tidemill.core.spending import Observation, Usage
from tidemill.core.waits import WaitTarget
from tidemill.logs import LogSettings
from tidemill.tasks.step_questions import Reply as StepReply
from tidemill.tasks.step_questions import StepQuestion
from tidemill.worker.batch_verdicts import Item, Verdict
from tidemill.worker.runners.main_module import MainModule


class Place(msgspec.Struct, frozen=True):
    """Where a handler is found by import. `batch`: it is one of a batch task."""

    module: str
    qualname: str
    batch: bool = False


class ChildStart(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a child. `path` and `argv` are the worker's. `application` is where the worker's
    application is found, as `module:variable`. `main` is imported before it. `parent` is the process id of
    the worker, `uvloop` the kind of its event loop."""

    path: list[str]
    argv: list[str]
    parent: int
    uvloop: bool
    main: MainModule | None
    application: str | None
    logs: LogSettings | None


class Prepare(msgspec.Struct, frozen=True, tag="prepare"):
    """Find the handler of a task: in the application, else at its place. Open the application's lifespan if
    that is not done yet. Its answer starts the clock: neither counts against the timeout. `middleware` is how
    many the application has in the worker, None when it does not matter. Without `lifespan` only the store is
    opened."""

    task: str
    place: Place | None
    middleware: int | None = None
    lifespan: bool = True


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Stop the job that runs. A child that does not is killed."""


class Run(msgspec.Struct, frozen=True, kw_only=True, tag="run"):
    """`chance` is the worker's random number for the retry's jitter. `policy` is the task's retry
    policy without its matchers, for a plain function whose definition only the worker knows. `pools` are
    those the job needs. `began` is the boot clock as the message leaves, `wall` the store's wall time at
    that moment. `timeout` and `late_in` are seconds from there: the child may read the message much later. A
    request that leaves after `late_in` leaves late. `others` share the job's call."""

    job: Claimed
    chance: float
    policy: dict[str, int | float | str]
    pools: dict[str, PoolSettings]
    began: float
    wall: float
    timeout: float
    late_in: float = math.inf
    others: tuple[Claimed, ...] = ()


class Reserved(msgspec.Struct, frozen=True, tag="reserved"):
    """The answer to `Reserve`: how long to wait, if at all, or why nobody could be asked."""

    wait: float | None = None
    problem: str | None = None


class StepAnswered(msgspec.Struct, frozen=True, tag="step answered"):
    """The answer to `AskStep`, or why nobody could be asked."""

    reply: StepReply | None = None
    problem: str | None = None


class CommitReply(msgspec.Struct, frozen=True, tag="commit reply"):
    """The answer to `Commit`: what the child records in its transaction."""

    settlement: Settlement


class WaitAnswer(msgspec.Struct, frozen=True, tag="wait answer"):
    """The answer to `WaitBegin`: why the handler must not wait (`WaitRefused`), None when it may."""

    problem: str | None = None
    lasting: bool = True


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The handler was found, or why not. `opened` is False when it was found and the lifespan failed."""

    problem: str | None = None
    opened: bool = True


class StopReply(msgspec.Struct, frozen=True, tag="stop reply"):
    """The job ended because of `Cancel`."""


class StartedLate(msgspec.Struct, frozen=True, tag="started late"):
    """The handler was not called: its units are `late` seconds too old."""

    late: float


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """`charged` as in `core.claims.Settlement`."""

    outcome: Outcome
    charged: Outcome | None = None


class Returned(msgspec.Struct, frozen=True, tag="returned"):
    """What the handler of a batch task returned, or what it made of its jobs when it raised."""

    items: list[Item] | Verdict


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    fraction: float
    note: str | None


class Line(msgspec.Struct, frozen=True, tag="line"):
    line: str


class Used(msgspec.Struct, frozen=True, tag="used"):
    usage: Usage
    number: int | None = None


class Heard(msgspec.Struct, frozen=True, tag="heard"):
    seen: Observation
    watched: bool = False


class Warned(msgspec.Struct, frozen=True, tag="warned"):
    """A classifier failed."""

    problem: str


class Reserve(msgspec.Struct, frozen=True, tag="reserve"):
    need: Need
    departure: Departure | None = None


class AskStep(msgspec.Struct, frozen=True, tag="ask step"):
    question: StepQuestion


class Commit(msgspec.Struct, frozen=True, tag="commit"):
    """The handler's transaction is about to commit and end its job with `outcome`."""

    outcome: Done


class Rollback(msgspec.Struct, frozen=True, tag="rollback"):
    """The handler's transaction kept nothing."""


class WaitBegin(msgspec.Struct, frozen=True, tag="wait begin"):
    """The handler is about to wait for the result of a job or flow."""

    target: WaitTarget


class WaitEnd(msgspec.Struct, frozen=True, tag="wait end"):
    target: WaitTarget


ToChild = Prepare | Run | Cancel | Reserved | StepAnswered | CommitReply | WaitAnswer
FromChild = (
    Ready
    | Ended
    | Returned
    | StopReply
    | StartedLate
    | Progress
    | Line
    | Used
    | Heard
    | Warned
    | Reserve
    | AskStep
    | Commit
    | Rollback
    | WaitBegin
    | WaitEnd
)
Question = Reserve | AskStep | Commit | WaitBegin
Reply = Reserved | StepAnswered | CommitReply | WaitAnswer

_ENCODER = msgspec.msgpack.Encoder()
_TO_CHILD = msgspec.msgpack.Decoder(ToChild)
_FROM_CHILD = msgspec.msgpack.Decoder(FromChild)

encode = _ENCODER.encode
for_child = _TO_CHILD.decode
from_child = _FROM_CHILD.decode
read_child_start = msgspec.json.Decoder(ChildStart).decode
