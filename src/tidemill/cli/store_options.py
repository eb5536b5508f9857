"""The common options of commands: --app and --url name the application or the store, --json and
--show-secrets change the output."""

from __future__ import annotations

import asyncio
import functools
import shlex
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tidemill.app import Tidemill
from tidemill.app.stores import make_store
from tidemill.cli.application_loader import application_setting, complete_applications, load_application
from tidemill.cli.output import note
from tidemill.contract.store import CreatableStore
from tidemill.errors import StoreUnavailable
from tidemill.store_url import StoreUrl, holds_secrets

if TYPE_CHECKING:
    from tidemill.auth.redaction import Redactor
    from tidemill.core.jobs import Job
    from tidemill.inspect.explanation import Explanation
    from tidemill.inspect.views import JobView
    from tidemill.schedules.views import ScheduleView

_SHOW_SECRETS_META = "tidemill.show_secrets"


@dataclass(frozen=True)
class Redaction:
    """Hides secret values in the jobs and schedules that a command prints. It hides nothing if the user gave
    --show-secrets."""

    show_secrets: bool = False

    def job(self, app: Tidemill, job: Job) -> Job:
        return job if self.show_secrets else self._redactor(app).redacted_job(job)

    def view(self, app: Tidemill, view: JobView) -> JobView:
        return view if self.show_secrets else self._redactor(app).view(view)

    def explanation(self, app: Tidemill, explanation: Explanation, job: Job | None) -> Explanation:
        return explanation if self.show_secrets else self._redactor(app).explanation(explanation, job)

    def schedule(self, app: Tidemill, view: ScheduleView) -> ScheduleView:
        return view if self.show_secrets else self._redactor(app).schedule(view)

    def text(self, app: Tidemill, text: str, job: Job) -> str:
        return text if self.show_secrets else app.secrets.text(text, job.task, job.payload)

    def _redactor(self, app: Tidemill) -> Redactor:
        from tidemill.auth.redaction import Redactor  # imported here: `worker` and `web` do not need it

        return Redactor(app.secrets)


