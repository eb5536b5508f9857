from __future__ import annotations

import threading

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections

from tests.frameworks.mysite.orders.models import Order
from tidemill import Tidemill

app = Tidemill(f"sqlite:///{settings.HOME}/jobs.db")

seen: list[tuple[int, object]] = []


@app.task(name="pay")
def pay(order: int) -> bool:
    seen.append((threading.get_ident(), connections[DEFAULT_DB_ALIAS]))
    return bool(Order.objects.filter(pk=order).update(paid=True))


@app.task(name="apay")
async def apay(order: int) -> bool:
    return bool(await Order.objects.filter(pk=order).aupdate(paid=True))
