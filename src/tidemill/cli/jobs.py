"""`tidemill jobs` and `tidemill explain`: find, show, explain and change jobs."""

from __future__ import annotations

import click
from msgspec.structs import replace

from tidemill.app import Tidemill
from tidemill.cli import completion, job_view
from tidemill.cli.job_changes import CHANGE_COMMANDS
from tidemill.cli.job_filters import FilterOptions, missing_jobs_message, resolve_id, resolve_ids, with_filter
from tidemill.cli.job_view import current_attempt, job_data, job_lines, job_note
from tidemill.cli.options import WholeNumber
from tidemill.cli.output import echo, format_time, note, print_json
from tidemill.cli.root import CommandGroup
from tidemill.cli.store_options import CommandTarget, Redaction, with_secrets, with_target
from tidemill.cli.terminal import Column, print_table
from tidemill.contract.reader import JobPage
from tidemill.core.documents import DocumentKind
from tidemill.core.redaction import escape_newlines
from tidemill.errors import JobNotFound
from tidemill.inspect.explanation import Explanation
from tidemill.inspect.views import JobView

JOB_COLUMNS = (
    Column("id"),
    Column("queue", drop_order=3),
    Column("task", drop_order=1, truncate="start", min_width=16),
    Column("state"),
    Column("attempt", drop_order=4, right=True),
    Column("created", drop_order=5),
    Column("note", drop_order=2, truncate="end", min_width=17),
)


@click.group(cls=CommandGroup, invoke_without_command=True)
@with_filter
@click.option(
    "--limit", default=50, show_default=True, type=WholeNumber(1, 10_000), help="Maximum number of jobs."
)
@click.option("--cursor", type=int, help="Show the next page; the previous page printed this value.")
@with_target
@with_secrets
def jobs(
    target: CommandTarget,
    *,
    redaction: Redaction,
    filter_options: FilterOptions,
    limit: int,
    cursor: int | None,
) -> None:
    """Find jobs, newest first; or show one, or change some."""
    subcommand = click.get_current_context().invoked_subcommand
    if subcommand is not None:
        if filter_options.is_given():
            raise click.UsageError(f"write the filter behind the subcommand: jobs {subcommand} --queue …")
        return

    async def find(app: Tidemill) -> JobPage:
        page = await app.inspect.find(
            await filter_options.filter(app), limit=limit, cursor=cursor, scan_limit=None
        )
        return replace(page, jobs=tuple(redaction.job(app, job) for job in page.jobs))

    page = target.run(find)
    if target.json:
        print_json({"jobs": [job_data(job) for job in page.jobs], "cursor": page.cursor})
        return
    if not page.jobs:
        note(_no_match_message(filter_options))
        return
    print_table(
        JOB_COLUMNS,
        [
            (j.id, j.queue, j.task, j.state, current_attempt(j), format_time(j.created), job_note(j))
            for j in page.jobs
        ],
    )
    if page.cursor is not None:
        note(f"there are more: --cursor {page.cursor}")


def _no_match_message(filter_options: FilterOptions) -> str:
    if not filter_options.is_given():
        return "there are no jobs yet"
    if '"' in (filter_options.text or ""):
        return "no job matches; --text is looked for inside strings: leave out their quotes, or use --field"
    return "no job matches"


@click.command()
@click.argument("id", shell_complete=completion.complete_jobs)
@with_target
@with_secrets
def show(target: CommandTarget, id: str, *, redaction: Redaction) -> None:  # noqa: A002 - the word for it
    """Show one job with its attempts, log and checkpoints."""

    async def load(app: Tidemill) -> JobView:
        return redaction.view(app, await app.inspect.job(await resolve_id(app, id)))

    view = target.run(load)
    record = job_data(view.job)
    if target.json:
        steps = job_view.checkpoint_data(view.checkpoints)
        print_json(record | {"failed_attempts": view.attempts, "log": view.log, "checkpoints": steps})
        return
    step_lines = job_view.checkpoint_lines(view.checkpoints)
    for line in (*job_lines(record, view.attempts, view.log), *step_lines):
        echo(line)


@click.command()
@click.argument("id", shell_complete=completion.complete_jobs)
@with_target
@with_secrets
def explain(target: CommandTarget, id: str, *, redaction: Redaction) -> None:  # noqa: A002 - the word for it
    """Explain why a job waits, or what became of it."""

    async def load(app: Tidemill) -> Explanation:
        if await _is_flow(app, id):
            show_flow = target.command("flows", "show", id)
            raise JobNotFound(f"{id!r} is a flow and no job; look at it: {show_flow}")
        [named] = await resolve_ids(app, [id])
        try:
            explanation = await app.inspect.explain(named)
        except JobNotFound:
            raise JobNotFound(missing_jobs_message([id])) from None
        [job] = await app.store.get([named])
        return redaction.explanation(app, explanation, job)

    explanation = target.run(load)
    if target.json:
        print_json(explanation)
        return
    echo(
        escape_newlines(f"{explanation.job} is {explanation.state} ({explanation.task}, {explanation.queue})")
    )
    sentences = [cause.sentence for cause in explanation.causes]
    rest = explanation.sentence.removeprefix(" ".join(sentences)).strip()
    for sentence in filter(None, [*sentences, rest]):
        echo(escape_newlines(sentence))


async def _is_flow(app: Tidemill, typed: str) -> bool:
    [job] = await app.store.get([typed])
    return job is None and (await app.store.documents(DocumentKind.FLOW, [typed])) != [None]


for _command in (show, *CHANGE_COMMANDS):
    jobs.add_command(_command)
