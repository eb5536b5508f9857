"""Whom the application tells what happens: webhooks, and alerts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tidemill.app.application import Application
from tidemill.client.task import Task
from tidemill.errors import ConfigurationError

if TYPE_CHECKING:
    from tidemill.telling.alerts.alerts import Alerts
    from tidemill.telling.alerts.rule import Measure
    from tidemill.telling.telling import Telling
    from tidemill.telling.webhook import Body
    from tidemill.telling.webhooks import Webhooks


class Tells(Application):
    @property
    def telling(self) -> Telling:
        """What this application tells, and whom: by its code and its settings."""
        if self._telling is None:
            from tidemill.settings.telling import telling_of

            self._telling = telling_of(
                self.settings, self.client.store, lambda: self.clock, lambda: str(self.url)
            )
        return self._telling

    @property
    def webhooks(self) -> Webhooks:
        """Webhooks to look at, and those that people add: `await app.webhooks.list()`."""
        from tidemill.telling.addresses import Allowed
        from tidemill.telling.webhooks import Webhooks

        allowed = Allowed.of(self.settings.value("webhooks.allow"))
        return Webhooks(self.client.store, self.entropy.new_id, allowed)

    @property
    def alerts(self) -> Alerts:
        """What is wrong: `await app.alerts.states()`."""
        from tidemill.telling.alerts.alerts import Alerts

        return Alerts(self.telling)

    def webhook(
        self,
        name: str,
        url: str,
        *,
        on: Iterable[str] = ("job.done", "job.failed"),
        tasks: Iterable[Task[..., Any] | str] = (),
        queues: Iterable[str] = (),
        flows: Iterable[str] = (),
        pools: Iterable[str] = (),
        secret: str = "WEBHOOK_SECRET",  # noqa: S107 - the name of a variable
        event: str | None = None,
        body: Body | None = None,
    ) -> None:
        """Declare a webhook: `app.webhook("reader", "https://reader.example/hook", tasks=[refresh],
        event="feed.refreshed", body=lambda job: {"feedId": job.arguments["feed"]})`.

        `on` are job.done, job.failed, job.cancelled, flow.ended, pool.closed, pool.opened. `tasks` and
        `queues` narrow which jobs, `flows` and `pools` which of those. `secret` names the environment
        variable by which deliveries are signed. `event` takes the place of what happened, and `body`, a
        function of the job that ended, of what is told of it."""
        from tidemill.telling.webhook import Declared, declared

        if name in self.telling.webhooks:
            raise ConfigurationError(f"webhook {name!r} is declared twice; give one of them another name")
        wanted = declared(
            name=name,
            url=url,
            on=_listed("on", on),
            tasks=[task.name if isinstance(task, Task) else task for task in _listed("tasks", tasks)],
            queues=_listed("queues", queues),
            flows=_listed("flows", flows),
            pools=_listed("pools", pools),
            secret=secret,
        )
        if body is not None and not (callable(body) and wanted.states):
            raise ConfigurationError(
                f"webhook {name!r}: body: must be a function of a job that has ended, of one that is on jobs"
            )
        self.telling.webhooks[name] = Declared(wanted, event, body)

    def alert(
        self,
        name: str,
        on: str | Measure,
        *,
        above: float | None = None,
        clear: float | None = None,
        lasting: float = 0.0,
        queue: str | None = None,
        pool: str | None = None,
        window: float = 300.0,
        least: int = 10,
    ) -> None:
        """Declare a rule: `app.alert("feeds wait", on="queue_length", queue="feeds", above=1000, clear=500)`.

        `on` is queue_length, oldest_job, failure_ratio, dead_letters, pool_closed, worker_gone, store_size,
        store_lost, or a function of the application's own that answers a number, or numbers by name. What the
        others mean says `Rule`. A rule of that name that is set wins."""
        from tidemill.telling.alerts.rule import declared

        if name in self.telling.own_rules:
            raise ConfigurationError(f"alert {name!r} is declared twice; give one of them another name")
        self.telling.own_rules[name] = declared(
            name,
            {
                "on": "own" if callable(on) else on,
                "above": above,
                "clear": clear,
                "lasting": lasting,
                "queue": queue,
                "pool": pool,
                "window": window,
                "least": least,
            },
        )
        if callable(on):
            self.telling.measures[name] = on


def _listed(field: str, values: Iterable[Any]) -> list[Any]:
    if isinstance(values, str):  # a sequence of letters, and never what was meant
        raise ConfigurationError(f"{field}: must be a list, such as [{values!r}], is {values!r}")
    return list(values)
