"""Pools as an application declares them, and the functions of the application that classify provider
responses."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypedDict, TypeVar

from tidemill.core.calendars import TimeOfDay
from tidemill.core.feedback import Refusal
from tidemill.core.limits import Limit
from tidemill.core.needs import LANE_SEPARATOR
from tidemill.core.pools import PoolSettings
from tidemill.core.validation import problem_with_name, refuse_unknown_options
from tidemill.core.windows import Guards
from tidemill.errors import ConfigurationError

Classification = Refusal | Literal[False] | None
Classifier = Callable[[Any], Classification]
"""Classifies an exception or response. A `Refusal` says what it means. False: no refusal, but a failure of
the job. None: unknown here, so the next classifier is called."""


class Classifiers:
    """The functions of an application that decide whether a provider's response is a refusal. A pool's own
    function runs before the functions for all pools."""

    def __init__(self) -> None:
        self._of_pools: dict[str, Classifier] = {}
        self._of_all: list[Classifier] = []

    def add(self, classify: Classifier, pool: str | None = None) -> None:
        field = "classify" if pool is None else f"pool {pool!r}: classify"
        if not callable(classify):
            raise ConfigurationError(
                f"{field}: must be a function of an exception or response, is {classify!r}"
            )
        if inspect.iscoroutinefunction(classify):
            raise ConfigurationError(f"{field}: must be a plain function, not async: it only looks")
        if pool is None:
            self._of_all.append(classify)
        else:
            self._of_pools[pool] = classify

    def of(self, pool: str) -> tuple[Classifier, ...]:
        own = self._of_pools.get(pool)
        return (*((own,) if own is not None else ()), *self._of_all)


ClientT = TypeVar("ClientT")
Cost = (
    Mapping[str, float]
    | Mapping[str, Mapping[str, float]]
    | Mapping["Pool", Mapping[str, float]]
    | Mapping["Pool | str", Mapping[str, float]]
)
"""Amounts by unit, for all pools of a task or per pool."""


class PoolOptions(TypedDict, total=False):
    """The keyword options of `app.pool(…)`.

    - `keyed`: every key has its own limits; see `Pool.by`.
    - `reserved_share`: the share of every limit that only urgent jobs may use.
    - `urgent`: a job is urgent if its priority is at most this number.
    - `jitter`: how many seconds after its claim a call may reach the provider. The handler must start in the
      first half of this time; otherwise the worker gives the job back to the store.
    - `midnight`: how many seconds earlier or later than ours the provider's calendar windows may begin.
    - `resumes`: the time of day at which the provider resets a daily quota, if this is not the start of the
      pool's calendar window.
    - `probe_every`: seconds between probes of a pool that would otherwise stay closed until a person opens
      it.
    - `classify`: a function of an exception or response of this provider. It returns a `Refusal`, False if it
      is no refusal, or None if unknown. It runs before the built-in adapters."""

    keyed: bool
    reserved_share: float
    urgent: int
    jitter: float
    midnight: float
    resumes: TimeOfDay | None
    probe_every: float | None
    classify: Classifier


class Pool:
    """A provider's quota, declared by `app.pool`. Pass it to tasks: `@app.task(pool=gemini)`."""

    __slots__ = ("classifiers", "name", "settings")

    def __init__(self, name: str, settings: PoolSettings, classifiers: Classifiers | None = None) -> None:
        self.name, self.settings, self.classifiers = name, settings, classifiers

    def __repr__(self) -> str:
        return f"<Pool {self.name}: {', '.join(_format_limit(limit) for limit in self.settings.limits)}>"

    def watch(self, client: ClientT) -> ClientT:
        """Adds hooks to a client of openai, anthropic, google-genai, httpx, httpx2, aiohttp or requests, and
        returns the same client: `client = gemini.watch(genai.Client())`.

        The pool then sees every request that the client sends inside a handler: its time, status, rate-limit
        headers and usage. Streams and the client's own retries are included. You do not need `ctx.used`."""
        from tidemill.hooks import watch

        return watch(self, client)

    def by(self, key: Callable[..., str]) -> PoolUse:
        """Returns this keyed pool for the option `pool` of a task. `key` computes the pool key from the
        task's arguments: `pool=site.by(lambda feed: feed.host)`."""
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
    """A pool as one task uses it. `key` computes the pool key from the task's arguments; None if the pool is
    not keyed."""

    pool: Pool
    key: Callable[..., str] | None = None


