"""Batch tasks: each job carries one item, and the handler gets a list of items in one call."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import msgspec

from tidemill.core.batching import BatchPolicy
from tidemill.core.needs import IMPLIED, Need, Units
from tidemill.core.validation import is_integer, is_number
from tidemill.errors import ConfigurationError, InvalidJob
from tidemill.tasks.costs import counted_units, problem_with_units, units_for
from tidemill.tasks.definition import Codecs, Handler, TaskDefinition, make_task_definition
from tidemill.tasks.payload import PayloadCodec, ResultCodec, resolve_hints
from tidemill.tasks.pools import PoolUse, read_pool_uses
from tidemill.times import parse_seconds

OnError = Literal["bisect", "singles", "fail"]
ITEM_FIELD = "item"
"""The only member of a payload; the handler's parameter names the list and not one item."""


class FailedItem(msgspec.Struct, frozen=True, tag="failed"):
    """The result of an item that failed although its call succeeded: `FailedItem("not in any language we
    know")`.

    The job of this item is retried alone. `retry=False`: the job fails for good."""

    reason: str
    retry: bool = True


@dataclass(frozen=True, slots=True)
class BatchRule:
    """The batch options of a task. `policy` says how the store puts jobs into one call. `on_error` says what
    the worker does when a whole call has failed."""

    policy: BatchPolicy
    on_error: OnError = "bisect"

    def check(self, needs: Sequence[Need], uses: Sequence[PoolUse]) -> None:
        """Checks the cost of one item. Raises InvalidJob in three cases:

        - the item needs more than `max_units` allows for a call
        - a unit of the item is neither in a limit of a pool nor in `max_units`
        - a unit of `max_units` is not in the cost of the item

        `needs` is the cost of the item per pool, and `uses` are the pools of the task."""
        most = self.policy.max_units
        item_units = {unit for need in needs for unit in need.units}
        for unit in most:
            if unit not in item_units and unit not in IMPLIED:
                named = ", ".join(sorted(item_units)) or "none"
                raise InvalidJob(f"max_units: {unit}: item_cost says nothing of it, it names {named}")
        for need in needs:
            for unit, amount in need.units.items():
                if unit not in most and unit not in counted_units(uses):
                    raise InvalidJob(f"item_cost: no pool counts {unit}, neither the pools nor max_units")
                if amount > most.get(unit, amount):
                    raise InvalidJob(
                        f"item_cost: {amount:g} {unit} is more than max_units allows a call "
                        f"({most[unit]:g}); send it in smaller pieces"
                    )


