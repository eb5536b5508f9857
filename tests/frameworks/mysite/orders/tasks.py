"""Tasks declared with Django's task API."""

from __future__ import annotations

import asyncio

from tests.frameworks.mysite.api import TaskContext, task
from tests.frameworks.mysite.orders.models import Order
from tidemill import GiveUp


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


@task(backend="retrying")
def missing() -> None:
    raise KeyError("order 7")


@task(backend="picky")
def unreachable() -> None:
    raise ConnectionError("the bank does not answer") from TimeoutError("no route")


@task(backend="picky")
def mistaken() -> None:
    raise ZeroDivisionError


@task(backend="picky")
async def endless() -> None:
    await asyncio.sleep(3600)


@task
def pair() -> tuple[int, bytes]:
    return 1, b"two"


@task
def unjson() -> object:
    return object()


@task(backend="retrying")
def hopeless() -> None:
    raise GiveUp("never")


@task
def leave() -> None:
    raise SystemExit(3)


@task(backend="picky")
def pay_picky(order: int) -> int:
    return Order.objects.filter(pk=order).update(paid=True)


@task
def pay(order: int) -> int:
    return Order.objects.filter(pk=order).update(paid=True)


def not_a_task() -> None:
    raise AssertionError("this must never run")