def classifiers_of(uses: tuple[PoolUse, ...]) -> Classifiers | None:
    """Returns the classifiers of the application that declared the pools; None if `uses` is empty."""
    return uses[0].pool.classifiers if uses else None


def declare_pool(
    name: str, limits: tuple[Limit, ...], options: Mapping[str, Any], classifiers: Classifiers | None = None
) -> Pool:
    """Returns a new pool. Raises ConfigurationError if the name, a limit or an option is invalid."""
    refuse_unknown_options(options, PoolOptions.__annotations__, f"pool {name!r}")
    if not isinstance(name, str):
        raise ConfigurationError(f"pool: the name must be a string, is {name!r}")
    if (problem := problem_with_name("pool", name)) or LANE_SEPARATOR in name:
        raise ConfigurationError(problem or "pool: must not hold the character U+001F")
    for limit in limits:
        if not isinstance(limit, Limit):
            raise ConfigurationError(
                f"pool {name!r}: limits: must be such as Limit.requests(10, per='minute'), one is {limit!r}"
            )
    for option, expected in _OPTION_TYPES.items():
        if option in options and not _is_type(options[option], expected):
            raise ConfigurationError(
                f"pool {name!r}: {option}: must be {expected[-1]}, is {options[option]!r}"
            )
    plain = dict(options)
    classify = plain.pop("classify", None)
    guards = Guards(**{name: plain.pop(name) for name in ("jitter", "midnight") if name in plain})
    settings = PoolSettings(limits=limits, guards=guards, **plain)
    if problem := settings.problem():
        raise ConfigurationError(f"pool {name!r}: {problem}")
    if classify is not None and classifiers is not None:
        classifiers.add(classify, name)
    return Pool(name, settings, classifiers)


def read_pool_uses(value: Any) -> tuple[PoolUse, ...]:
    """Returns the pools of a task, read from its option `pool`: a pool, the result of `Pool.by`, or a list of
    these."""
    if value is None:
        return ()
    # A PoolUse is a tuple itself.
    listed = value if isinstance(value, list | tuple) and not isinstance(value, PoolUse) else [value]
    uses = tuple(_read_pool_use(entry) for entry in listed)
    names = [use.pool.name for use in uses]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"pool: {name!r} is given twice; a job needs a pool once")
    return uses


def _read_pool_use(value: Any) -> PoolUse:
    if isinstance(value, PoolUse):
        return value
    if not isinstance(value, Pool):
        raise ConfigurationError(f"pool: must be what app.pool(…) returned, or a list of such, is {value!r}")
    if value.settings.keyed:
        raise ConfigurationError(
            f"pool: {value.name!r} is keyed; say which of its windows a job needs: "
            f"pool={value.name}.by(lambda …: …)"
        )
    return PoolUse(value)


def _format_limit(limit: Limit) -> str:
    return f"{limit.amount:g} {limit.name}"


_OPTION_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "keyed": ((bool,), "True or False"),
    "reserved_share": ((int, float), "a share from 0 to 1"),
    "urgent": ((int,), "a priority"),
    "jitter": ((int, float), "a number of seconds"),
    "midnight": ((int, float), "a number of seconds"),
    "resumes": ((TimeOfDay, type(None)), "a TimeOfDay, such as TimeOfDay(16, 30, 'Asia/Shanghai')"),
    "probe_every": ((int, float, type(None)), "a number of seconds"),
}


def _is_type(value: Any, expected: tuple[tuple[type, ...], str]) -> bool:
    """True if the value has one of the types in `expected`, a pair of types and description. A bool does not
    count as an int."""
    kinds, _ = expected
    return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