def make_batch_definition(
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
    """Returns the definition of a batch task. `cost` is the fixed cost of a call; each job adds
    `item_cost`."""
    try:
        uses = tuple(PoolUse(use.pool, _adapt_to_item("pool: by", use.key)) for use in read_pool_uses(pool))
        for option in ("key", "unique"):
            if callable(options.get(option)):
                options[option] = _adapt_to_item(option, options[option])
        policy = BatchPolicy(
            max_items=_read_whole_number("max_items", max_items),
            linger=parse_seconds("linger", linger, InvalidJob),
            max_units=_read_amounts("max_units", max_units),
            call=_read_call_cost(cost, uses),
        )
        if problem := policy.problem() or _find_problem(on_error, policy, uses, item_cost):
            raise InvalidJob(problem)  # noqa: TRY301 - the task's name is added below
        added = _adapt_to_item("item_cost", item_cost) if callable(item_cost) else item_cost
    except (InvalidJob, ConfigurationError) as error:
        raise ConfigurationError(f"task {name or handler.__qualname__!r}: {error}") from None
    rule = BatchRule(policy, on_error)
    return make_task_definition(
        handler, name=name, pool=uses, codecs=_item_codecs, batch=rule, cost=added, **options
    )


def _item_codecs(handler: Handler, takes_context: bool) -> Codecs:
    """Returns the payload and result codecs for one item. The types come from the annotations of the
    handler's list and return value."""
    parameters = list(inspect.signature(handler).parameters.values())[int(takes_context) :]
    if len(parameters) != 1:
        raise ConfigurationError(
            f"a batch handler takes one list of items, such as `texts: list[Text]`, has {len(parameters)} "
            "parameters"
        )
    hints = resolve_hints(handler)
    [parameter] = parameters
    item = _list_element(f"parameter {parameter.name}", hints.get(parameter.name))
    result = _drop_failed_item(_list_element("return", hints.get("return")))

    def stub(item: Any) -> Any:
        return item

    stub.__annotations__ = {ITEM_FIELD: item, "return": result}
    item_parameter = inspect.Parameter(
        ITEM_FIELD, parameter.POSITIONAL_OR_KEYWORD, annotation=_inner_annotation(parameter, item)
    )
    stub.__signature__ = inspect.Signature([item_parameter])  # type: ignore[attr-defined]
    return PayloadCodec.of(stub, skip_first=False), ResultCodec.of(stub)


def _list_element(where: str, hint: Any) -> Any:
    if typing.get_origin(hint) is not list or len(get_args(hint)) != 1:
        expected = "a list with the type of its items, such as list[Text]"
        if where == "return":
            expected = "a list with a result for each item, such as list[Vector | FailedItem]"
        raise ConfigurationError(f"{where}: must be annotated as {expected}, is {_format_hint(hint)}")
    return get_args(hint)[0]


def _inner_annotation(parameter: inspect.Parameter, item: Any) -> Any:
    """Returns the annotation of one item of a list parameter: `Text` for the string `"list[Text]"`, else
    `item`."""
    annotation = parameter.annotation
    is_plain = isinstance(annotation, str) and annotation.startswith("list[") and annotation.endswith("]")
    return annotation.removeprefix("list[").removesuffix("]") if is_plain else item


def _format_hint(hint: Any) -> str:
    return "not annotated" if hint is None else getattr(hint, "__name__", None) or str(hint)


def _drop_failed_item(hint: Any) -> Any:
    """Removes FailedItem from the result type: a failed item has no result."""
    if hint is FailedItem:
        return type(None)
    if typing.get_origin(hint) not in {typing.Union, types.UnionType}:
        return hint
    members = tuple(member for member in get_args(hint) if member is not FailedItem)
    return typing.Union[members] if members else type(None)  # noqa: UP007 - built from a tuple


def _adapt_to_item(option: str, function: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """Returns a function that passes one item to `function`, by position. None if `function` is None."""
    if function is None:
        return None
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise InvalidJob(f"{option}: the function of a batch task takes one item, and nothing else") from None
    except ValueError:  # a builtin may have no signature
        pass

    def of_item(item: Any) -> Any:
        return function(item)

    return of_item


def _read_call_cost(cost: Any, uses: tuple[PoolUse, ...]) -> dict[str, Units]:
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


def _find_problem(
    on_error: Any, policy: BatchPolicy, uses: tuple[PoolUse, ...], item_cost: Any
) -> str | None:
    if on_error not in get_args(OnError):
        return f"on_error: must be bisect, singles or fail, is {on_error!r}"
    if item_cost is not None and not uses:
        return "item_cost: the task has no pool to spend it in; give it one with pool=…"
    if item_cost is not None and not (isinstance(item_cost, Mapping) or callable(item_cost)):
        return (
            'item_cost: must be amounts by unit, such as {"tokens": 20}, or a function of an item that '
            f"returns them, is {item_cost!r}"
        )
    if policy.max_units and item_cost is None:
        return "max_units: needs item_cost=, which says what of it each job takes"
    if isinstance(item_cost, Mapping):
        needs = [Need(use.pool.name, None, units_for(use.pool, item_cost, uses)) for use in uses]
        try:
            BatchRule(policy).check(needs, uses)
        except InvalidJob as error:
            return str(error)
    return None


def _read_whole_number(field: str, value: Any) -> int:
    if not is_integer(value, 1):
        raise InvalidJob(f"{field}: must be a whole number, 1 or more, is {value!r}")
    return int(value)


def _read_amounts(field: str, value: Any) -> Units:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidJob(f'{field}: must be amounts by unit, such as {{"tokens": 120_000}}, is {value!r}')
    for unit, amount in value.items():
        if not isinstance(unit, str) or not is_number(amount, 0) or not amount:
            raise InvalidJob(f"{field}: {unit} must be a number above 0, is {amount!r}")
    return {unit: float(amount) for unit, amount in value.items()}
