"""The messages between a worker and its child processes. They are sent as msgpack data, so nothing is
unpickled."""

from __future__ import annotations

import math

import msgspec

from tidemill.core.claims import ClaimedJob, Settlement
from tidemill.core.feedback import Observation, PoolUsage
from tidemill.core.late_calls import Departure
from tidemill.core.needs import Need
from tidemill.core.outcomes import Outcome, Success
from tidemill.core.pools import PoolSettings
from tidemill.core.result_waits import WaitTarget
from tidemill.logs import LogSettings
from tidemill.tasks.step_calls import StepReply, StepRequest
from tidemill.worker.batch_outcomes import BatchItem, BatchOutcome
from tidemill.worker.isolation.bootstrap import MainModule


class HandlerPath(msgspec.Struct, frozen=True):
    """The import path of a handler. `batch` is True for the handler of a batch task."""

    module: str
    qualname: str
    batch: bool = False


class ChildStart(msgspec.Struct, frozen=True, kw_only=True):
    """The start arguments of a child process.

    - `path`, `argv`, `parent`: the worker's `sys.path`, `sys.argv` and process id.
    - `uvloop`: True if the worker uses uvloop.
    - `main`: the main module, which the child imports first.
    - `application`: the import path of the application (`module:variable`).
    - `logs`: the worker's log settings."""

    path: list[str]
    argv: list[str]
    parent: int
    uvloop: bool
    main: MainModule | None
    application: str | None
    logs: LogSettings | None


class PrepareRequest(msgspec.Struct, frozen=True, tag="prepare request"):
    """Asks the child to find the handler of `task` and to open the application's lifespan.

    - `handler`: the import path of the handler, used if the application does not have the task.
    - `middleware`: how many middleware functions the child must find; None if any number is right.
    - `lifespan`: False if only the store is opened."""

    task: str
    handler: HandlerPath | None
    middleware: int | None = None
    lifespan: bool = True


class CancelRequest(msgspec.Struct, frozen=True, tag="cancel request"):
    """Asks the child to cancel the running job. A child that does not stop is killed."""


class RunRequest(msgspec.Struct, frozen=True, kw_only=True, tag="run request"):
    """Asks the child to run a job.

    - `chance`: a random number between 0 and 1, for the retry delay.
    - `policy`: the task's retry policy, used if the child does not have the task definition.
    - `pools`: the settings of the job's pools, by name.
    - `began`: the boot-clock time at which the message is sent.
    - `wall`: the store's wall time at that moment.
    - `timeout`: seconds from `began`.
    - `late_in`: seconds from `began` until the reserved units are too old.
    - `others`: the other jobs of the batch."""

    job: ClaimedJob
    chance: float
    policy: dict[str, int | float | str]
    pools: dict[str, PoolSettings]
    began: float
    wall: float
    timeout: float
    late_in: float = math.inf
    others: tuple[ClaimedJob, ...] = ()


class ReserveReply(msgspec.Struct, frozen=True, tag="reserve reply"):
    """The answer to `ReserveRequest`.

    - `wait`: seconds to wait; None if the units were reserved.
    - `problem`: why the store could not be asked."""

    wait: float | None = None
    problem: str | None = None


class StepReplyMessage(msgspec.Struct, frozen=True, tag="step reply message"):
    """The answer to `StepRequestMessage`.

    - `reply`: the store's answer.
    - `problem`: why the store could not be asked."""

    reply: StepReply | None = None
    problem: str | None = None


class CommitReply(msgspec.Struct, frozen=True, tag="commit reply"):
    """The answer to `CommitRequest`: the settlement that the child writes in its transaction."""

    settlement: Settlement


class WaitReply(msgspec.Struct, frozen=True, tag="wait reply"):
    """The answer to `WaitRequest`.

    - `problem`: why the handler may not wait; None if it may.
    - `lasting`: True if later attempts would be refused too."""

    problem: str | None = None
    lasting: bool = True


