"""Which application or store a command is about, and what its output is for."""

from __future__ import annotations

import asyncio
import functools
import shlex
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from tidemill.app import Tidemill
from tidemill.app.stores import make_store
from tidemill.cli.application import as_set, load
from tidemill.cli.installed import offered
from tidemill.cli.output import note
from tidemill.contract.upkeep import MadeByOpening
from tidemill.errors import StoreUnavailable
from tidemill.urls import StoreUrl, holds_secrets

T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """What the common options said. `json` asks for output a program can read."""

    app: str | None = None
    url: str | None = None
    json: bool = False

    def application(self) -> Tidemill:
        if self.app and self.url:
            raise click.UsageError("give either --app or --url, not both: an application names its store")
        named = self.app or (None if self.url else as_set())
        if named:
            return load(named)
        app = Tidemill(self.url)
        if app.settings.origin("url") == "default" and not Path(app.url.path).exists():
            raise click.UsageError(
                "say which store: --app module:app, --url sqlite:///jobs.db, TIDEMILL_APP or TIDEMILL_URL; "
                f"there is no {app.url.path} here either"
            )
        return app

    def command(self, *words: str) -> str:
        """A command to type next, about the same application or store."""
        url = self.url
        if url and holds_secrets(url):
            # User, password and options are to be typed anew by whoever knows them. Options may name
            # another store of the same server: that there were some is shown.
            url = f"{StoreUrl.parse(url)}{'?***' if '?' in url else ''}"
        given = [("--app", self.app), ("--url", url)]
        return shlex.join(
            ["tidemill", *words, *(part for name, value in given if value for part in (name, value))]
        )

    def worker_command(self) -> str:
        return self.start_command("worker")

    def start_command(self, word: str) -> str:
        """The command that starts a worker or a dashboard; a store alone does not tell for which
        application."""
        named = () if not (self.app or self.url) and as_set() else (self.app or "module:app",)
        return shlex.join(["tidemill", word, *named])

    def run(self, work: Callable[[Tidemill], Coroutine[Any, Any, T]], *, app: Tidemill | None = None) -> T:
        """Run `work` with the application's store opened, and close it again. Only a store that is
        there already: looking at a mistyped one must not make it."""
        application = app or self.application()
        _require_store(application)
        return asyncio.run(_opened(application, work, declare=False))

    def run_or_empty(self, work: Callable[[Tidemill], Coroutine[Any, Any, T]], app: Tidemill) -> T:
        """The same for what code alone can answer: as long as there is no store an empty one stands in for
        it, and none is made."""
        require_outside(app)
        if not _is_yet_to_be_made(app):
            return self.run(work, app=app)
        where = f"store at {app.url}" if app.url.server else f"database {Path(app.url.path).absolute()}"
        note(f"there is no {where} yet: nothing waits and nobody works")
        empty = StoreUrl("memory")
        with app.moved(
            store=make_store(empty, app.clock, app.entropy),
            url=empty,
            clock=app.clock,
            entropy=app.entropy,
            mind_waiting=lambda _: None,
        ):
            return asyncio.run(_opened(app, work, declare=True))

    def run_and_make(
        self, work: Callable[[Tidemill], Coroutine[Any, Any, T]], app: Tidemill, *, declare: bool
    ) -> T:
        """The same for what may be the first use of a store: it is made when it is not there. Only what
        sends jobs has to `declare`: queues and pools may be set by variables that another shell has."""
        require_outside(app)
        return asyncio.run(_opened(app, work, declare=declare))


async def _opened(app: Tidemill, work: Callable[[Tidemill], Coroutine[Any, Any, T]], *, declare: bool) -> T:
    try:
        await app.client.store(declare=declare)
        return await work(app)
    finally:
        await app.close()


def with_target(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the common options; the command gets them as one `target`. What a group was given
    holds for its subcommands, so `tidemill jobs --json show ID` works too."""
    return click.option("--url", help="The store, such as sqlite:///jobs.db. Default: as set.")(
        with_application(command)
    )


def with_application(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a command that needs the code too, and not only its store."""

    @click.option(
        "--app",
        metavar="MODULE:APP",
        shell_complete=offered,
        help="The application, such as myproject.jobs:app, or its name, such as music. Default: as set.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @functools.wraps(command)
    def wrapped(*, app: str | None, as_json: bool, url: str | None = None, **options: Any) -> Any:
        ctx = click.get_current_context()
        above = ctx.obj if isinstance(ctx.obj, Target) else Target()
        ctx.obj = Target(app or above.app, url or above.url, json=as_json or above.json)
        return command(ctx.obj, **options)

    return wrapped


def require_outside(app: Tidemill) -> None:
    if not app.brings_store and app.url.scheme == "memory":
        raise click.UsageError(
            "url: memory:// is always empty here, it lives inside the program that uses it; "
            "name a sqlite:/// store"
        )


def _is_there(app: Tidemill) -> bool:
    path = Path(app.url.path)
    if app.url.server and not app.brings_store:
        return asyncio.run(_is_made(app))
    return app.brings_store or (path.exists() and path.stat().st_size > 0)


async def _is_made(app: Tidemill) -> bool:
    """What opening makes for next to nothing, such as the one key of a Redis prefix, counts as there."""
    store = make_store(app.url, app.clock, app.entropy)
    if not isinstance(store, MadeByOpening):
        return True
    try:
        return await store.is_made()
    finally:
        await store.close()


def _is_yet_to_be_made(app: Tidemill) -> bool:
    may_be_made = bool(app.url.server) or Path(app.url.path).absolute().parent.is_dir()
    return not _is_there(app) and may_be_made


def _require_store(app: Tidemill) -> None:
    require_outside(app)
    path = Path(app.url.path)
    if _is_there(app):
        return
    if app.url.server:
        raise StoreUnavailable(
            f"{app.url}: there is no store yet; check the URL and its schema; the first enqueue or worker "
            "makes it"
        )
    if path.exists():
        raise StoreUnavailable(
            f"there is no database in {path.absolute()}, it is empty; the first enqueue or worker makes it"
        )
    if not path.absolute().parent.is_dir():
        raise StoreUnavailable(
            f"there is no database {path.absolute()}, nor its folder: check the URL, or make the folder"
        )
    raise StoreUnavailable(
        f"there is no database {path.absolute()}: check the URL and the folder you are in; "
        "the first enqueue or worker makes it"
    )
