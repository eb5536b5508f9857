"""Django's task API on Tidemill behaves as Django's documentation describes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidemill import Filter, GiveUp, State, testing
from tidemill.testing import START_TIME, Kit

PATH = "tests.frameworks.mysite.orders.tasks"


@pytest.fixture
def kit(site: Any) -> Iterator[Kit]:
    from tests.frameworks.mysite.orders.jobs import app
    from tidemill.frameworks.django_tasks import task_backends

    for alias in ("default", "retrying", "picky"):
        assert getattr(task_backends[alias], "app", None) is app
    with testing.kit(app) as kit:
        yield kit


def test_a_task_is_enqueued_run_and_its_result_read(kit: Kit) -> None:
    from tests.frameworks.mysite.api import TaskResultStatus
    from tests.frameworks.mysite.orders.tasks import add

    result: Any = add.enqueue(40, b=2)
    assert result.status == TaskResultStatus.READY
    assert (result.args, result.kwargs, result.backend) == ([40], {"b": 2}, "default")
    assert result.enqueued_at == datetime.fromtimestamp(START_TIME, UTC)
    with pytest.raises(ValueError, match="not finished"):
        result.return_value  # noqa: B018 - raises
    kit.run_until_idle()
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert result.is_finished
    assert result.return_value == 42
    assert result.attempts == 1
    assert result.started_at is not None
    assert result.started_at == result.last_attempted_at
    assert result.finished_at is not None
    assert add.get_result(result.id).return_value == 42


async def test_the_same_awaited(site: Any) -> None:
    from tests.frameworks.mysite.orders.jobs import app
    from tests.frameworks.mysite.orders.tasks import send
    from tidemill.frameworks.django_tasks import task_backends

    assert getattr(task_backends["default"], "app", None) is app
    async with testing.kit(app) as kit:
        result: Any = await send.aenqueue("a@example.org")
        await kit.run_until_idle()
        await result.arefresh()
        assert result.return_value == "sent to a@example.org"
        assert (await send.aget_result(result.id)).task == send


def test_a_failure_has_the_path_of_its_class_and_its_traceback(kit: Kit) -> None:
    from tests.frameworks.mysite.api import TaskResultStatus
    from tests.frameworks.mysite.orders.tasks import Declined, decline

    result = decline.enqueue(7)
    kit.run_until_idle(check=False)
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    (error,) = result.errors
    assert error.exception_class_path == f"{PATH}.Declined"
    assert error.exception_class is Declined
    assert 'raise Declined(f"order {order}")' in error.traceback
    assert error.traceback.rstrip().endswith(f"{PATH}.Declined: order 7")
    with pytest.raises(ValueError, match="Task failed"):
        result.return_value  # noqa: B018 - raises


def test_a_task_may_be_retried_and_knows_its_attempt(kit: Kit) -> None:
    from tests.frameworks.mysite.api import TaskResultStatus
    from tests.frameworks.mysite.orders.tasks import second_time

    result = second_time.enqueue()
    kit.run_until_idle()
    result.refresh()
    assert result.status == TaskResultStatus.READY
    assert [error.exception_class_path for error in result.errors] == [f"{PATH}.Declined"]
    kit.run_for(60)
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == (TaskResultStatus.SUCCESSFUL, 2, 2)
    assert result.started_at is not None
    assert result.last_attempted_at is not None
    assert result.last_attempted_at - result.started_at == timedelta(seconds=60)
    assert len(result.errors) == 1


def test_a_task_that_takes_its_context_gets_it(kit: Kit) -> None:
    from tests.frameworks.mysite.orders.tasks import which

    result = which.enqueue("word")
    kit.run_until_idle()
    result.refresh()
    assert result.return_value == [result.id, 1, "word"]


def test_run_after_is_waited_for(kit: Kit) -> None:
    from tests.frameworks.mysite.orders.tasks import add

    when = datetime.fromtimestamp(START_TIME, UTC) + timedelta(hours=1)
    result = add.using(run_after=when).enqueue(1)
    kit.run_for(3599)
    assert not add.get_result(result.id).is_finished
    kit.run_for(1)
    assert add.get_result(result.id).return_value == 1
    assert add.get_result(result.id).task.run_after == when


def test_a_larger_priority_runs_first_and_the_defaults_are_alike(kit: Kit) -> None:
    """In Django larger is more urgent, in Tidemill smaller is."""
    from tests.frameworks.mysite.orders.jobs import pay
    from tests.frameworks.mysite.orders.tasks import add

    plain, ours = add.enqueue(1), pay.enqueue_sync(1)
    urgent, patient = add.using(priority=100).enqueue(2), add.using(priority=-100).enqueue(3)
    priorities = {job.id: job.priority for job in kit.enqueued()}
    assert priorities[urgent.id] < priorities[plain.id] == priorities[ours.id] < priorities[patient.id]
    for result, priority in ((urgent, 100), (plain, 0), (patient, -100)):
        assert add.get_result(result.id).task.priority == priority


def test_queues_are_the_same_and_unknown_ones_are_refused(kit: Kit) -> None:
    from tests.frameworks.mysite.api import InvalidTaskError
    from tests.frameworks.mysite.orders.tasks import add, send

    send.enqueue("a@example.org")
    (job,) = kit.enqueued(queue="mail")
    assert job.tags == (f"{PATH}.send",)
    with pytest.raises(InvalidTaskError, match="nobody"):
        add.using(queue_name="nobody")


def test_arguments_must_be_json_and_nothing_is_sent(kit: Kit) -> None:
    from tests.frameworks.mysite.orders.tasks import add

    with pytest.raises(TypeError):
        add.enqueue(object())  # type: ignore[arg-type]
    assert kit.enqueued() == []


def test_an_unknown_result_does_not_exist(kit: Kit) -> None:
    from tests.frameworks.mysite.api import exceptions
    from tests.frameworks.mysite.orders.jobs import pay
    from tests.frameworks.mysite.orders.tasks import add, which

    with pytest.raises(exceptions.TaskResultDoesNotExist):
        add.get_result("nobody")
    with pytest.raises(exceptions.TaskResultDoesNotExist):
        add.get_result(pay.enqueue_sync(1).id)
    with pytest.raises(exceptions.TaskResultMismatch):
        add.get_result(which.enqueue("word").id)


@pytest.mark.parametrize("path", [f"{PATH}.not_a_task", "os.getcwd", "nowhere.at_all"])
def test_only_what_is_decorated_is_run(kit: Kit, path: str) -> None:
    from tests.frameworks.mysite.orders.jobs import app
    from tidemill.client.task import Task
    from tidemill.frameworks.django_tasks.results import DjangoTaskCall

    runner: Task[[DjangoTaskCall], Any] = Task(app.client, app.tasks["django:default"])
    job = runner.enqueue_sync(DjangoTaskCall(path, [], {}))
    kit.run_until_idle(check=False)
    record = kit.job(job)
    assert record.state is State.FAILED
    assert record.error is not None
    assert record.error.type == "GiveUp"
    assert path in record.error.message


def test_a_cancelled_task_is_failed_and_says_so(kit: Kit) -> None:
    from tests.frameworks.mysite.api import TaskResultStatus
    from tests.frameworks.mysite.orders.jobs import app
    from tests.frameworks.mysite.orders.tasks import add
    from tidemill import JobCancelled

    result = add.enqueue(1)
    kit.run(app.job(result.id).cancel("not wanted"))
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    (error,) = result.errors
    assert error.exception_class is JobCancelled
    assert "not wanted" in error.traceback


class SentSignals(list[tuple[str, str]]):
    """The signals received, and the result that came with the last one."""

    last: Any = None


@pytest.fixture
def signals_sent(kit: Kit) -> Iterator[SentSignals]:
    from tests.frameworks.mysite.api import signals
    from tidemill.frameworks.django_tasks import TidemillBackend

    signals_sent = SentSignals()

    def hear(name: str) -> Any:
        def listen(sender: type, task_result: Any, **_: Any) -> None:
            assert issubclass(sender, TidemillBackend)
            signals_sent.append((name, task_result.status))
            signals_sent.last = task_result

        return listen

    listeners = {name: hear(name) for name in ("task_enqueued", "task_started", "task_finished")}
    for name, listener in listeners.items():
        getattr(signals, name).connect(listener)
    yield signals_sent
    for name, listener in listeners.items():
        getattr(signals, name).disconnect(listener)


def test_signals_tell_of_every_step(kit: Kit, signals_sent: SentSignals) -> None:
    from tests.frameworks.mysite.orders.tasks import add, decline

    add.enqueue(1)
    kit.run_until_idle()
    decline.enqueue(7)
    kit.run_until_idle(check=False)
    assert signals_sent == [
        ("task_enqueued", "READY"),
        ("task_started", "RUNNING"),
        ("task_finished", "SUCCESSFUL"),
        ("task_enqueued", "READY"),
        ("task_started", "RUNNING"),
        ("task_finished", "FAILED"),
    ]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("unjson", TypeError),
        ("hopeless", GiveUp),
        ("leave", SystemExit),
        ("missing", KeyError),
        ("mistaken", ZeroDivisionError),
    ],
)
def test_the_last_signal_is_what_is_stored(
    kit: Kit, signals_sent: SentSignals, name: str, error: type[BaseException]
) -> None:
    from tests.frameworks.mysite.orders import tasks

    result = getattr(tasks, name).enqueue()
    kit.run_until_idle(check=False)
    result.refresh()
    assert signals_sent[1:] == [("task_started", "RUNNING"), ("task_finished", "FAILED")]
    assert signals_sent.last.status == result.status
    assert [stored.exception_class for stored in result.errors] == [error]
    assert [stored.exception_class for stored in signals_sent.last.errors] == [error]


def test_an_attempt_that_will_be_repeated_has_not_finished(kit: Kit, signals_sent: SentSignals) -> None:
    """`on` and `give_up_on` are checked with the exception that the task raised."""
    from tests.frameworks.mysite.orders.tasks import unreachable

    result = unreachable.enqueue()
    kit.run_until_idle()
    assert signals_sent[1:] == [("task_started", "RUNNING")]
    kit.run_for(60, check=False)
    assert signals_sent[2:] == [("task_started", "RUNNING"), ("task_finished", "FAILED")]
    result.refresh()
    assert [error.exception_class for error in result.errors] == [ConnectionError] * 2
    assert len(signals_sent.last.errors) == 2
    for error in (result.errors[0], signals_sent.last.errors[-1]):
        assert "TimeoutError: no route" in error.traceback, "the cause is told too"


def test_a_timeout_is_decided_outside_and_has_no_signal(kit: Kit, signals_sent: SentSignals) -> None:
    from tests.frameworks.mysite.orders.tasks import endless

    result = endless.enqueue()
    kit.run_for(120, check=False)
    result.refresh()
    assert (result.status, len(result.errors)) == ("FAILED", 2)
    assert [error.exception_class for error in result.errors] == [TimeoutError] * 2
    assert signals_sent[1:] == [("task_started", "RUNNING")] * 2


def test_a_return_value_is_normalised_as_django_does(kit: Kit, signals_sent: SentSignals) -> None:
    from tests.frameworks.mysite.orders.tasks import pair

    result: Any = pair.enqueue()
    kit.run_until_idle()
    result.refresh()
    assert result.return_value == signals_sent.last.return_value == [1, "two"]


@pytest.mark.parametrize(("ours", "theirs"), [(200, -100), (-200, 100), (30, -25)])
def test_a_task_runs_after_an_operator_reprioritised_it(kit: Kit, ours: int, theirs: int) -> None:
    from tests.frameworks.mysite.orders.jobs import app
    from tests.frameworks.mysite.orders.tasks import add

    result = add.enqueue(1)
    kit.run(app.inspect.reprioritise(Filter(ids=(result.id,)), ours))
    assert add.get_result(result.id).task.priority == theirs
    kit.run_until_idle()
    result.refresh()
    assert result.return_value == 1


def test_a_task_runs_though_its_queue_was_taken_out_of_the_settings(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.frameworks.mysite.orders.tasks import add
    from tidemill.frameworks.django_tasks import TidemillBackend

    result = add.using(queue_name="mail").enqueue(1)
    fewer = property(lambda _: {"default"}, lambda _, queues: None)  # each thread has its own backend
    monkeypatch.setattr(TidemillBackend, "queues", fewer, raising=False)
    kit.run_until_idle()
    result.refresh()
    assert result.return_value == 1
    assert add.get_result(result.id).task.queue_name == "mail"


def test_inline_mode_runs_a_task_where_it_is_enqueued(kit: Kit) -> None:
    from tests.frameworks.mysite.orders.jobs import app
    from tests.frameworks.mysite.orders.tasks import add

    with testing.inline(app):
        assert add.get_result(add.enqueue(1, 2).id).return_value == 3


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"Url": "memory://"}, "unknown option 'Url'; valid options are APP, URL, RETRY, TIMEOUT"),
        ({"URL": "memory://", "APP": "a.b"}, "give either APP or URL, not both"),
        ({"URL": "nonsense"}, "has no scheme"),
        ({"URL": "memory://one", "RETRY": {"tries": 3}}, "RETRY"),
        ({"APP": "no.such.app"}, "'no.such.app' cannot be imported"),
    ],
)
def test_wrong_options_are_one_sentence(site: Any, options: dict[str, Any], sentence: str) -> None:
    from django.core.exceptions import ImproperlyConfigured

    from tidemill.frameworks.django_tasks import TidemillBackend

    with pytest.raises(ImproperlyConfigured, match=sentence):
        TidemillBackend("wrong", {"OPTIONS": options})


def test_threads_share_the_application_of_a_url(site: Any) -> None:
    from tidemill.frameworks.django_tasks import TidemillBackend

    params = {"OPTIONS": {"URL": "memory://"}}
    first, second = TidemillBackend("shared", params), TidemillBackend("shared", params)
    assert first.app is second.app
