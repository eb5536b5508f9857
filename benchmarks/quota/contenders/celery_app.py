"""The application of `celery worker`."""

from __future__ import annotations

import random
from typing import Any

from celery import Celery
from celery.utils.time import get_exponential_backoff_interval

from benchmarks.quota.process_settings import ProcessSettings
from benchmarks.quota.provider_client import STATUS_REFUSED, build_request, create_blocking_client

setting = ProcessSettings.here()
app = Celery("quota", broker=f"redis://127.0.0.1:{setting.redis}/0")
app.conf.update(
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    # If concurrency is the limit instead of the rate, the default prefetch keeps the slots busier.
    worker_prefetch_multiplier=1 if setting.account.at_once is None else 4,
)
calls = create_blocking_client(setting)


def _rate() -> str:
    account = setting.account
    per_minute = account.jobs_per_window * 60.0 / account.window / setting.workers
    return f"{per_minute * setting.scale:g}/m"


def _ask(self: Any, job: int) -> None:
    response = calls.post(**build_request(setting, job))
    if response.status_code == STATUS_REFUSED:
        raise self.retry(countdown=_delay(self.request.retries))
    response.raise_for_status()


def _delay(retries: int) -> float:
    """Returns a delay like autoretry_for with retry_backoff=True. Its whole seconds cannot be scaled, so
    this draws from the same range in finer steps."""
    longest = get_exponential_backoff_interval(factor=1, retries=retries, maximum=600, full_jitter=False)
    return setting.real(random.uniform(0, longest))


ask = app.task(bind=True, name="ask", rate_limit=_rate(), max_retries=None)(_ask)

if __name__ == "__main__":
    for job in range(setting.jobs):
        ask.delay(job)
