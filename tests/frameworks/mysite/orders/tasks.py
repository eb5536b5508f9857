"""Tasks of Django's own kind."""

from __future__ import annotations

from tests.frameworks.mysite.api import TaskContext, task
from tests.frameworks.mysite.orders.models import Order


class Declined(Exception):
    pass


@task
def add(a: int, b: int = 0) -> int:
    return a + b


@task(queue_name="mail", priority=10)
async def send(to: str) -> str:
    return f"sent to {to}"


@task
def decline(order: int) -> None:
    raise Declined(f"order {order}")


@task(takes_context=True)
def which(context: TaskContext, word: str) -> list[object]:
    return [context.task_result.id, context.attempt, word]


@task(backend="retrying", takes_context=True)
def second_time(context: TaskContext) -> int:
    if context.attempt == 1:
        raise Declined("the first time")
    return context.attempt


@task
def pay(order: int) -> int:
    return Order.objects.filter(pk=order).update(paid=True)


def not_a_task() -> None:
    raise AssertionError("this must never run")
