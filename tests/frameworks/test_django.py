"""Django in a real project with SQLite: transactions, connections and `manage.py tidemill_worker`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import django
import pytest

from tidemill import InvalidPayload, State, testing
from tidemill.frameworks.django import enqueue_on_commit, send_on_commit, use_fresh_connections

pytestmark = pytest.mark.usefixtures("site")


def test_a_job_is_enqueued_once_the_transaction_is_committed() -> None:
    from django.db import transaction

    from tests.frameworks.mysite.orders.jobs import app, pay
    from tests.frameworks.mysite.orders.models import Order

    with testing.kit(app) as kit:
        with transaction.atomic():
            order = Order.objects.create()
            job = enqueue_on_commit(pay, order.pk)
            Order.objects.filter(pk=order.pk).update(job=job.id)
            kit.assert_not_enqueued(pay)
        assert kit.assert_enqueued(pay, order.pk).id == job.id
        kit.run_until_idle()
        assert kit.result(job) is True
        order.refresh_from_db()
        assert (order.job, order.paid) == (job.id, True)


def test_a_transaction_that_is_rolled_back_enqueues_nothing() -> None:
    from django.db import transaction

    from tests.frameworks.mysite.orders.jobs import app, pay

    with testing.kit(app) as kit:
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            enqueue_on_commit(pay, 1)
            raise ZeroDivisionError
        kit.assert_not_enqueued(pay)
        with transaction.atomic():
            with pytest.raises(ZeroDivisionError), transaction.atomic():
                enqueue_on_commit(pay, 1)
                raise ZeroDivisionError
            enqueue_on_commit(pay, 2)
        assert [kit.arguments(job) for job in kit.enqueued()] == [{"order": 2}]


def test_outside_of_a_transaction_it_is_enqueued_at_once_with_its_options() -> None:
    from tests.frameworks.mysite.orders.jobs import app, pay

    with testing.kit(app) as kit:
        urgent = pay.using(priority=1)
        job = send_on_commit(urgent, urgent.job(7), database="default")
        assert kit.job(job).priority == 1


def test_a_wrong_argument_raises_inside_the_transaction() -> None:
    from django.db import transaction

    from tests.frameworks.mysite.orders.jobs import pay

    with pytest.raises(InvalidPayload, match="order"), transaction.atomic():
        enqueue_on_commit(pay, "seven")  # type: ignore[arg-type]


async def test_handlers_get_fresh_connections_on_their_own_threads() -> None:
    """CONN_MAX_AGE is 0, so each connection is closed after the attempt."""
    from tests.frameworks.mysite.orders import jobs
    from tests.frameworks.mysite.orders.models import Order

    use_fresh_connections(jobs.app)
    use_fresh_connections(jobs.app)
    order = await Order.objects.acreate()
    async with jobs.app:
        paid = await jobs.pay.enqueue(order.pk)
        apaid = await jobs.apay.enqueue(order.pk)
        await jobs.app.worker(until_idle=True, threads=1).run()
        assert (await paid.result(timeout=1), await apaid.result(timeout=1)) == (True, True)
    (_, connection) = jobs.seen[-1]
    assert getattr(connection, "connection", "open") is None
    assert len(jobs.app.middlewares) == 1, "doing it twice does it once"


def manage(
    site: Path, *arguments: str, start: tuple[str, ...] = ("-m", "tests.frameworks.mysite.manage")
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *start, *arguments],
        env=os.environ | {"MYSITE_HOME": str(site)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_worker_of_manage_py_runs_jobs_with_models(site: Path) -> None:
    from tests.frameworks.mysite.orders.jobs import app, pay
    from tests.frameworks.mysite.orders.models import Order
    from tests.frameworks.mysite.orders.tasks import pay as their_pay

    first, second = Order.objects.create(), Order.objects.create()
    job = pay.enqueue_sync(first.pk)
    result = their_pay.enqueue(second.pk)
    ran = manage(site, "tidemill_worker", "--until-idle", "--concurrency", "2")
    assert ran.returncode == 0, ran.stderr
    assert job.status_sync().state is State.DONE
    result.refresh()
    assert result.return_value == 1
    assert Order.objects.get(pk=first.pk).paid
    app.close_sync()


def test_it_serves_a_backend_derived_from_ours(site: Path) -> None:
    from tests.frameworks.mysite.orders.jobs import app
    from tests.frameworks.mysite.orders.tasks import pay_picky

    result = pay_picky.enqueue(1)
    ran = manage(site, "tidemill_worker", "--until-idle")
    assert ran.returncode == 0, ran.stderr
    result.refresh()
    assert result.is_finished
    app.close_sync()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--app", "tests.nothing.app"], "'tests.nothing.app' cannot be imported"),
        (["--app", "tests.frameworks.mysite.settings.HOME"], "is str, and must be the path of a Tidemill"),
        (["--backend", "nobody"], "--backend: TASKS has no 'nobody'"),
        (["--concurrency", "-1"], "concurrency: must be 1 or more, is -1"),
        (["--concurrency", "0"], "concurrency: must be 1 or more, is 0"),
    ],
)
def test_a_wrong_option_is_one_sentence(site: Path, arguments: list[str], sentence: str) -> None:
    ran = manage(site, "tidemill_worker", *arguments)
    assert ran.returncode == 1
    assert sentence in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_folder_that_is_missing_is_one_sentence(tmp_path: Path) -> None:
    ran = manage(tmp_path / "nowhere", "tidemill_worker", "--until-idle")
    assert ran.returncode == 1
    assert "nowhere" in ran.stderr
    assert "Traceback" not in ran.stderr


WITHOUT_TASKS = """
import runpy, sys
sys.modules["django_tasks"] = None
runpy.run_module("tests.frameworks.mysite.manage", run_name="__main__")
"""


@pytest.mark.skipif(django.VERSION >= (6,), reason="Django 6 has tasks of its own")
def test_without_django_tasks_one_sentence_says_what_to_install(site: Path) -> None:
    ran = manage(site, "tidemill_worker", "--until-idle", start=("-c", WITHOUT_TASKS))
    assert ran.returncode == 1
    assert "run `pip install django-tasks`" in ran.stderr
    assert "Traceback" not in ran.stderr
