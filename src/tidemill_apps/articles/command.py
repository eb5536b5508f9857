"""`python -m tidemill_apps.articles`: what is done to articles from a terminal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec

from tidemill import ConfigurationError, TidemillError
from tidemill_apps.articles.reembedding import Reembedding, Standing, Tell
from tidemill_apps.common.database import DatabaseUnavailable

if TYPE_CHECKING:
    from rich.progress import Progress

    from tidemill_apps.articles.articles import Articles

NAME = "python -m tidemill_apps.articles"
WRONG, UNDONE = 2, 1
Result = TypeVar("Result")


@click.group(
    help="Articles from a terminal. Settings are those of the application: ARTICLES_… in the environment.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
def main() -> None: ...


@main.command()
@click.option("--no-wait", is_flag=True, help="Ask for it, and do not wait until it is done.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; the bar is left out.")
def reembed(*, no_wait: bool, as_json: bool) -> None:
    """Embed every article that has content and is not hidden again, when nothing more urgent waits."""
    ended = _run(lambda articles: _reembedded(articles, no_wait=no_wait, as_json=as_json))
    sys.exit(UNDONE if ended else 0)


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def samples(*, as_json: bool) -> None:
    """Add the sample articles whose titles are not there yet."""
    from tidemill_apps.articles.pages import add_samples

    count = _run(add_samples)
    _print({"added": count}, f"{count} sample articles were added", as_json=as_json)


async def _reembedded(articles: Articles, *, no_wait: bool, as_json: bool) -> str | None:
    """What is wrong with how it ended, None when nothing is."""
    work = Reembedding(articles)
    if no_wait:
        standing = await work.ask()
    elif as_json:
        standing = await work.wait(lambda _: None)
    else:
        with _bar() as bar:
            standing = await work.wait(_shown_on(bar))
    wrong = _wrong(standing, no_wait=no_wait)
    _print(standing, told(standing, no_wait=no_wait), as_json=as_json)
    if wrong:
        click.echo(f"{NAME}: {wrong}", err=True)
    if not no_wait and standing.failed:
        for line in await work.failures():
            click.echo(f"  {line.id} {line.title}: {line.rag_error}", err=True)
    return wrong


def told(standing: Standing, *, no_wait: bool) -> str:
    """How it ended, in one sentence."""
    if not standing.asked:
        return "there is no article with content that is not hidden"
    if no_wait:
        return f"asked for {_counted(standing.asked)}, to be embedded when nothing more urgent waits"
    undone = standing.left + standing.failed
    done = f"{_counted(max(0, standing.asked - undone))} embedded again"
    if not undone:
        return done
    named = ((standing.failed, "failed"), (standing.left, "wait"))
    return f"{done}, {undone} not done: {', '.join(f'{count} {how}' for count, how in named if count)}"


def _counted(count: int) -> str:
    return f"{count} article" if count == 1 else f"{count} articles"


def _wrong(standing: Standing, *, no_wait: bool) -> str | None:
    if standing.rest:
        return "the queue is full: run it again when some are done, or raise ARTICLES_QUEUE_LIMIT"
    if no_wait:
        return None
    if standing.left:
        return f"{standing.left} articles wait and no worker embeds them; start one: tidemill up articles"
    return (
        f"{standing.failed} articles failed; the page /articles has a button for them"
        if standing.failed
        else None
    )


def _bar() -> Progress:
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


def _shown_on(bar: Progress) -> Tell:
    task = bar.add_task("articles", note="", total=None)

    def tell(standing: Standing) -> None:
        unserved = standing.left and not standing.served
        note = "no worker embeds them: tidemill up articles" if unserved else ""
        total = max(standing.asked, standing.left)
        bar.update(task, total=total, completed=total - standing.left, note=note)

    return tell


def _run(work: Callable[[Articles], Awaitable[Result]]) -> Result:
    """On the application of the environment; whatever is wrong with that is one sentence."""
    try:
        from tidemill_apps.articles.app import articles

        return asyncio.run(_opened(articles, work))
    except (ConfigurationError, ModuleNotFoundError) as error:
        click.echo(f"{NAME}: {error}", err=True)
        sys.exit(WRONG)
    except (TidemillError, DatabaseUnavailable) as error:
        click.echo(f"{NAME}: {error}", err=True)
        sys.exit(UNDONE)


async def _opened(articles: Articles, work: Callable[[Articles], Awaitable[Result]]) -> Result:
    async with articles.app:
        try:
            return await work(articles)
        finally:
            await articles.close()


def _print(value: object, sentence: str, *, as_json: bool) -> None:
    click.echo(msgspec.json.encode(value).decode() if as_json else sentence)
