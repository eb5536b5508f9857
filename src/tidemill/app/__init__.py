"""The application: combines a store, a client and workers.

`application` has the base: settings, store and client. The other modules add one part each:
`declarations` (tasks, queues, pools, schedules, middleware), `client_api` (enqueue, inspect, plan),
`notifications` (webhooks, alerts), `worker_api` (run workers). `stores` picks the store by its URL."""

from __future__ import annotations

from tidemill.app.client_api import EnqueueApi, InspectionApi
from tidemill.app.declarations import HookDeclarations, ResourceDeclarations, TaskDeclarations
from tidemill.app.notifications import NotificationApi
from tidemill.app.worker_api import WorkerApi


class Tidemill(
    TaskDeclarations,
    ResourceDeclarations,
    HookDeclarations,
    EnqueueApi,
    InspectionApi,
    WorkerApi,
    NotificationApi,
):
    """An application: tasks, queues, pools and the store of their jobs.

    - `url`: the store, such as `sqlite:///jobs.db`. By default TIDEMILL_URL in the environment names it, then
      `tidemill.toml` in the working directory, else it is `sqlite:///tidemill.db`.
    - `config`: the path of another TOML file.

    The first use opens the store. `async with app` closes it at the end."""
