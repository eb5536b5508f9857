"""The command line `python -m tidemill_apps.articles`: re-embed every article, add the samples."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec

from tidemill import ConfigurationError, TidemillError
from tidemill_apps.articles.post_summaries import PostSummaries, PostSummary
from tidemill_apps.articles.samples import add_samples
from tidemill_apps.articles.service import Articles
from tidemill_apps.common.database import DatabaseUnavailable

if TYPE_CHECKING:
    from rich.progress import Progress


POLL_SECONDS = 0.5
NO_WORKER_SECONDS = 10.0
"""Seconds without a worker after which the command stops waiting."""
MAX_FAILURES_SHOWN = 5

ReembedCallback = Callable[["ReembedStatus"], None]


class ReembedStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of one run of the command `reembed`.

    - `requested`: the number of articles whose embedding this run has requested.
    - `left`: the number of all articles that are pending or processing.
    - `failed`: the number of visible articles whose embedding failed.
    - `rest`: True if the queue was full and more articles must be requested.
    - `served`: True if at least one worker serves the queue.
    """

    requested: int
    left: int
    failed: int
    rest: bool
    served: bool


class ReembedRun:
    def __init__(self, articles: Articles, unserved: float = NO_WORKER_SECONDS) -> None:
        self._articles, self._unserved = articles, unserved
        self._summaries = PostSummaries(articles.posts)
        self._requested, self._after = 0, 0
        self._rest = True

    async def request(self) -> ReembedStatus:
        """Requests embeddings until the queue is full or every article is requested. Returns the progress."""
        requested, rest = await self._articles.requests.request_until_full(self._after)
        self._requested, self._rest = self._requested + requested, rest is not None
        self._after = self._after if rest is None else rest
        return await self.status()

    async def wait(self, report: ReembedCallback) -> ReembedStatus:
        """Requests the remaining articles, waits until every article is finished, and returns the last
        progress. Calls `report` with the progress every 0.5 s. Stops earlier if no worker has run for
        `unserved` seconds."""
        clock = self._articles.app.clock
        seen = clock.boot()
        while True:
            status = await (self.request() if self._rest else self.status())
            report(status)
            seen = clock.boot() if status.served else seen
            if not (status.left or status.rest) or clock.boot() - seen >= self._unserved:
                return status
            await asyncio.sleep(POLL_SECONDS)

    async def status(self) -> ReembedStatus:
        counts = await self._articles.posts.count_by_status()
        queue = await self._articles.app.inspect.queue(self._articles.queue, cached=True)
        return ReembedStatus(
            requested=self._requested,
            left=counts["pending"] + counts["processing"],
            failed=await self._summaries.count_visible_failed(),
            rest=self._rest,
            served=bool(queue.workers),
        )

    async def failures(self) -> list[PostSummary]:
        return await self._summaries.load_failed(MAX_FAILURES_SHOWN, hidden=False)


COMMAND_NAME = "python -m tidemill_apps.articles"
EXIT_USAGE, EXIT_UNFINISHED = 2, 1
ResultT = TypeVar("ResultT")


@click.group(
    help="Manage articles from the terminal. Settings: ARTICLES_… in the environment.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
def main() -> None: ...


@main.command()
@click.option("--no-wait", is_flag=True, help="Request the embeddings and return without waiting.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON and no progress bar.")
def reembed(*, no_wait: bool, as_json: bool) -> None:
    """Embed every visible article with content again, at low priority."""
    ended = _run(lambda articles: _reembed(articles, no_wait=no_wait, as_json=as_json))
    sys.exit(EXIT_UNFINISHED if ended else 0)


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def samples(*, as_json: bool) -> None:
    """Add the sample articles that do not exist yet."""
    count = _run(add_samples)
    _print({"added": count}, f"{count} sample articles were added", as_json=as_json)


async def _reembed(articles: Articles, *, no_wait: bool, as_json: bool) -> str | None:
    """Embeds every article again and prints the result. Returns a sentence that says what went wrong, or None
    if nothing did. With `no_wait=True` it only requests the embeddings."""
    work = ReembedRun(articles)
    if no_wait:
        status = await work.request()
    elif as_json:
        status = await work.wait(lambda _: None)
    else:
        with _create_bar() as bar:
            status = await work.wait(_create_bar_callback(bar))
    wrong = _find_problem(status, no_wait=no_wait)
    _print(status, format_result(status, no_wait=no_wait), as_json=as_json)
    if wrong:
        click.echo(f"{COMMAND_NAME}: {wrong}", err=True)
    if not no_wait and status.failed:
        for line in await work.failures():
            click.echo(f"  {line.id} {line.title}: {line.rag_error}", err=True)
    return wrong


def format_result(status: ReembedStatus, *, no_wait: bool) -> str:
    """Returns one sentence that says how many articles were embedded, failed or still wait. `no_wait=True`:
    the sentence says how many were requested."""
    if not status.requested:
        return "there is no article with content that is not hidden"
    if no_wait:
        return f"requested {_format_count(status.requested)}, to be embedded at low priority"
    undone = status.left + status.failed
    done = f"{_format_count(max(0, status.requested - undone))} embedded again"
    if not undone:
        return done
    named = ((status.failed, "failed"), (status.left, "wait"))
    return f"{done}, {undone} not done: {', '.join(f'{count} {how}' for count, how in named if count)}"


def _format_count(count: int) -> str:
    return f"{count} article" if count == 1 else f"{count} articles"


def _find_problem(status: ReembedStatus, *, no_wait: bool) -> str | None:
    if status.rest:
        return "the queue is full: run it again when some are done, or raise ARTICLES_QUEUE_LIMIT"
    if no_wait:
        return None
    if status.left:
        return f"{status.left} articles wait and no worker embeds them; start one: tidemill up articles"
    return (
        f"{status.failed} articles failed; the page /articles has a button for them"
        if status.failed
        else None
    )


def _create_bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=Console(stderr=True),
    )


def _create_bar_callback(bar: Progress) -> ReembedCallback:
    task = bar.add_task("articles", note="", total=None)

    def report(status: ReembedStatus) -> None:
        unserved = status.left and not status.served
        note = "no worker embeds them: tidemill up articles" if unserved else ""
        total = max(status.requested, status.left)
        bar.update(task, total=total, completed=total - status.left, note=note)

    return report


def _run(work: Callable[[Articles], Awaitable[ResultT]]) -> ResultT:
    """Calls `work` with the articles application and returns the result. If `work` fails, prints the error
    and ends the process. The exit code is 2 for a wrong configuration or a missing package, otherwise 1."""
    try:
        from tidemill_apps.articles.app import articles

        return asyncio.run(_run_with_articles(articles, work))
    except (ConfigurationError, ModuleNotFoundError) as error:
        click.echo(f"{COMMAND_NAME}: {error}", err=True)
        sys.exit(EXIT_USAGE)
    except (TidemillError, DatabaseUnavailable) as error:
        click.echo(f"{COMMAND_NAME}: {error}", err=True)
        sys.exit(EXIT_UNFINISHED)


async def _run_with_articles(articles: Articles, work: Callable[[Articles], Awaitable[ResultT]]) -> ResultT:
    async with articles.app:
        try:
            return await work(articles)
        finally:
            await articles.close()


def _print(value: object, sentence: str, *, as_json: bool) -> None:
    click.echo(msgspec.json.encode(value).decode() if as_json else sentence)


if __name__ == "__main__":
    main(prog_name=COMMAND_NAME)
