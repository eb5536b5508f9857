"""A pool as a program writes it: declared once, given to tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypedDict, TypeVar

from tidemill.core.daytime import TimeOfDay
from tidemill.core.limits import Limit
from tidemill.core.names import problem_with_name, refuse_unknown
from tidemill.core.needs import SEPARATOR
from tidemill.core.pools import PoolSettings
from tidemill.core.windows import Guards
from tidemill.errors import ConfigurationError
from tidemill.tasks.classifiers import Classifiers, Classify

C = TypeVar("C")
Cost = (
    Mapping[str, float]
    | Mapping[str, Mapping[str, float]]
    | Mapping["Pool", Mapping[str, float]]
    | Mapping["Pool | str", Mapping[str, float]]
)
"""Units by their names, for all pools of a task or for each of them."""


class PoolOptions(TypedDict, total=False):
    """keyed: every key has limits of its own; see `Pool.by`.
    held_back: the share of every limit that only priorities up to `urgent` may use.
    jitter: how many seconds after its claim a call may reach the provider. A handler begins in the first half
    of them, or its job goes back; the second half is for what it does until the provider counts the call.
    midnight: how many seconds the provider's calendar may be from ours.
    resumes: when a day's quota is back, if not at the turn of the pool's own calendar.
    probe_every: seconds between single calls that try a pool only a person would reopen.
    classify: what an exception or response of this provider means, asked before the built-in adapters: a
    `Refusal`, False for none, None when it does not know."""

    keyed: bool
    held_back: float
    urgent: int
    jitter: float
    midnight: float
    resumes: TimeOfDay | None
    probe_every: float | None
    classify: Classify


class Pool:
    """What a provider meters, as `app.pool` declares it. Give it to tasks: `@app.task(pool=gemini)`."""

    __slots__ = ("classifiers", "name", "settings")

    def __init__(self, name: str, settings: PoolSettings, classifiers: Classifiers | None = None) -> None:
        self.name, self.settings, self.classifiers = name, settings, classifiers

    def __repr__(self) -> str:
        return f"<Pool {self.name}: {', '.join(_said(limit) for limit in self.settings.limits)}>"

    def watch(self, client: C) -> C:
        """Add hooks to a client of openai, anthropic, google-genai, httpx, httpx2, aiohttp or requests, and
        return the same client: `client = gemini.watch(genai.Client())`.

        The pool then sees every request that the client sends inside a handler: when it leaves, its status,
        its rate-limit headers and its usage, also of streams and of the client's own retries. You need no
        `ctx.used`. Outside of a handler the hooks do nothing."""
        from tidemill.hooks import watch

        return watch(self, client)

    def by(self, key: Callable[..., str]) -> PoolUse:
        """Which of a keyed pool's windows a job needs, computed from the task's arguments:
        `pool=site.by(lambda feed: feed.host)`."""
        if not self.settings.keyed:
            raise ConfigurationError(
                f"pool {self.name!r}: by: the pool is not keyed; declare it with keyed=True, "
                f"or give the task pool={self.name} itself"
            )
        if not callable(key):
            raise ConfigurationError(
                f"pool {self.name!r}: by: must be a function of the task's arguments, is {key!r}"
            )
        return PoolUse(self, key)


class PoolUse(NamedTuple):
    """A pool as one task needs it."""

    pool: Pool
    key: Callable[..., str] | None = None


def classifiers_of(uses: tuple[PoolUse, ...]) -> Classifiers | None:
    """Those of the application whose pools a task uses."""
    return uses[0].pool.classifiers if uses else None


def declared_pool(
    name: str, limits: tuple[Limit, ...], options: Mapping[str, Any], classifiers: Classifiers | None = None
) -> Pool:
    """A pool, or a ConfigurationError that names it and the option."""
    refuse_unknown(options, PoolOptions.__annotations__, f"pool {name!r}")
    if not isinstance(name, str):
        raise ConfigurationError(f"pool: the name must be a string, is {name!r}")
    if (problem := problem_with_name("pool", name)) or SEPARATOR in name:
        raise ConfigurationError(problem or "pool: must not hold the character U+001F")
    for limit in limits:
        if not isinstance(limit, Limit):
            raise ConfigurationError(
                f"pool {name!r}: limits: must be such as Limit.requests(10, per='minute'), one is {limit!r}"
            )
    for option, wanted in _KINDS.items():
        if option in options and not _is(options[option], wanted):
            raise ConfigurationError(f"pool {name!r}: {option}: must be {wanted[-1]}, is {options[option]!r}")
    plain = dict(options)
    classify = plain.pop("classify", None)
    guards = Guards(**{name: plain.pop(name) for name in ("jitter", "midnight") if name in plain})
    settings = PoolSettings(limits=limits, guards=guards, **plain)
    if problem := settings.problem():
        raise ConfigurationError(f"pool {name!r}: {problem}")
    if classify is not None and classifiers is not None:
        classifiers.add(classify, name)
    return Pool(name, settings, classifiers)


def read_uses(given: Any) -> tuple[PoolUse, ...]:
    """What `pool=` of a task says: a pool, a keyed one with its key, or a list of these. The first is
    the provider the task calls."""
    if given is None:
        return ()
    # A use is a tuple itself.
    listed = given if isinstance(given, list | tuple) and not isinstance(given, PoolUse) else [given]
    uses = tuple(_read_use(one) for one in listed)
    names = [use.pool.name for use in uses]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"pool: {name!r} is given twice; a job needs a pool once")
    return uses


def _read_use(given: Any) -> PoolUse:
    if isinstance(given, PoolUse):
        return given
    if not isinstance(given, Pool):
        raise ConfigurationError(f"pool: must be what app.pool(…) returned, or a list of such, is {given!r}")
    if given.settings.keyed:
        raise ConfigurationError(
            f"pool: {given.name!r} is keyed; say which of its windows a job needs: "
            f"pool={given.name}.by(lambda …: …)"
        )
    return PoolUse(given)


def _said(limit: Limit) -> str:
    return f"{limit.amount:g} {limit.name}"


_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "keyed": ((bool,), "True or False"),
    "held_back": ((int, float), "a share from 0 to 1"),
    "urgent": ((int,), "a priority"),
    "jitter": ((int, float), "a number of seconds"),
    "midnight": ((int, float), "a number of seconds"),
    "resumes": ((TimeOfDay, type(None)), "a TimeOfDay, such as TimeOfDay(16, 30, 'Asia/Shanghai')"),
    "probe_every": ((int, float, type(None)), "a number of seconds"),
}


def _is(value: Any, wanted: tuple[tuple[type, ...], str]) -> bool:
    """True is an int to Python, and never what was meant."""
    kinds, _ = wanted
    return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
