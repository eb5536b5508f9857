"""The database file: its permissions, and what happens when it disappears."""

import asyncio
import multiprocessing
import os
import stat
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tests.stores.sqlite.conftest import group
from tests.web.api.api_client import ApiClient, shop_app
from tests.web.asgi_client import send_request
from tidemill import Tidemill
from tidemill.app.stores import make_store
from tidemill.clock import SystemClock, SystemEntropy
from tidemill.contract.coordination import queue_topic
from tidemill.core.claims import ClaimRequest, QueueShare
from tidemill.errors import ConfigurationError, StoreCorrupt, StoreUnavailable
from tidemill.store_url import StoreUrl, holds_secrets, mask_url
from tidemill.stores.sqlite import SqliteStore
from tidemill.telemetry.events import StoreLost, StoreRecovered

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def permissions(path: Path) -> str:
    return f"{stat.S_IMODE(path.stat().st_mode):04o}"


@pytest.mark.parametrize(
    ("url", "file", "folder"),
    [
        ("sqlite:///{path}", "0600", "0700"),
        ("sqlite:///{path}?mode=0660", "0660", "0770"),
        ("sqlite:///{path}?mode=0644", "0644", "0755"),
    ],
    ids=["default", "group", "readable"],
)
@pytest.mark.usefixtures("umask")
async def test_every_file_is_created_with_the_mode(path: Path, url: str, file: str, folder: str) -> None:
    parsed = StoreUrl.parse(url.format(path=path))
    store = await make_store(parsed, SystemClock(), SystemEntropy()).open()
    await store.insert([group("a")])
    listener = store.listen([queue_topic("default")])
    listener.arm()
    assert {name.name: permissions(name) for name in path.parent.iterdir()} == {
        "jobs.db": file,
        "jobs.db-wal": file,
        "jobs.db-shm": file,
        "jobs.db-wake": folder,
    }
    wake = path.with_name("jobs.db-wake")
    assert {(name.is_dir(), permissions(name)) for name in wake.rglob("*")} == {
        (True, folder),
        (False, file),
    }
    listener.close()
    await store.close()


async def test_an_existing_file_keeps_its_mode(path: Path) -> None:
    path.touch()
    path.chmod(0o640)
    store = await SqliteStore(path).open()
    await store.insert([group("a")])
    assert {permissions(name) for name in path.parent.iterdir()} == {"0640"}
    await store.close()


