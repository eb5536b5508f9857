"""A batch task: jobs carry one item each, its handler gets a list of them in one call."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import msgspec

from tidemill.core.batching import Batching
from tidemill.core.needs import Need
from tidemill.core.numbers import is_number, is_whole
from tidemill.core.units import IMPLIED, Units
from tidemill.errors import ConfigurationError, InvalidJob
from tidemill.tasks.costs import counted, problem_with_units, units_for
from tidemill.tasks.definition import Codecs, Handler, TaskDefinition, define
from tidemill.tasks.payload import PayloadCodec, ResultCodec, resolved_hints
from tidemill.tasks.pools import PoolUse, read_uses
from tidemill.times import read_seconds

OnError = Literal["bisect", "singles", "fail"]
ITEM = "item"
"""The one member of a payload: what a handler calls its list would be a strange name for one of it."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """An item that failed on its own, in the place of its result: `Failed("not in any language we know")`.
    It is retried by the task's policy, alone of its call; with `retry=False` it fails for good."""

    reason: str
    retry: bool = True


@dataclass(frozen=True, slots=True)
class BatchRule:
    """`together` is the store's business, when jobs become a call; `on_error` the worker's, what becomes of
    a call that failed as a whole."""

    together: Batching
    on_error: OnError = "bisect"

    def check(self, needs: Sequence[Need], uses: Sequence[PoolUse]) -> None:
        """An item no call could take, and units nobody would count, are refused with the job."""
        most = self.together.max_units
        said = {unit for need in needs for unit in need.units}
        for unit in most:
            if unit not in said and unit not in IMPLIED:
                named = ", ".join(sorted(said)) or "none"
                raise InvalidJob(f"max_units: {unit}: item_cost says nothing of it, it names {named}")
        for need in needs:
            for unit, amount in need.units.items():
                if unit not in most and unit not in counted(uses):
                    raise InvalidJob(f"item_cost: nobody counts {unit}, neither the pools nor max_units")
                if amount > most.get(unit, amount):
                    raise InvalidJob(
                        f"item_cost: {amount:g} {unit} is more than max_units allows a call "
                        f"({most[unit]:g}); send it in smaller pieces"
                    )


def define_batch(
    handler: Handler,
    *,
    name: str | None = None,
    pool: Any = None,
    max_items: Any,
    max_units: Any = None,
    linger: Any = 0.0,
    on_error: Any = "bisect",
    cost: Any = None,
    item_cost: Any = None,
    **options: Any,
) -> TaskDefinition:
    """As `define`; `cost` is what a call costs whoever is in it, `item_cost` what each job adds."""
    try:
        uses = tuple(PoolUse(use.pool, _of_item("pool: by", use.key)) for use in read_uses(pool))
        for option in ("key", "unique"):
            if callable(options.get(option)):
                options[option] = _of_item(option, options[option])
        together = Batching(
            max_items=_whole("max_items", max_items),
            linger=read_seconds("linger", linger, InvalidJob),
            max_units=_amounts("max_units", max_units),
            call=_of_call(cost, uses),
        )
        if problem := together.problem() or _problem(on_error, together, uses, item_cost):
            raise InvalidJob(problem)  # noqa: TRY301 - named with the others
        added = _of_item("item_cost", item_cost) if callable(item_cost) else item_cost
    except (InvalidJob, ConfigurationError) as error:
        raise ConfigurationError(f"task {name or handler.__qualname__!r}: {error}") from None
    rule = BatchRule(together, on_error)
    return define(handler, name=name, pool=uses, codecs=_codecs, batch=rule, cost=added, **options)


def _codecs(handler: Handler, takes_context: bool) -> Codecs:
    """Those of one item, read from the annotations of the list."""
    parameters = list(inspect.signature(handler).parameters.values())[int(takes_context) :]
    if len(parameters) != 1:
        raise ConfigurationError(
            f"a batch handler takes one list of items, such as `texts: list[Text]`, has {len(parameters)} "
            "parameters"
        )
    hints = resolved_hints(handler)
    [parameter] = parameters
    item = _element(f"parameter {parameter.name}", hints.get(parameter.name))
    result = _without_failed(_element("return", hints.get("return")))

    def one(item: Any) -> Any:
        return item

    one.__annotations__ = {ITEM: item, "return": result}
    said = inspect.Parameter(ITEM, parameter.POSITIONAL_OR_KEYWORD, annotation=_inner(parameter, item))
    one.__signature__ = inspect.Signature([said])  # type: ignore[attr-defined]
    return PayloadCodec.of(one, skip_first=False), ResultCodec.of(one)


