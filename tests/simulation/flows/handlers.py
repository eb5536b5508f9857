"""The tasks of simulated flows. They check their inputs, and whether they should run at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.flows.random_flows import Script, expected_result, possible_results
from tests.simulation.trace import Violation
from tidemill.core.flow_graph import FlowGraph, OnFailure, StepNode
from tidemill.core.jobs import COMPENSATION_SUFFIX, Job, flow_job_id
from tidemill.core.retry import Retry
from tidemill.core.states import FINAL, State
from tidemill.errors import GiveUp
from tidemill.flows.results import StepFailure
from tidemill.tasks.context import Context
from tidemill.tasks.definition import TaskDefinition, make_task_definition
from tidemill.testing.virtual_processes import kill_current_process


@dataclass
class FlowHandlers:
    """The handlers. `graphs` are the flows by id; `jobs` reads the store's records directly."""

    graphs: dict[str, FlowGraph]
    jobs: Callable[[], dict[str, Job]]
    violated: Callable[[Violation], None]
    starts: int = field(default=0)

    def tasks(self, worker: str, *, knows_rare: bool) -> dict[str, TaskDefinition]:
        async def work(ctx: Context, script: Script, given: Any = None, item: Any = None) -> list[str]:
            self._look(ctx, given, item)
            await _perform(ctx, script)
            return expected_result(ctx.job_id, script)

        async def fix(ctx: Context, failure: StepFailure) -> list[str]:
            self._look_at_failure(ctx, failure)
            await asyncio.sleep(0.05)
            return [ctx.job_id]

        retry = Retry(attempts=3, first=0.2, factor=2)
        names = ("work", "rare") if knows_rare else ("work",)
        tasks = [make_task_definition(work, name=name, retry=retry, timeout=30) for name in names]
        return {
            task.name: task
            for task in [*tasks, make_task_definition(fix, name="fix", retry=retry, timeout=30)]
        }

    def _look(self, ctx: Context, given: Any, item: Any) -> None:
        node, graph, flow = self._where(ctx)
        for parent in node.parents:
            self._check_over(ctx, graph, flow, parent)
        for step in node.reads.values():
            self._check_given(ctx, self._fits(graph, flow, step, given), f"{given!r} for {step}")
        if node.fan_out is not None and node.fan_out.step is not None and ctx.flow is not None:
            over = _node(graph, node.fan_out.step)
            if over.fan_out is not None:
                right = item in list(possible_results(flow, over, ctx.flow.index))
            else:
                lists = [one or [] for one in possible_results(flow, over, 0)]
                right = any(one[ctx.flow.index : ctx.flow.index + 1] == [item] for one in lists)
            self._check_given(ctx, right, f"{item!r} of {over.name}")

    def _fits(self, graph: FlowGraph, flow: str, step: str, given: Any) -> bool:
        node = _node(graph, step)
        if node.fan_out is None:
            return given in list(possible_results(flow, node, 0))
        return isinstance(given, list) and all(
            one in list(possible_results(flow, node, index)) for index, one in enumerate(given)
        )

    def _look_at_failure(self, ctx: Context, failure: StepFailure) -> None:
        failed = self.jobs().get(flow_job_id(failure.flow, failure.step, failure.index))
        right = failed is not None and failed.state in FINAL - {State.DONE} and failed.error is not None
        same_error = failed is not None and (failed.error is None or failure.error.type == failed.error.type)
        self._check_given(ctx, right and same_error, repr(failure))

    def _check_over(self, ctx: Context, graph: FlowGraph, flow: str, step: str) -> None:
        """Checks that all jobs of a preceding step are over when this job starts (I17)."""
        node, jobs = _node(graph, step), self.jobs()
        for job in jobs.values():
            if job.flow is None or job.flow.id != flow or job.flow.step != step:
                continue
            instead = jobs.get(flow_job_id(flow, step + COMPENSATION_SUFFIX, job.flow.index))
            let_go = node.on_failure is OnFailure.CONTINUE and job.state in FINAL
            saved = instead is not None and instead.state is State.DONE
            if not (job.state is State.DONE or let_go or saved):
                self.violated(Violation("I17", f"{ctx.job_id} starts while {job.id} is {job.state}"))

    def _check_given(self, ctx: Context, right: bool, what: str) -> None:
        self.starts += 1
        if not right:
            self.violated(Violation("I17", f"{ctx.job_id} was given {what}"))

    def _where(self, ctx: Context) -> tuple[StepNode, FlowGraph, str]:
        assert ctx.flow is not None
        graph = self.graphs[ctx.flow.id]
        return _node(graph, ctx.flow.step), graph, ctx.flow.id


def _node(graph: FlowGraph, step: str) -> StepNode:
    node = graph.node(step)
    assert node is not None
    return node


async def _perform(ctx: Context, script: Script) -> None:
    await asyncio.sleep(script.seconds * (5 if script.kind == "slow" else 1))
    if ctx.generation:
        return
    match script.kind:
        case "flaky" if ctx.attempt == 1:
            raise ConnectionError("the first attempt fails")
        case "hopeless":
            raise GiveUp("there is no hope")
        case "poison":
            await kill_current_process()
