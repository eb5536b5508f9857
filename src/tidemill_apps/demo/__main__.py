"""Runs the demo. Exit code 0 if every check passed, 1 otherwise."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import structlog
from rich.console import Console

from tidemill import TidemillError
from tidemill_apps.demo import environment
from tidemill_apps.demo.articles import ArticlesDemo
from tidemill_apps.demo.environment import MINUTE_SECONDS
from tidemill_apps.demo.music import MusicDemo
from tidemill_apps.demo.screen import DemoScreen
from tidemill_apps.demo.summary import Check, check_articles, check_music

ReportCallback = Callable[[dict[str, object]], None]

DEMO_TIMEOUT_SECONDS = 55.0
EXIT_INTERRUPTED = 130


def main(report: ReportCallback | None = None) -> int:
    """Runs the demo and returns the exit code: 0 if every check passed, 130 after Ctrl-C, otherwise 1.
    `report` is called with the results, and all other output then goes to stderr."""
    # The bars own the screen and show what the worker would log.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        environment.enter_demo_folder()
        return asyncio.run(_run(DemoScreen(Console(stderr=report is not None)), report))
    except TimeoutError:
        print(f"the demo did not come to its end within {DEMO_TIMEOUT_SECONDS:g} s", file=sys.stderr)  # noqa: T201 - a command
    except (TidemillError, OSError) as error:
        print(f"the demo could not run in {Path.cwd()}: {error}", file=sys.stderr)  # noqa: T201 - a command
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 1


INTRODUCTION = f"""\
Two applications, on SQLite files in the folder {environment.DEMO_FOLDER}. No provider is called or paid:
a SIMULATOR of Gemini runs on this machine, and its minute takes {MINUTE_SECONDS:g} seconds here."""
MUSIC_TITLE = (
    "Music: songs described and given vectors, 5 requests a minute, and a day's quota that does not last"
)
ARTICLES_TITLE = "Articles: a blog embedded while it is written, edited and hidden"
TRY_FOLDER = environment.DEMO_FOLDER / "try"
CHECKS_TITLE = "What was promised, by the simulator's books"


async def _run(screen: DemoScreen, report: ReportCallback | None) -> int:
    screen.print(INTRODUCTION)
    async with asyncio.timeout(DEMO_TIMEOUT_SECONDS):
        screen.title(MUSIC_TITLE)
        music = await MusicDemo(screen).run()
        screen.title(ARTICLES_TITLE)
        articles = await ArticlesDemo(screen).run()
    return print_summary(screen, {"music": check_music(music), "articles": check_articles(articles)}, report)


def print_summary(
    screen: DemoScreen, checks: Mapping[str, Iterable[Check]], report: ReportCallback | None
) -> int:
    """Prints the checks of each application and the commands to try next. If `report` is given, calls it with
    these results instead. Returns the exit code: 0 if every check passed, else 1."""
    results = [(name, held, sentence) for name, found in checks.items() for held, sentence in found]
    kept = all(held for _, held, _ in results)
    if report is not None:
        promises = [{"application": name, "kept": held, "says": sentence} for name, held, sentence in results]
        report({"kept": kept, "promises": promises, "next": [*dashboard_commands(), try_command()]})
        return 0 if kept else 1
    screen.title(CHECKS_TITLE)
    for name, held, sentence in results:
        screen.print(f"{'ok ' if held else 'NOT'} {name}: {sentence}")
    screen.print("\nThe folder stays until the next demo. Its dashboard, by the link that this prints:\n")
    for command in dashboard_commands():
        screen.print(f"  {command}")
    screen.print(
        "\nThere the songs are done: see All songs on the page Music, and those like one. For something to\n"
        "start, pause and stop, 60 sample songs in a folder of their own; press Start on the page Music:\n"
    )
    screen.print(f"  {try_command()}")
    return 0 if kept else 1


def dashboard_commands() -> list[str]:
    enter = f"cd {environment.DEMO_FOLDER} && {_tidemill_command()}"
    return [f"{enter} up music", f"{enter} up articles"]


def try_command() -> str:
    tidemill = _tidemill_command(Path(TRY_FOLDER.name))
    return f"mkdir -p {TRY_FOLDER} && cd {TRY_FOLDER} && {tidemill} up music"


def _tidemill_command(within: Path = Path()) -> str:
    """Returns the shell command that starts the `tidemill` of this installation. A relative path in it is
    relative to the demo's folder, or to its subfolder `within`."""
    here = Path(sys.executable).with_name("tidemill")
    if shutil.which("tidemill") == str(here):
        return "tidemill"
    return os.path.relpath(here, within) if here.is_relative_to(Path.cwd().parent) else str(here)


if __name__ == "__main__":
    sys.exit(main())