def _element(where: str, hint: Any) -> Any:
    if typing.get_origin(hint) is not list or len(get_args(hint)) != 1:
        wanted = "a list with the type of its items, such as list[Text]"
        if where == "return":
            wanted = "a list with a result for each item, such as list[Vector | Failed]"
        raise ConfigurationError(f"{where}: must be annotated as {wanted}, is {_written(hint)}")
    return get_args(hint)[0]


def _inner(parameter: inspect.Parameter, item: Any) -> Any:
    """As the code has it, where annotations are texts."""
    said = parameter.annotation
    is_plain = isinstance(said, str) and said.startswith("list[") and said.endswith("]")
    return said.removeprefix("list[").removesuffix("]") if is_plain else item


def _written(hint: Any) -> str:
    return "not annotated" if hint is None else getattr(hint, "__name__", None) or str(hint)


def _without_failed(hint: Any) -> Any:
    """What a job's result is read as: a failed one has none."""
    if hint is Failed:
        return type(None)
    if typing.get_origin(hint) not in {typing.Union, types.UnionType}:
        return hint
    kept = tuple(one for one in get_args(hint) if one is not Failed)
    return typing.Union[kept] if kept else type(None)  # noqa: UP007 - made of a tuple


def _of_item(option: str, function: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """It is called with one item, whatever its parameter is called."""
    if function is None:
        return None
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise InvalidJob(f"{option}: the function of a batch task takes one item, and nothing else") from None
    except ValueError:  # a builtin may have no signature to look at
        pass

    def of_item(item: Any) -> Any:
        return function(item)

    return of_item


def _of_call(cost: Any, uses: tuple[PoolUse, ...]) -> dict[str, Units]:
    if cost is None:
        return {}
    if not uses:
        raise InvalidJob("cost: the task has no pool to spend it in; give it one with pool=…")
    if callable(cost):
        raise InvalidJob(
            "cost: is what every call costs, and must be amounts by unit, such as {'tokens': 20}; "
            "what depends on an item is its item_cost"
        )
    costs = {use.pool.name: units_for(use.pool, cost, uses) for use in uses}
    for units in costs.values():
        if problem := problem_with_units(units, uses):
            raise InvalidJob(f"cost: {problem}")
    return {pool: units for pool, units in costs.items() if units}


def _problem(on_error: Any, together: Batching, uses: tuple[PoolUse, ...], item_cost: Any) -> str | None:
    if on_error not in get_args(OnError):
        return f"on_error: must be bisect, singles or fail, is {on_error!r}"
    if item_cost is not None and not uses:
        return "item_cost: the task has no pool to spend it in; give it one with pool=…"
    if item_cost is not None and not (isinstance(item_cost, Mapping) or callable(item_cost)):
        return (
            'item_cost: must be amounts by unit, such as {"tokens": 20}, or a function of an item that '
            f"returns them, is {item_cost!r}"
        )
    if together.max_units and item_cost is None:
        return "max_units: needs item_cost=, which says what of it each job takes"
    if isinstance(item_cost, Mapping):
        needs = [Need(use.pool.name, None, units_for(use.pool, item_cost, uses)) for use in uses]
        try:
            BatchRule(together).check(needs, uses)
        except InvalidJob as error:
            return str(error)
    return None


def _whole(field: str, value: Any) -> int:
    if not is_whole(value, 1):
        raise InvalidJob(f"{field}: must be a whole number, 1 or more, is {value!r}")
    return int(value)


def _amounts(field: str, value: Any) -> Units:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidJob(f'{field}: must be amounts by unit, such as {{"tokens": 120_000}}, is {value!r}')
    for unit, amount in value.items():
        if not isinstance(unit, str) or not is_number(amount, 0) or not amount:
            raise InvalidJob(f"{field}: {unit} must be a number above 0, is {amount!r}")
    return {unit: float(amount) for unit, amount in value.items()}
