"""Which application or store a command is about, and what its output is for."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from tidemill.app import Tidemill
from tidemill.cli.application import load
from tidemill.errors import StoreUnavailable

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
        if self.app:
            return load(self.app)
        app = Tidemill(self.url)
        if app.settings.origin("url") == "default" and not Path(app.url.path).exists():
            raise click.UsageError(
                "say which store: --app module:app, --url sqlite:///jobs.db, or TIDEMILL_URL; "
                f"there is no {app.url.path} here either"
            )
        return app

    def run(self, work: Callable[[Tidemill], Coroutine[Any, Any, T]], *, app: Tidemill | None = None) -> T:
        """Run `work` with the application's store opened, and close it again. Only a store that is
        there already: looking at a mistyped one must not make it."""
        application = app or self.application()
        _require_store(application)
        return asyncio.run(_opened(application, work, declare=False))

    def run_and_make(self, work: Callable[[Tidemill], Coroutine[Any, Any, T]], app: Tidemill) -> T:
        """The same for what may be the first use of a store: it is made when it is not there."""
        _require_outside(app)
        return asyncio.run(_opened(app, work, declare=True))


async def _opened(app: Tidemill, work: Callable[[Tidemill], Coroutine[Any, Any, T]], *, declare: bool) -> T:
    try:
        await app.client.store(declare=declare)
        return await work(app)
    finally:
        await app.close()


def with_target(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the common options; the command gets them as one `target`. What a group was given
    holds for its subcommands, so `tidemill jobs --json show ID` works too."""

    @click.option("--app", metavar="MODULE:APP", help="The application, such as myproject.jobs:app.")
    @click.option("--url", help="The store, such as sqlite:///jobs.db. Default: as set.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @functools.wraps(command)
    def wrapped(*, app: str | None, url: str | None, as_json: bool, **options: Any) -> Any:
        ctx = click.get_current_context()
        above = ctx.obj if isinstance(ctx.obj, Target) else Target()
        ctx.obj = Target(app or above.app, url or above.url, json=as_json or above.json)
        return command(ctx.obj, **options)

    return wrapped


def _require_outside(app: Tidemill) -> None:
    if not app.brings_store and app.url.scheme == "memory":
        raise click.UsageError(
            "url: memory:// is always empty here, it lives inside the program that uses it; "
            "name a sqlite:/// store"
        )


def _require_store(app: Tidemill) -> None:
    _require_outside(app)
    if not app.brings_store and not Path(app.url.path).exists():
        raise StoreUnavailable(
            f"there is no database {Path(app.url.path).absolute()}: check the URL and the folder you are in; "
            "the first enqueue or worker makes it"
        )
