"""What the jobs of a flow do at the moment: that a step has begun does not say that anybody runs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tidemill.app import Tidemill
from tidemill.core.filters import Filter
from tidemill.core.flow_jobs import COMPENSATION
from tidemill.core.states import FINAL, State
from tidemill.flows.views import FlowView, StepView

LOOKED_AT = 1000
UNDER_WAY = tuple(state for state in State if state not in FINAL)

Jobs = Mapping[str, Counter[State]]
"""By the name of a step, how many of its jobs are in a state: of the newest thousand that have not ended."""


async def jobs_under_way(app: Tidemill, view: FlowView) -> Jobs:
    counts: dict[str, Counter[State]] = {}
    if not any(step.live for step in view.steps):
        return counts
    page = await app.inspect.find(Filter(flow=view.id, states=UNDER_WAY), limit=LOOKED_AT, looks=None)
    for job in page.jobs:
        if job.flow is not None:
            counts.setdefault(job.flow.step.removesuffix(COMPENSATION), Counter())[job.state] += 1
    return counts


def state_of(step: StepView, jobs: Jobs) -> str:
    """A step runs when one of its jobs does; else it is in the state most of them are in."""
    its = jobs.get(step.name)
    if step.state != "running" or not its:
        return step.state
    return State.RUNNING if its[State.RUNNING] else its.most_common(1)[0][0]
