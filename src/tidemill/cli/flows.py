"""`tidemill flows`: lists, shows, cancels and retries flows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import click
import msgspec

from tidemill.app import Tidemill
from tidemill.cli import completion
from tidemill.cli.options import WholeNumber
from tidemill.cli.output import echo, format_time, note, print_fields, print_json
from tidemill.cli.root import CommandGroup
from tidemill.cli.store_options import CommandTarget, with_target
from tidemill.cli.terminal import Column, print_table
from tidemill.core.filters import Filter
from tidemill.core.flow_progress import FlowState, StepState
from tidemill.core.jobs import COMPENSATION_SUFFIX
from tidemill.core.states import FINAL, State
from tidemill.flows.views import FlowView, StepView

FLOW_COLUMNS = (
    Column("id"),
    Column("state"),
    Column("progress", right=True),
    Column("steps", drop_order=2),
    Column("created", drop_order=3),
    Column("note", drop_order=1, truncate="end", min_width=17),
)


@click.group(cls=CommandGroup, invoke_without_command=True)
@click.option("--name", shell_complete=completion.complete_flow_names, help="Only flows with this name.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in FlowState]),
    help="Only flows in this state; may be repeated.",
)
@click.option(
    "--limit", default=50, show_default=True, type=WholeNumber(1, 1000), help="Maximum number of flows."
)
@click.option("--cursor", help="Show the next page; the previous page printed this value.")
@with_target
def flows(
    target: CommandTarget, *, name: str | None, states: tuple[str, ...], limit: int, cursor: str | None
) -> None:
    """Find flows, newest first; or show, cancel or retry one."""
    subcommand = click.get_current_context().invoked_subcommand
    if subcommand is not None:
        if name or states or cursor:
            raise click.UsageError(f"flows {subcommand} is about one flow: give its id, and no filter")
        return
    page = target.run(
        lambda app: app.inspect.flows(name=name, states=states or None, limit=limit, cursor=cursor)
    )
    if target.json:
        print_json(page)
        return
    if not page.flows:
        note("no flow matches" if name or states else "there are no flows yet")
        return
    print_table(
        FLOW_COLUMNS,
        [
            (
                view.id,
                view.state,
                f"{view.progress:.0%}",
                _format_steps_done(view),
                format_time(view.created),
                view.reason,
            )
            for view in page.flows
        ],
    )
    if page.cursor is not None:
        note(f"there are more: --cursor {page.cursor!r}")


def _format_steps_done(view: FlowView) -> str:
    done = sum(step.state is StepState.DONE for step in view.steps)
    return f"{done} of {len(view.steps)}"


MAX_JOBS_READ = 1000
LIVE_STATES = tuple(state for state in State if state not in FINAL)

JobsByStep = Mapping[str, Counter[State]]
"""The number of live jobs by step and state. Only the newest thousand live jobs are counted."""


async def count_live_jobs(app: Tidemill, view: FlowView) -> JobsByStep:
    counts: dict[str, Counter[State]] = {}
    if not any(step.live for step in view.steps):
        return counts
    page = await app.inspect.find(
        Filter(flow=view.id, states=LIVE_STATES), limit=MAX_JOBS_READ, scan_limit=None
    )
    for job in page.jobs:
        if job.flow is not None:
            counts.setdefault(job.flow.step.removesuffix(COMPENSATION_SUFFIX), Counter())[job.state] += 1
    return counts


def step_state(step: StepView, jobs: JobsByStep) -> str:
    """Returns the state to show for a step. A "running" step without a running job shows the most frequent
    state of its live jobs."""
    counts = jobs.get(step.name)
    if step.state != "running" or not counts:
        return step.state
    return State.RUNNING if counts[State.RUNNING] else counts.most_common(1)[0][0]


@click.command()
@click.argument("id", shell_complete=completion.complete_flows)
@with_target
def show(target: CommandTarget, id: str) -> None:  # noqa: A002 - the word for it
    """Show one flow with its steps."""
    view, jobs = target.run(lambda app: _load_flow(app, id))
    if target.json:
        print_json(_flow_data(view, jobs))
        return
    print_fields(
        {
            "flow": view.id,
            "state": view.state,
            "progress": f"{view.progress:.0%}",
            "created": format_time(view.created),
            "due": format_time(view.due) or None,
            "finished": format_time(view.finished) or None,
            "kept until": format_time(view.until) or None,
            "reason": view.reason,
        }
    )
    echo()
    for line in format_flow_tree(view, jobs):
        echo(line)


async def _load_flow(app: Tidemill, flow: str) -> tuple[FlowView, JobsByStep]:
    view = await app.inspect.flow(flow)
    return view, await count_live_jobs(app, view)


def _flow_data(view: FlowView, jobs: JobsByStep) -> dict[str, object]:
    """Returns the flow as JSON data. Each step has a field `jobs` with the number of its live jobs by
    state."""
    data: dict[str, object] = msgspec.to_builtins(view)
    steps = [msgspec.to_builtins(step) | {"jobs": jobs.get(step.name, {})} for step in view.steps]
    return data | {"steps": steps}


def format_flow_tree(view: FlowView, jobs: JobsByStep) -> Iterator[str]:
    """Yields the steps as the lines of a tree. A step with several parents is shown below the last of its
    parents."""
    children: dict[str | None, list[StepView]] = {}
    order = {step.name: number for number, step in enumerate(view.steps)}
    for step in view.steps:
        children.setdefault(max(step.parents, key=order.__getitem__, default=None), []).append(step)
    # A stack, because a long chain of steps would exceed Python's recursion limit.
    pending = _tree_branches(children.get(None, []), "")
    while pending:
        step, indent, last = pending.pop()
        yield f"{indent}{'└─' if last else '├─'} {_format_step(step, jobs)}"
        pending += _tree_branches(children.get(step.name, []), indent + ("   " if last else "│  "))


def _tree_branches(steps: list[StepView], indent: str) -> list[tuple[StepView, str, bool]]:
    """Returns (step, indent, is_last) for each of `steps`, in reverse order, for a stack. `is_last` is True
    for the last of `steps`."""
    return [(step, indent, step is steps[-1]) for step in reversed(steps)]


def _format_step(step: StepView, jobs: JobsByStep) -> str:
    notes = [f"{count} {word}" for count, word in _step_counts(step, jobs) if count] if step.mapped else []
    if step.mapped and step.count is not None:
        notes.insert(0, f"{step.count} jobs")
    if step.compensated and not step.mapped:
        notes.append("compensated")
    if step.waits_for:
        notes.append(f"after {', '.join(step.waits_for)}")
    return f"{step.name}  {step_state(step, jobs)}" + (f" ({', '.join(notes)})" if notes else "")


def _step_counts(step: StepView, jobs: JobsByStep) -> Iterator[tuple[int, str]]:
    """Yields (number of jobs, word) pairs for a step, such as (3, "done"). If `jobs` lacks some live jobs of
    the step, the live jobs get one pair with the word "under way"."""
    counts = jobs.get(step.name)
    yield step.done, "done"
    if counts is None or counts.total() < step.live:
        yield step.live, "under way"
    else:
        yield from ((counts[state], state) for state in State)
    yield step.failed, "failed"
    yield step.compensated, "compensated"


def report_change(target: CommandTarget, flow: str, done: bool, success_text: str, failure_text: str) -> int:
    if target.json:
        print_json({"flow": flow, "changed": done})
    elif done:
        echo(f"{flow} {success_text}")
    if not done:
        note(f"nothing was changed: {flow} {failure_text}")
    return 0 if done else 1


@click.command()
@click.argument("id", shell_complete=completion.complete_flows)
@click.option("--reason", default="cancelled by hand", show_default=True, help="Stored with the flow.")
@with_target
def cancel(target: CommandTarget, id: str, reason: str) -> int:  # noqa: A002 - the word for it
    """Cancel a flow and its jobs. No further step starts."""
    done = target.run(lambda app: app.inspect.cancel_flow(id, reason=reason))
    return report_change(target, id, done, "cancelled", "had already ended")


@click.command()
@click.argument("id", shell_complete=completion.complete_flows)
@with_target
def retry(target: CommandTarget, id: str) -> int:  # noqa: A002 - the word for it
    """Run the failed and cancelled steps of a flow again. Finished steps are not repeated."""
    done = target.run(lambda app: app.inspect.retry_flow(id))
    return report_change(target, id, done, "runs again", "has not failed")


for _command in (show, cancel, retry):
    flows.add_command(_command)
