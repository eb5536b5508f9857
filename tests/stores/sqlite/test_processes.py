"""Several processes and threads on one file: wake-ups, forks, group commit."""

import asyncio
import multiprocessing
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.stores.sqlite.conftest import group
from tidemill.contract.coordination import queue_topic
from tidemill.core.states import State
from tidemill.errors import StoreError
from tidemill.stores.sqlite import SqliteStore


def _insert_elsewhere(path: Path, name: str) -> None:
    SqliteStore(path).blocking.insert([group(name)])


async def _run_elsewhere(path: Path, name: str) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_insert_elsewhere, args=(path, name))
    process.start()
    await asyncio.to_thread(process.join)
    assert process.exitcode == 0


async def test_an_armed_listener_is_woken_by_another_process(path: Path, store: SqliteStore) -> None:
    """A listener is woken from another process (W1, W3)."""
    listener = store.listen([queue_topic("default")])
    listener.arm()
    waiting = asyncio.create_task(listener.wait(30))
    await _run_elsewhere(path, "a")
    assert await waiting
    listener.disarm()
    listener.close()
    assert not (path.parent / "jobs.db-wake").exists()


async def test_a_disarmed_listener_is_not_woken(path: Path, store: SqliteStore) -> None:
    """A listener that is not armed gets no wake-up (W2)."""
    listener = store.listen([queue_topic("default")])
    listener.arm()
    listener.disarm()
    await _run_elsewhere(path, "a")
    assert not await listener.wait(0)
    listener.close()


async def test_w1_a_listener_that_arms_while_being_woken_gets_the_next_wakeup(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy disk removing a link is slow, and the worker arms again before it is done."""
    listener = store.listen([queue_topic("default")])
    listener.arm()
    unlink = Path.unlink

    def arms_before(link: Path) -> None:
        listener._received()  # type: ignore[attr-defined] # the ring, if it was sent already
        listener.arm()
        unlink(link)

    monkeypatch.setattr(Path, "unlink", arms_before)
    other = SqliteStore(path)
    other.wake([queue_topic("default")])
    monkeypatch.undo()
    other.wake([queue_topic("default")])
    assert await listener.wait(2)
    listener.close()


async def test_w3_two_concurrent_wakeups_wake_two_listeners(path: Path, store: SqliteStore) -> None:
    """The process that removes a link wakes its listener; another process takes the next link."""
    listeners = [SqliteStore(path).listen([queue_topic("default")]) for _ in range(2)]
    for listener in listeners:
        listener.arm()
    for _ in listeners:
        SqliteStore(path).wake([queue_topic("default")])
    assert [await listener.wait(2) for listener in listeners] == [True, True]
    for listener in listeners:
        listener.close()


async def test_w1_a_removed_topic_folder_is_created_again(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may remove the empty folder of a topic between its creation and the link."""
    listener = store.listen([queue_topic("default")])
    mkdir, removals = Path.mkdir, iter(range(3))

    def removed_at_once(self: Path, *args: Any, **named: Any) -> None:
        mkdir(self, *args, **named)
        if next(removals, None) is not None:
            self.rmdir()

    monkeypatch.setattr(Path, "mkdir", removed_at_once)
    listener.arm()
    assert [link.name for link in store._wakeups.folder.glob("queue-*/*")] == [listener._name]  # type: ignore[attr-defined]
    listener.close()


async def test_sockets_of_a_dead_process_are_deleted(path: Path, store: SqliteStore) -> None:
    listener = store.listen([queue_topic("default")])
    listener.arm()
    wake = path.parent / "jobs.db-wake"
    listener._socket.close()  # type: ignore[attr-defined] # as a kill would
    store._wakeups.disarm(listener)  # type: ignore[arg-type] # nor is there anyone in this process
    await _run_elsewhere(path, "a")
    assert [list(entry.iterdir()) for entry in wake.iterdir() if entry.is_dir()] == [[]]
    await _run_elsewhere(path, "b")
    assert not [entry for entry in wake.iterdir() if entry.is_dir()]
    SqliteStore(path).listen([queue_topic("default")]).close()
    assert not wake.exists()


async def test_listeners_with_long_paths_can_be_woken(tmp_path: Path) -> None:
    """The address of a Unix socket holds about 100 bytes; folders are often longer."""
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    store = await SqliteStore(deep / "jobs.db").open()
    listener = store.listen([queue_topic("default")])
    listener.arm()
    waiting = asyncio.create_task(listener.wait(30))
    await _run_elsewhere(deep / "jobs.db", "a")
    assert await waiting
    listener.close()
    await store.close()


async def test_a_fork_loses_no_jobs_in_any_order_of_closing(path: Path, store: SqliteStore) -> None:
    """With locks that the child does not really hold, the last to close would delete the write-ahead log
    (I1)."""
    store.blocking.insert([group("parent")])
    await store.get(["parent"])  # the read connection must not cross either
    closed, may_write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.read(closed, 1)  # the parent has closed its store
            for number in range(300):
                store.blocking.insert([group(f"child-{number}")])
            assert len(store.blocking.get(["parent", "child-0"])) == 2
        except BaseException:
            os._exit(1)
        os._exit(0)
    await store.close()
    os.write(may_write, b"!")
    for _ in range(20):  # others come and go meanwhile
        await (await SqliteStore(path).open()).close()
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert status == 0
    reopened = await SqliteStore(path).open()
    assert (await reopened.counts())["default"] == {State.READY: 301}
    await reopened.close()


async def test_a_failing_request_does_not_fail_others_of_its_commit(store: SqliteStore) -> None:
    """If one request of a commit fails, each of them runs alone."""

    def broken(step: object) -> None:
        raise ZeroDivisionError

    hold = threading.Event()
    first = store._writer.submit(lambda step: hold.wait(10), durable=False)
    good = asyncio.create_task(store.insert([group("a")]))
    bad = store._writer.submit(broken, durable=True)
    also_good = asyncio.create_task(store.insert([group("b")]))
    await asyncio.sleep(0)
    hold.set()
    results = await asyncio.gather(first, good, bad, also_good, return_exceptions=True)
    assert isinstance(results[2], StoreError)
    assert isinstance(results[2].__cause__, ZeroDivisionError)
    assert [job is not None for job in await store.get(["a", "b"])] == [True, True]


async def test_waiting_callers_share_a_commit(store: SqliteStore) -> None:
    commits = 0
    commit = store._writer._commit

    def counting(requests: list[object]) -> None:
        nonlocal commits
        commits += 1
        commit(requests)  # type: ignore[arg-type]

    store._writer._commit = counting  # type: ignore[method-assign,assignment]
    hold = threading.Event()
    first = store._writer.submit(lambda step: hold.wait(10), durable=False)
    callers = [asyncio.create_task(store.insert([group(f"job-{n}")])) for n in range(50)]
    await asyncio.sleep(0)
    hold.set()
    await asyncio.gather(first, *callers)
    assert commits <= 3
    assert (await store.counts())["default"] == {State.READY: 50}