async def test_a_link_to_a_file_that_does_not_exist_is_followed(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "target.db"
    path.symlink_to(target)
    store = await SqliteStore(path).open()
    assert permissions(target) == "0600"
    await store.close()


async def test_a_folder_keeps_its_setgid_bit(path: Path) -> None:
    path.parent.chmod(0o2770)
    store = await SqliteStore(path, mode=0o660).open()
    listener = store.listen([queue_topic("default")])
    assert permissions(path.with_name("jobs.db-wake")) == "2770"
    listener.close()
    await store.close()


async def test_u1_a_world_readable_file_causes_a_warning(path: Path) -> None:
    path.touch()
    path.chmod(0o644)
    store = await SqliteStore(path).open()
    (warning,) = (await store.describe()).warnings
    assert f"{path} can be read by every user of this machine (mode 0644)" in warning
    assert "chmod o-rwx" in warning
    await store.close()
    store = await SqliteStore(path, mode=0o644).open()
    assert (await store.describe()).warnings == ()
    await store.close()


def test_the_url_names_the_mode() -> None:
    assert StoreUrl.parse("sqlite:///jobs.db").mode == 0o600
    url = StoreUrl.parse("sqlite:////var/lib/jobs.db?mode=0660")
    assert (url.path, url.mode, str(url)) == ("/var/lib/jobs.db", 0o660, "sqlite:////var/lib/jobs.db")
    assert StoreUrl.parse("sqlite:///jobs.db?mode=640").mode == 0o640
    assert mask_url("sqlite:///jobs.db?mode=0660") == "sqlite:///jobs.db?mode=0660"
    assert not holds_secrets("sqlite:///jobs.db?mode=0660")


@pytest.mark.parametrize("mode", ["", "0770", "0400", "0060", "432", "01660", "0888"])
def test_a_mode_that_cannot_work_is_refused(mode: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"^url: mode: must be .* such as 0600 or 0660; is '"
    ) as caught:
        StoreUrl.parse(f"sqlite:///jobs.db?mode={mode}")
    assert f"is {mode!r}" in str(caught.value)


@pytest.mark.parametrize(
    "options", ["?node=0660", "?mode=0660&mode=0600", "?mode=0660&x=1", "#mode=0660", "?"]
)
def test_other_options_are_refused(options: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"the only option of a sqlite URL is mode, such as \?mode=0660"
    ):
        StoreUrl.parse(f"sqlite:///jobs.db{options}")


def delete(path: Path) -> None:
    for file in path.parent.iterdir():
        file.unlink()


def replace(path: Path) -> None:
    other = path.with_name("other.db")
    _insert(other)
    for ending in ("-wal", "-shm"):
        path.with_name(f"{path.name}{ending}").unlink()
    other.replace(path)


def _insert(path: Path) -> None:
    async def main() -> None:
        store = await SqliteStore(path).open()
        await store.insert([group("other")])
        await store.close()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    thread.join()


def remove_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


def replace_folder(path: Path) -> None:
    remove_folder(path)
    path.parent.mkdir()
    _insert(path)


LOSSES = pytest.mark.parametrize("lose", [delete, replace, remove_folder, replace_folder])


@LOSSES
async def test_i1_no_job_is_accepted_into_a_deleted_file(
    tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    (tmp_path / "folder").mkdir()
    path = tmp_path / "folder" / "jobs.db"
    store = await SqliteStore(path).open()
    await store.insert([group("a")])
    await store.get(["a"])
    lose(path)
    request = ClaimRequest(worker="w", number=1, shares=(QueueShare("default", 1),), limit=1, lease=30.0)
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.insert([group("b")]),
        lambda: store.insert([group("c", "d")]),
        lambda: store.claim(request),
        lambda: store.get(["a"]),
        store.counts,
        store.compact,
        store.read_clock,
        lambda: asyncio.to_thread(store.blocking.insert, [group("e")]),
        lambda: asyncio.to_thread(store.blocking.get, ["a"]),
    ]
    for call in calls:
        with pytest.raises(StoreUnavailable, match=r"was deleted.*put it back|was replaced.*stop") as caught:
            await call()
        assert str(path) in str(caught.value)
    await store.close()
    assert not path.exists() or (await _ids(path)) == ["other"]


async def test_a_worker_reports_a_missing_file_and_continues_when_it_is_back(path: Path) -> None:
    app = Tidemill(f"sqlite:///{path}")
    lost, back = asyncio.Event(), asyncio.Event()
    events: list[StoreLost] = []

    @app.on(StoreLost, StoreRecovered)
    def _(event: StoreLost | StoreRecovered) -> None:
        if isinstance(event, StoreLost):
            events.append(event)
        (lost if isinstance(event, StoreLost) else back).set()

    async with app:
        worker = app.worker(poll=0.05)
        running = asyncio.create_task(worker.run())
        await worker.started.wait()
        path.rename(path.with_name("elsewhere.db"))
        async with asyncio.timeout(20):
            await lost.wait()
        path.with_name("elsewhere.db").rename(path)
        async with asyncio.timeout(20):
            await back.wait()
        worker.stop()
        await running
    assert [event.error for event in events] == ["StoreUnavailable"]
    assert f"{path}: the database file was deleted or moved" in events[0].message


async def test_the_web_server_reports_a_missing_file(path: Path) -> None:
    api = ApiClient(shop_app(f"sqlite:///{path}"))
    async with api.app:
        assert (await send_request(api.server.starlette, "GET", "/readyz")).status == 200
        assert (await api("GET", "/jobs")).status == 200
        path.rename(path.with_name("elsewhere.db"))
        assert (await send_request(api.server.starlette, "GET", "/readyz")).status == 503
        answer = await api("GET", "/jobs")
        assert answer.status == 503
        assert "the database file was deleted or moved" in answer.json["detail"]


async def _ids(path: Path) -> list[str]:
    store = await SqliteStore(path).open()
    found = await store.get(["other", "a", "b", "c", "d", "e"])
    await store.close()
    return [job.id for job in found if job is not None]


async def test_a_file_that_is_moved_back_is_used_again(path: Path, store: SqliteStore) -> None:
    path.rename(path.with_name("elsewhere.db"))
    with pytest.raises(StoreUnavailable, match="was deleted or moved"):
        await store.insert([group("a")])
    path.with_name("elsewhere.db").rename(path)
    await store.insert([group("b")])
    assert await _ids(path) == ["a", "b"]


async def test_another_handle_does_not_create_a_file_that_was_deleted(path: Path, store: SqliteStore) -> None:
    delete(path)
    with pytest.raises(StoreUnavailable, match="was deleted or moved"):
        await store.new_handle().open()
    assert not path.exists()


def _hold(path: Path, ready: Connection) -> None:
    """Keeps a store open until the parent hangs up."""

    async def run() -> None:
        store = await SqliteStore(path).open()
        await store.insert([group("held")])
        ready.send(True)
        with suppress(EOFError):
            await asyncio.to_thread(ready.recv)

    asyncio.run(run())


async def test_i1_no_file_is_created_while_another_process_uses_the_deleted_one(path: Path) -> None:
    """Both would share the index of one write-ahead log, and jobs accepted into the new file would be lost
    when the other process ended."""
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=_hold, args=(path, theirs))
    process.start()
    theirs.close()
    assert await asyncio.to_thread(ours.recv)
    path.unlink()
    with pytest.raises(StoreUnavailable, match="another process uses it, so no new one is created; put it"):
        await SqliteStore(path).open()
    assert not path.exists()
    process.kill()
    await asyncio.to_thread(process.join)
    ours.close()
    store = await SqliteStore(path).open()
    await store.insert([group("a")])
    await store.close()
    reopened = await SqliteStore(path).open()
    assert [job is not None for job in await reopened.get(["a", "held"])] == [True, False]
    await reopened.close()