class PrepareReply(msgspec.Struct, frozen=True, tag="prepare reply"):
    """The answer to `PrepareRequest`.

    - `problem`: why the handler is not ready; None if it is.
    - `opened`: False if the store or the lifespan could not be opened."""

    problem: str | None = None
    opened: bool = True


class StopReply(msgspec.Struct, frozen=True, tag="stop reply"):
    """Tells the worker that the job ended because of a `CancelRequest`."""


class LateStartReply(msgspec.Struct, frozen=True, tag="late start reply"):
    """Tells the worker that the handler was not called, because its reserved units were `late` seconds too
    old."""

    late: float


class RunReply(msgspec.Struct, frozen=True, tag="run reply"):
    """The outcome of a job that ran. The store applies `charged` instead of `outcome` if a provider's refusal
    must cost the job an attempt."""

    outcome: Outcome
    charged: Outcome | None = None


class BatchRunReply(msgspec.Struct, frozen=True, tag="batch run reply"):
    """The result of a batch. `items` has one element per job, or is one `BatchOutcome` if the handler
    raised."""

    items: list[BatchItem] | BatchOutcome


class ProgressReport(msgspec.Struct, frozen=True, tag="progress report"):
    fraction: float
    note: str | None


class LogReport(msgspec.Struct, frozen=True, tag="log report"):
    line: str


class UsageMessage(msgspec.Struct, frozen=True, tag="usage message"):
    usage: PoolUsage
    number: int | None = None


class ObservationReport(msgspec.Struct, frozen=True, tag="observation report"):
    seen: Observation
    watched: bool = False


class ProblemReport(msgspec.Struct, frozen=True, tag="problem report"):
    """Tells the worker about a problem with the handler's usage reports, such as a classifier that raised."""

    problem: str


class ReserveRequest(msgspec.Struct, frozen=True, tag="reserve request"):
    need: Need
    departure: Departure | None = None


class StepRequestMessage(msgspec.Struct, frozen=True, tag="step request message"):
    question: StepRequest


class CommitRequest(msgspec.Struct, frozen=True, tag="commit request"):
    """Asks the worker for the settlement, because the handler's transaction is about to commit. The
    transaction ends the job with `outcome`."""

    outcome: Success


class RollbackReport(msgspec.Struct, frozen=True, tag="rollback report"):
    """Tells the worker that the handler's transaction was rolled back, so the job has not ended."""


class WaitRequest(msgspec.Struct, frozen=True, tag="wait request"):
    """Asks the worker whether the handler may wait for the result of `target`, a job or flow."""

    target: WaitTarget


class WaitEndReport(msgspec.Struct, frozen=True, tag="wait end report"):
    target: WaitTarget


MessageToChild = (
    PrepareRequest | RunRequest | CancelRequest | ReserveReply | StepReplyMessage | CommitReply | WaitReply
)
MessageFromChild = (
    PrepareReply
    | RunReply
    | BatchRunReply
    | StopReply
    | LateStartReply
    | ProgressReport
    | LogReport
    | UsageMessage
    | ObservationReport
    | ProblemReport
    | ReserveRequest
    | StepRequestMessage
    | CommitRequest
    | RollbackReport
    | WaitRequest
    | WaitEndReport
)
ChildQuestion = ReserveRequest | StepRequestMessage | CommitRequest | WaitRequest
WorkerReply = ReserveReply | StepReplyMessage | CommitReply | WaitReply

_ENCODER = msgspec.msgpack.Encoder()
_TO_CHILD = msgspec.msgpack.Decoder(MessageToChild)
_FROM_CHILD = msgspec.msgpack.Decoder(MessageFromChild)

encode_message = _ENCODER.encode
decode_for_child = _TO_CHILD.decode
decode_from_child = _FROM_CHILD.decode
decode_child_start = msgspec.json.Decoder(ChildStart).decode
