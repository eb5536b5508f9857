"""A store with one of everything, so that every page has content and every route has a target.

A function of the field's name writes each text, so that a test can put scripts into every field."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any
from urllib.parse import quote

from tidemill import Context, Limit, Retry, Task, Tidemill
from tidemill.core.claims import ClaimRequest, Heartbeat, HeldJob, QueueShare
from tidemill.http_routes.routes import Role
from tidemill.notifications.webhook_definitions import NewWebhook

Named = Callable[[str], str]

HOUR = 3600.0
FIELDS = (
    *("queue", "asking", "works", "fails", "asks", "key", "tag", "trace", "argument"),
    *("log", "note", "checkpoint", "result", "error", "reason", "by", "flow", "flow-key", "step", "pool"),
    *("schedule", "worker", "host", "setting", "says", "value", "user"),
)
"""The fields with names. Some page shows each of them."""


class PopulatedStore:
    """The store and its contents. `ready`, `done` and `failed` are jobs.

    `populate` sets `path_values`, the values of path parameters; a new parameter needs an entry there."""

    def __init__(self, url: str, named: Named = str) -> None:
        self.app = app = Tidemill(url)
        self._named = named
        self.path_values: Mapping[str, tuple[str, ...]] = {}
        self.ready = self.done = self.failed = ""
        app.queue(named("queue"))
        pool = app.pool(named("pool"), Limit.requests(5, per="hour"))
        self.works = app.task(name=named("works"), queue=named("queue"))(self._works)
        self.fails = app.task(name=named("fails"), queue=named("queue"), retry=Retry(attempts=1))(self._fails)
        app.web.setting(named("setting"), str, summary=named("says"), read=self._read, write=self._write)
        self.setting = named("value")
        self.asks = app.task(name=named("asks"), queue=named("asking"), pool=pool)(self._asks)

    async def populate(self) -> None:
        """Creates jobs of every state except running, and one of everything else."""
        self.done = (await self._job().enqueue({"name": self._named("argument")})).id
        self.failed = (await self.fails.using(key=self._named("key"), tags=[self._named("tag")]).enqueue()).id
        flow = await self._flow()
        await self.app.worker(until_idle=True, concurrency=2).run()
        sent = {"name": self._named("argument"), "password": "open sesame"}
        self.ready = (await self._job().enqueue(sent)).id
        await self._job(delay=HOUR).enqueue({"name": "later"})
        await self._apply_operator_changes()
        token = await self.app.auth.tokens.create(self._named("user"), Role.VIEWER)
        self.path_values = {
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
        """Starts running a job with a progress note and returns its id."""
        job = await self._job(priority=0).enqueue({"name": self._named("argument")})
        shares = (QueueShare(self._named("queue"), 1),)
        request = ClaimRequest(worker=self._named("worker"), number=1, shares=shares, limit=1, lease=HOUR)
        [claimed] = (await self.app.store.claim(request)).jobs
        held = HeldJob(
            job=claimed.id, fence=claimed.fence, claim=claimed.claim, progress=0.5, note=self._named("note")
        )
        await self._beat(held)
        return job.id

    async def token(self, role: Role) -> dict[str, str]:
        """Returns the authorization header of a new token with that role."""
        issued = await self.app.auth.tokens.create(self._named("user"), role)
        return {"authorization": f"Bearer {issued.secret}"}

    def paths(self, pattern: str) -> list[str]:
        """Returns the paths of a route with every known value of its parameters."""
        names = re.findall(r"\{(\w+)", pattern)
        plain = pattern.replace(":path}", "}")
        return [
            plain.format(**{name: quote(value, safe="") for name, value in zip(names, values, strict=True)})
            for values in product(*(self.path_values[name] for name in names))
        ]

    def _job(self, **options: Any) -> Task[[dict[str, str]], str]:
        marks = {"key": self._named("key"), "tags": [self._named("tag")], "trace": self._named("trace")}
        return self.works.using(**{**marks, **options})

    async def _flow(self) -> str:
        flow = self.app.flow(self._named("flow"), key=self._named("flow-key"))
        first = flow.add(self.works, what={"name": "first"}).named(self._named("step"))
        flow.add(self.works, what={"name": "second"}).after(first)
        return (await flow.enqueue()).id

    async def _apply_operator_changes(self) -> None:
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

    async def _beat(self, *held: HeldJob) -> None:
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
