"""Computes the units that a job needs from its task's pools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidemill.core.needs import IMPLIED, LANE_SEPARATOR, Need, Units
from tidemill.core.validation import problem_with_name
from tidemill.errors import InvalidJob
from tidemill.tasks.pools import Pool, PoolUse

if TYPE_CHECKING:
    from tidemill.tasks.definition import TaskDefinition


def compute_needs(
    task: TaskDefinition, arguments: Mapping[str, Any], cost: Mapping[Any, Any] | None = None
) -> tuple[Need, ...]:
    """Returns the units that a job needs from each pool of its task. `cost`: replaces the cost of the task,
    if given.

    Raises InvalidJob if a pool could never grant the units."""
    if cost is None:
        field = "cost" if task.batch is None else "item_cost"
        cost = _call_user_function(field, task, task.cost, arguments) if callable(task.cost) else task.cost
    needs = []
    for use in task.pools:
        units = units_for(use.pool, cost, task.pools)
        if task.batch is None and (problem := problem_with_units(units, task.pools)):
            raise InvalidJob(f"cost: {problem}")
        if problem := problem_with_call(task, use.pool, units):
            raise InvalidJob(f"pool {use.pool.name!r}: {problem}")
        needs.append(Need(use.pool.name, _compute_key(task, use, arguments), units))
    if task.batch is not None:
        task.batch.check(needs, task.pools)
    return tuple(needs)


def problem_with_call(task: TaskDefinition, pool: Pool, units: Units) -> str | None:
    """Returns why the pool could never grant a call with one job; None if it could. `units` is the cost of
    the job."""
    if task.batch is not None:
        call = task.batch.policy.call.get(pool.name, {})
        units = {**call, **{unit: amount + call.get(unit, 0.0) for unit, amount in units.items()}}
    return pool.settings.problem_with(units)


def counted_units(uses: Sequence[PoolUse]) -> frozenset[str]:
    """Returns the units that at least one limit of these pools counts."""
    return frozenset(limit.unit for use in uses for limit in use.pool.settings.limits)


def problem_with_units(units: Iterable[str], uses: Sequence[PoolUse]) -> str | None:
    """Returns a message about the first unit that no pool counts, because it is probably mistyped. None if
    all are counted."""
    known = counted_units(uses)
    for unit in units:
        if unit not in known and unit not in IMPLIED:
            pools = "pool counts" if len(uses) == 1 else "pools count"
            return f"no pool counts {unit!r}; the {pools} {', '.join(sorted(known))}"
    return None


def units_for(pool: Pool, cost: Any, uses: tuple[PoolUse, ...] = ()) -> Units:
    """Returns the units of `cost` for `pool`. A cost maps units to amounts, or pools to such mappings."""
    if cost is None:
        return {}
    if not isinstance(cost, Mapping):
        raise InvalidJob(f'cost: must be amounts by unit, such as {{"tokens": 900}}, is {cost!r}')
    units: Units = {}
    for name, value in cost.items():
        if isinstance(value, Mapping):
            _check_pool(name, uses)
            if name is pool or name == pool.name:
                units |= {unit: _amount(unit, amount) for unit, amount in value.items()}
        else:
            units.setdefault(name, _amount(name, value))
    return units


def _check_pool(name: Any, uses: tuple[PoolUse, ...]) -> None:
    known = [use.pool.name for use in uses]
    called = name.name if isinstance(name, Pool) else name
    if called not in known:
        raise InvalidJob(
            f"cost: {called!r} is not a pool of the task, which has {', '.join(known) or 'none'}"
        )


def _amount(unit: Any, amount: Any) -> float:
    if not isinstance(unit, str):
        raise InvalidJob(f"cost: a unit must be a string, is {unit!r}")
    if isinstance(amount, bool) or not isinstance(amount, int | float):
        raise InvalidJob(f"cost: {unit} must be a number, is {amount!r}")
    return float(amount)


def _compute_key(task: TaskDefinition, use: PoolUse, arguments: Mapping[str, Any]) -> str | None:
    if use.key is None:
        return None
    field = f"pool {use.pool.name!r}: by"
    key = _call_user_function(field, task, use.key, arguments)
    if not isinstance(key, str):
        raise InvalidJob(
            f"{field}: the function given to task {task.name!r} must return str, "
            f"returned {type(key).__name__}"
        )
    if problem := problem_with_name(field, key):
        raise InvalidJob(problem)
    if LANE_SEPARATOR in key:
        raise InvalidJob(f"{field}: must not hold the character U+001F")
    return key


def _call_user_function(
    field: str, task: TaskDefinition, function: Callable[..., Any], arguments: Mapping[str, Any]
) -> Any:
    """Calls a function of the user with the task's arguments and returns its value. Raises InvalidJob with
    the option (`field`) and the task if the function raises."""
    try:
        return function(**arguments)
    except Exception as error:
        raise InvalidJob(
            f"{field}: the function given to task {task.name!r} raised {type(error).__name__}: {error}"
        ) from error