async def test_a_handle_that_is_closed_does_not_forget_the_file(path: Path, store: SqliteStore) -> None:
    await (await store.new_handle().open()).close()
    delete(path)
    with pytest.raises(StoreUnavailable, match="was deleted or moved"):
        await store.insert([group("a")])


async def test_a_reopened_store_uses_the_current_file(path: Path, store: SqliteStore) -> None:
    replace(path)
    await store.close()
    await store.open()
    assert await _ids(path) == ["other"]
    await store.insert([group("a")])
    assert await _ids(path) == ["other", "a"]


async def test_a_file_that_could_not_be_opened_may_be_replaced(path: Path) -> None:
    path.write_text("Dear diary, today I was not a database at all. " * 40)
    store = SqliteStore(path)
    with pytest.raises(StoreCorrupt):
        await store.insert([group("a")])
    path.unlink()
    await store.insert([group("a")])
    await store.close()
    assert await _ids(path) == ["a"]


async def test_a_fork_does_not_create_a_file_that_was_deleted(path: Path, store: SqliteStore) -> None:
    """Connections are opened again after a fork."""
    delete(path)
    child = os.fork()
    if child == 0:
        try:
            store.blocking.insert([group("a")])
        except StoreUnavailable:
            os._exit(7)
        os._exit(0)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    assert not path.exists()


async def test_another_working_directory_is_not_another_file(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    store = await SqliteStore("jobs.db").open()
    monkeypatch.chdir(tmp_path / "elsewhere")
    await store.insert([group("a")])
    assert await store.counts()
    assert not (tmp_path / "elsewhere" / "jobs.db").exists()
    await store.close()
