"""A store with some of everything: every page has something to show, and every route somewhere to lead.

How a field is written is said by a function of its name: the same world can be somebody's who means harm.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any
from urllib.parse import quote

from tidemill import Context, Limit, Retry, Task, Tidemill
from tidemill.core.claims import ClaimRequest, Heartbeat, Held, Share
from tidemill.seam.roles import Role
from tidemill.telling.webhook import NewWebhook

Named = Callable[[str], str]

HOUR = 3600.0
FIELDS = (
    *("queue", "asking", "works", "fails", "asks", "key", "tag", "trace", "argument"),
    *("log", "note", "checkpoint", "result", "error", "reason", "by", "flow", "flow-key", "step", "pool"),
    *("schedule", "worker", "host", "setting", "says", "value", "user"),
)
"""What is named in a world. A page that shows it is there for each of them."""


class World:
    """`places` are what parameters of paths may stand for, once it has begun; one that is not there is one
    that a world has to learn of. `ready`, `done` and `failed` are jobs."""

    def __init__(self, url: str, named: Named = str) -> None:
        self.app = app = Tidemill(url)
        self._named = named
        self.places: Mapping[str, tuple[str, ...]] = {}
        self.ready = self.done = self.failed = ""
        app.queue(named("queue"))
        pool = app.pool(named("pool"), Limit.requests(5, per="hour"))
        self.works = app.task(name=named("works"), queue=named("queue"))(self._works)
        self.fails = app.task(name=named("fails"), queue=named("queue"), retry=Retry(attempts=1))(self._fails)
        app.web.setting(named("setting"), str, says=named("says"), read=self._read, write=self._write)
        self.setting = named("value")
        self.asks = app.task(name=named("asks"), queue=named("asking"), pool=pool)(self._asks)

    async def begin(self) -> None:
        """Jobs of every state but running, and whatever else there may be."""
        self.done = (await self._job().enqueue({"name": self._named("argument")})).id
        self.failed = (await self.fails.using(key=self._named("key"), tags=[self._named("tag")]).enqueue()).id
        flow = await self._flow()
        await self.app.worker(until_idle=True, concurrency=2).run()
        sent = {"name": self._named("argument"), "password": "open sesame"}
        self.ready = (await self._job().enqueue(sent)).id
        await self._job(delay=HOUR).enqueue({"name": "later"})
        await self._steer()
        token = await self.app.access.tokens.create(self._named("user"), Role.VIEWER)
        self.places = {
            "queue": (self._named("queue"), self._named("asking")),
            "job": (self.ready, self.done, self.failed),
            "flow": (flow,),
            "pool": (self._named("pool"),),
            "schedule": (self._named("schedule"),),
            "setting": (self._named("setting"),),
            "webhook": (self._named("webhook"),),
            "token": (token.token.id,),
            "secret": ("of-no-link",),
        }

    async def run(self) -> str:
        """Somebody runs a job from now on, and says so: its id."""
        job = await self._job(priority=0).enqueue({"name": self._named("argument")})
        shares = (Share(self._named("queue"), 1),)
        request = ClaimRequest(worker=self._named("worker"), number=1, shares=shares, limit=1, lease=HOUR)
        [claimed] = (await self.app.store.claim(request)).jobs
        held = Held(
            job=claimed.id, fence=claimed.fence, claim=claimed.claim, progress=0.5, note=self._named("note")
        )
        await self._beat(held)
        return job.id

    async def token(self, role: Role) -> dict[str, str]:
        """The header by which somebody of that role comes in."""
        issued = await self.app.access.tokens.create(self._named("user"), role)
        return {"authorization": f"Bearer {issued.secret}"}

    def paths(self, pattern: str) -> list[str]:
        """Where a route leads to something: the places of its parameters, each as it is written in a path."""
        names = re.findall(r"\{(\w+)", pattern)
        plain = pattern.replace(":path}", "}")
        return [
            plain.format(**{name: quote(place, safe="") for name, place in zip(names, places, strict=True)})
            for places in product(*(self.places[name] for name in names))
        ]

    def _job(self, **options: Any) -> Task[[dict[str, str]], str]:
        marks = {"key": self._named("key"), "tags": [self._named("tag")], "trace": self._named("trace")}
        return self.works.using(**{**marks, **options})

    async def _flow(self) -> str:
        flow = self.app.flow(self._named("flow"), key=self._named("flow-key"))
        first = flow.add(self.works, what={"name": "first"}).named(self._named("step"))
        flow.add(self.works, what={"name": "second"}).after(first)
        return (await flow.enqueue()).id

    async def _steer(self) -> None:
        by, reason, inspect = self._named("by"), self._named("reason"), self.app.inspect
        cancelled = await self._job().enqueue({"name": "cancelled"})
        await inspect.cancel(cancelled.id, reason=reason)
        await self.asks.enqueue("why?")
        await inspect.override(self._named("queue"), by=by, reason=reason, weight=7)
        await inspect.pause(self._named("asking"), reason=reason)
        await inspect.override_pool(self._named("pool"), {"requests per hour": 4}, by=by, reason=reason)
        await inspect.close_pool(self._named("pool"), by=by, reason=reason)
        await self.app.schedules.upsert(self._named("schedule"), self.works.job({}), every=HOUR)
        address = "https://hooks.example/told"
        await self.app.webhooks.add(NewWebhook(name=self._named("webhook"), url=address), by=by)
        await self._beat()

    async def _beat(self, *held: Held) -> None:
        beat = Heartbeat(
            worker=self._named("worker"),
            received=len(held),
            lease=HOUR,
            held=held,
            host=self._named("host"),
            queues=(self._named("queue"),),
            concurrency=4,
        )
        await self.app.store.extend(beat)

    async def _read(self) -> str:
        return self.setting

    async def _write(self, value: str) -> None:
        self.setting = value

    async def _works(self, ctx: Context, what: dict[str, str]) -> str:
        ctx.log(self._named("log"))
        await ctx.progress(0.5, self._named("note"))
        return await ctx.step(self._named("checkpoint"), self._written)

    async def _written(self) -> str:
        return self._named("result")

    async def _fails(self) -> None:
        raise LookupError(self._named("error"))

    async def _asks(self, question: str) -> str:
        return question
