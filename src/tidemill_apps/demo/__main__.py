"""Run the demo. Exit code 0 when every promise held, 1 when one did not."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import structlog
from rich.console import Console

from tidemill import TidemillError
from tidemill_apps.demo import place
from tidemill_apps.demo.articles import ArticlesStory
from tidemill_apps.demo.music import MusicStory
from tidemill_apps.demo.provider import A_MINUTE
from tidemill_apps.demo.screen import Screen
from tidemill_apps.demo.summary import Promise, articles_promises, music_promises

PATIENCE = 55.0
INTERRUPTED = 130


def main() -> int:
    # The screen belongs to the bars; what the worker would log is shown there.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        place.enter()
        return asyncio.run(_run(Screen(Console())))
    except TimeoutError:
        print(f"the demo did not come to its end within {PATIENCE:g} s", file=sys.stderr)  # noqa: T201 - a command
    except (TidemillError, OSError) as error:
        print(f"the demo could not run in {Path.cwd()}: {error}", file=sys.stderr)  # noqa: T201 - a command
    except KeyboardInterrupt:
        return INTERRUPTED
    return 1


ABOUT = f"""\
Two applications, on SQLite files in the folder {place.FOLDER}. Nobody is called and nothing is paid for:
the provider is a SIMULATOR of Gemini on this machine, and a minute of its takes {A_MINUTE:g} seconds here."""
MUSIC = "Music: songs described and given vectors, 5 requests a minute, and a day's quota that does not last"
ARTICLES = "Articles: a blog embedded while it is written, edited and hidden"
TRIED = place.FOLDER / "try"
WITNESS = "What was promised, by the simulator's books"


async def _run(screen: Screen) -> int:
    screen.plain(ABOUT)
    async with asyncio.timeout(PATIENCE):
        screen.title(MUSIC)
        music = await MusicStory(screen).tell()
        screen.title(ARTICLES)
        articles = await ArticlesStory(screen).tell()
    screen.title(WITNESS)
    kept = _judge(screen, "music", music_promises(music))
    kept &= _judge(screen, "articles", articles_promises(articles))
    _what_next(screen)
    return 0 if kept else 1


def _judge(screen: Screen, application: str, promises: Iterable[Promise]) -> bool:
    kept = True
    for held, sentence in promises:
        kept &= held
        screen.plain(f"{'ok ' if held else 'NOT'} {application}: {sentence}")
    return kept


def _what_next(screen: Screen) -> None:
    tidemill = _command()
    screen.plain("\nThe folder stays until the next demo. Its dashboard, by the link that this prints:\n")
    screen.plain(f"  cd {place.FOLDER} && {tidemill} up music")
    screen.plain(f"  cd {place.FOLDER} && {tidemill} up articles")
    screen.plain(
        "\nThere the songs are done: see All songs on the page Music, and those like one. For something to\n"
        "start, pause and stop, 60 sample songs in a folder of their own; press Start on the page Music:\n"
    )
    screen.plain(f"  mkdir -p {TRIED} && cd {TRIED} && {_command(Path(TRIED.name))} up music")
    screen.plain("\nWhat can go wrong with jobs: retries, one that kills its process, a pause, a cancel:\n")
    screen.plain(f"  cd {place.FOLDER} && {tidemill} demo")


def _command(within: Path = Path()) -> str:
    """How the command line of this installation is called from the demo's folder, or `within` it."""
    here = Path(sys.executable).with_name("tidemill")
    if shutil.which("tidemill") == str(here):
        return "tidemill"
    return os.path.relpath(here, within) if here.is_relative_to(Path.cwd().parent) else str(here)


if __name__ == "__main__":
    sys.exit(main())