def with_secrets(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator that adds --show-secrets to a command. The command receives a Redaction as `redaction`. The
    option of a group also applies to its subcommands."""

    @click.option("--show-secrets", is_flag=True, help="Print secret values as they are stored.")
    @functools.wraps(command)
    def wrapped(*args: Any, show_secrets: bool, **options: Any) -> Any:
        meta = click.get_current_context().meta
        meta[_SHOW_SECRETS_META] = show_secrets or meta.get(_SHOW_SECRETS_META, False)
        return command(*args, redaction=Redaction(meta[_SHOW_SECRETS_META]), **options)

    return wrapped


T = TypeVar("T")


@dataclass(frozen=True)
class CommandTarget:
    """The application or store that a command works on, as given by --app and --url. `json=True`: the command
    prints JSON."""

    app: str | None = None
    url: str | None = None
    json: bool = False

    def application(self) -> Tidemill:
        if self.app and self.url:
            raise click.UsageError("give either --app or --url, not both: an application names its store")
        named = self.app or (None if self.url else application_setting())
        if named:
            return load_application(named)
        app = Tidemill(self.url)
        if app.settings.origin("url") == "default" and not Path(app.url.path).exists():
            raise click.UsageError(
                "say which store: --app module:app, --url sqlite:///jobs.db, TIDEMILL_APP or TIDEMILL_URL; "
                f"there is no {app.url.path} here either"
            )
        return app

    def command(self, *words: str) -> str:
        """Returns a `tidemill` command line with `words` for the same application or store, to suggest as the
        next step. User and password of the URL are left out."""
        url = self.url
        if url and holds_secrets(url):
            # User, password and options are not printed. "?***" shows that there were options, since they
            # may select another store on the same server.
            url = f"{StoreUrl.parse(url)}{'?***' if '?' in url else ''}"
        options = [("--app", self.app), ("--url", url)]
        return shlex.join(
            ["tidemill", *words, *(part for name, value in options if value for part in (name, value))]
        )

    def worker_command(self) -> str:
        return self.start_command("worker")

    def start_command(self, word: str) -> str:
        """Returns the command line that starts a worker or a dashboard; `word` is its subcommand. If only the
        store is known, the application is the placeholder `module:app`."""
        named = () if not (self.app or self.url) and application_setting() else (self.app or "module:app",)
        return shlex.join(["tidemill", word, *named])

    def run(self, work: Callable[[Tidemill], Coroutine[Any, Any, T]], *, app: Tidemill | None = None) -> T:
        """Opens the store, runs `work` and returns its result. Raises StoreUnavailable if the store does not
        exist. `app=None`: loads the application that this target names."""
        application = app or self.application()
        _require_store(application)
        return asyncio.run(_run_opened(application, work, declare=False))

    def run_or_empty(self, work: Callable[[Tidemill], Coroutine[Any, Any, T]], app: Tidemill) -> T:
        """Like `run`, for commands that need only the application's code. If there is no store yet, `work`
        runs with an empty store in memory."""
        require_shared_store(app)
        if not _can_be_created(app):
            return self.run(work, app=app)
        where = f"store at {app.url}" if app.url.server else f"database {Path(app.url.path).absolute()}"
        note(f"there is no {where} yet: no jobs and no workers")
        empty = StoreUrl("memory")
        store = make_store(empty, app.clock, app.entropy)
        with app.use_store(
            store=store, url=empty, clock=app.clock, entropy=app.entropy, on_wait=lambda _: None
        ):
            return asyncio.run(_run_opened(app, work, declare=True))

    def run_or_create(
        self, work: Callable[[Tidemill], Coroutine[Any, Any, T]], app: Tidemill, *, declare: bool
    ) -> T:
        """Like `run`, but creates the store if there is none. `declare=True`: also writes the application's
        queues and pools to the store; only commands that enqueue do this."""
        require_shared_store(app)
        # A shell may have other settings than the workers; it must not overwrite those in the store.
        return asyncio.run(_run_opened(app, work, declare=declare))


async def _run_opened(
    app: Tidemill, work: Callable[[Tidemill], Coroutine[Any, Any, T]], *, declare: bool
) -> T:
    try:
        await app.client.store(declare=declare)
        return await work(app)
    finally:
        await app.close()


def with_target(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator that adds --app, --url and --json to a command. The command receives them as its first
    argument, a CommandTarget.

    Options of a group also apply to its subcommands, so `tidemill jobs --json show ID` works too."""
    return click.option("--url", help="The store, such as sqlite:///jobs.db. Default: the setting url.")(
        with_application(command)
    )


def with_application(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator that adds --app and --json to a command that needs the application's code. The command
    receives them as its first argument, a CommandTarget."""

    @click.option(
        "--app",
        metavar="MODULE:APP",
        shell_complete=complete_applications,
        help="The application: myproject.jobs:app, or a name such as music. Default: the setting app.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @functools.wraps(command)
    def wrapped(*, app: str | None, as_json: bool, url: str | None = None, **options: Any) -> Any:
        ctx = click.get_current_context()
        above = ctx.obj if isinstance(ctx.obj, CommandTarget) else CommandTarget()
        ctx.obj = CommandTarget(app or above.app, url or above.url, json=as_json or above.json)
        return command(ctx.obj, **options)

    return wrapped


def require_shared_store(app: Tidemill) -> None:
    if not app.has_own_store and app.url.scheme == "memory":
        raise click.UsageError(
            "url: memory:// is always empty here, it lives inside the program that uses it; "
            "name a sqlite:/// store"
        )


def _store_exists(app: Tidemill) -> bool:
    path = Path(app.url.path)
    if app.url.server and not app.has_own_store:
        return asyncio.run(_server_store_exists(app))
    return app.has_own_store or (path.exists() and path.stat().st_size > 0)


async def _server_store_exists(app: Tidemill) -> bool:
    """True if the store on the server was created. Also True for a kind of store that needs no creation, such
    as a Redis prefix."""
    store = make_store(app.url, app.clock, app.entropy)
    if not isinstance(store, CreatableStore):
        return True
    try:
        return await store.is_created()
    finally:
        await store.close()


def _can_be_created(app: Tidemill) -> bool:
    may_be_made = bool(app.url.server) or Path(app.url.path).absolute().parent.is_dir()
    return not _store_exists(app) and may_be_made


def _require_store(app: Tidemill) -> None:
    require_shared_store(app)
    path = Path(app.url.path)
    if _store_exists(app):
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
