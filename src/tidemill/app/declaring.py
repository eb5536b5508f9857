"""Queues, pools and schedules, as the code wants them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from tidemill.app.application import Application
from tidemill.client.request import JobRequest
from tidemill.client.task import Task
from tidemill.core.names import refuse_unknown
from tidemill.core.queue_options import QueueOptions
from tidemill.core.queues import QueueSettings, for_paid_tasks
from tidemill.errors import ConfigurationError
from tidemill.settings.queues import declared

if TYPE_CHECKING:
    from tidemill.client.schedules import Schedules
    from tidemill.core.limits import Limit
    from tidemill.schedules.settings import ScheduleOptions
    from tidemill.tasks.classifiers import Classifiers, Classify
    from tidemill.tasks.pools import Pool, PoolOptions

Judges = TypeVar("Judges", bound="Classify")


class Declares(Application):
    def queue(self, name: str, **settings: Unpack[QueueOptions]) -> QueueSettings:
        """Declare a queue. What is not said here comes from the environment, the TOML file or the
        defaults. It is written to the store by the application's next use of it; an operator's
        override of it stays."""
        refuse_unknown(settings, QueueSettings.__struct_fields__, f"queue {name!r}")
        if name in self.declared_in_code:
            raise ConfigurationError(
                f"queue {name!r} is declared twice; put its settings into one app.queue(…)"
            )
        kept = declared(self.settings, name, settings)
        costs_money = any(task.costs_money for task in self.tasks.values() if task.queue == name)
        self.queues[name] = for_paid_tasks(kept) if costs_money else kept
        self.declared_in_code.add(name)
        self.client.settings_changed()
        return self.queues[name]

    def pool(self, name: str, *limits: Limit, **options: Unpack[PoolOptions]) -> Pool:
        """Declare what a provider meters: `app.pool("gemini", Limit.requests(10, per="minute"))`. It is
        written to the store by the application's next use of it; an operator's override of it and what
        was used stay. Tasks take it with `pool=`."""
        from tidemill.tasks.pools import declared_pool

        if name in self.pools:
            raise ConfigurationError(f"pool {name!r} is declared twice; put its limits into one app.pool(…)")
        pool = declared_pool(name, limits, options, self.classifiers)
        self.pools[name] = pool.settings
        self.client.settings_changed()
        return pool

    @property
    def classifiers(self) -> Classifiers:
        """The application's own, of all its pools."""
        if self._classifiers is None:
            from tidemill.tasks.classifiers import Classifiers

            self._classifiers = Classifiers()
        return self._classifiers

    def classify(self, function: Judges) -> Judges:
        """Say what an error or a response of any provider means, before the built-in adapters are asked:
        a plain function of the exception or response. It returns a `Refusal`, False when it surely is
        none, or None when it does not know. `app.pool(…, classify=…)` is asked before."""
        self.classifiers.add(function)
        return function

    @property
    def schedules(self) -> Schedules:
        """Schedules made by calls, one per thing if need be, and all of them to look at and to steer:
        `await app.schedules.upsert("feed-7", refresh.job(feed), every=3600)`."""
        if self._schedules is None:
            from tidemill.client.schedules import Schedules

            self._schedules = Schedules(
                self.client,
                lambda: self.entropy.new_id(),  # noqa: PLW0108 - another's, while a test has moved this
            )
        return self._schedules

    def schedule(
        self, name: str, what: Task[..., Any] | JobRequest[Any], **options: Unpack[ScheduleOptions]
    ) -> None:
        """Declare a schedule: `app.schedule("nightly", reembed_all, cron="0 3 * * *", tz="Asia/Shanghai")`,
        with arguments `reembed_all.job(…)`. The options are cron and tz, or every; start, end, catch_up,
        overlap, jitter. Workers write it to the store when they start; an operator's override or pause of
        it stays. One that is gone from the code is disabled, and kept."""
        self.schedules.declare(name, what, options)
