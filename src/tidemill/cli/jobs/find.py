"""`tidemill jobs`: find jobs."""

from __future__ import annotations

import click
from msgspec.structs import replace

from tidemill.app import Tidemill
from tidemill.cli.filtering import Wanted, with_filter
from tidemill.cli.groups import Group
from tidemill.cli.jobs.record import as_data, attempt_of, remark
from tidemill.cli.numbers import Whole
from tidemill.cli.output import moment, note, print_json
from tidemill.cli.secrets import Redaction, with_secrets
from tidemill.cli.table import Column, print_table
from tidemill.cli.target import Target, with_target
from tidemill.contract.reader import Page

COLUMNS = (
    Column("id"),
    Column("queue", goes=3),
    Column("task", goes=1, cut="start", least=16),
    Column("state"),
    Column("attempt", goes=4, right=True),
    Column("created", goes=5),
    Column("note", goes=2, cut="end", least=17),
)


@click.group(cls=Group, invoke_without_command=True)
@with_filter
@click.option("--limit", default=50, show_default=True, type=Whole(1, 10_000), help="How many.")
@click.option("--cursor", type=int, help="Go on where the last page ended.")
@with_target
@with_secrets
def jobs(target: Target, *, redaction: Redaction, wanted: Wanted, limit: int, cursor: int | None) -> None:
    """Find jobs, newest first; or look at one, or change some."""
    subcommand = click.get_current_context().invoked_subcommand
    if subcommand is not None:
        if wanted.says_something():
            raise click.UsageError(f"write the filter behind the subcommand: jobs {subcommand} --queue …")
        return

    async def find(app: Tidemill) -> Page:
        page = await app.inspect.find(await wanted.filter(app), limit=limit, cursor=cursor, looks=None)
        return replace(page, jobs=tuple(redaction.job(app, job) for job in page.jobs))

    page = target.run(find)
    if target.json:
        print_json({"jobs": [as_data(job) for job in page.jobs], "cursor": page.cursor})
        return
    if not page.jobs:
        note(_nothing(wanted))
        return
    print_table(
        COLUMNS,
        [(j.id, j.queue, j.task, j.state, attempt_of(j), moment(j.created), remark(j)) for j in page.jobs],
    )
    if page.cursor is not None:
        note(f"there are more: --cursor {page.cursor}")


def _nothing(wanted: Wanted) -> str:
    if not wanted.says_something():
        return "there are no jobs yet"
    if '"' in (wanted.text or ""):
        return "no job matches; --text is looked for inside strings: leave out their quotes, or use --field"
    return "no job matches"
