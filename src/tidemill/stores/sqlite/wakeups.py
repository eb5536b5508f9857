"""Wake-ups within a process and between processes.

A topic names what a listener waits for, such as new jobs of a queue. Every listener has a Unix datagram
socket in a folder beside the database. To arm, a listener links its socket into one folder per topic. The
sender removes one link and then sends one byte to the linked socket. A busy worker has no links and is not
disturbed.

The sender must remove the link before it sends. A woken worker may arm again at once, and a late removal
would delete its new link. Without Unix sockets, listeners wait until their timeout."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import threading
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path

from tidemill.clock import Entropy
from tidemill.contract.coordination import job_topic
from tidemill.stores.sqlite.connection import survive_forks

_MAX_ADDRESS_BYTES = 100
_MAX_LINK_TRIES = 10


class SqliteWakeups:
    """Sends wake-ups and creates listeners, for one database file. `mode`: the permissions of the socket
    files."""

    def __init__(self, path: Path, entropy: Entropy, mode: int) -> None:
        self.folder = path.with_name(path.name + "-wake")
        self.mode = mode
        self._entropy = entropy
        self._paths: dict[str, str] = {}
        self._cleaned = False
        self._reset()
        survive_forks(self, reader=False)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._armed: dict[str, list[SqliteListener]] = {}

    def listen(self, topics: Iterable[str]) -> SqliteListener:
        if not self._cleaned:
            self._cleaned = True
            _delete_dead_sockets(self.folder)
        return SqliteListener(self, tuple(topics), self._entropy.new_id())

    def announce(self, topics: Iterable[str], ended: Sequence[str]) -> None:
        """Sends the wake-ups of a committed transaction. `ended`: the ids of jobs that ended."""
        self.wake(topics)
        awaited = {name for name in self._folders() if name.startswith("job-")} if ended else set()
        with self._lock:
            local = {topic for topic in self._armed if topic.startswith("job:")}
        if awaited or local:
            ended_topics = [job_topic(job) for job in ended]
            self.wake(topic for topic in ended_topics if topic in local or folder_name(topic) in awaited)

    def wake(self, topics: Iterable[str]) -> None:
        for topic in topics:
            only_one = topic.startswith("queue:")
            if not (self._wake_here(topic, only_one=only_one) and only_one):
                self._wake_other_process(topic, only_one=only_one)

    def before_fork(self) -> None:
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Drops all listeners in the forked process, because they belong to the parent process."""
        self._reset()

    def make_folder(self, folder: Path) -> None:
        """Creates a folder with the permissions for wake-ups. An existing folder stays unchanged."""
        try:
            folder.mkdir(0o700)
        except FileExistsError:
            return
        may_enter = (self.mode & 0o444) >> 2
        with contextlib.suppress(OSError):  # another process removed it or set its permissions
            folder.chmod(folder.stat().st_mode & stat.S_ISGID | self.mode | may_enter)

    def arm(self, listener: SqliteListener) -> None:
        with self._lock:
            for topic in listener.topics:
                self._armed.setdefault(topic, []).append(listener)

    def disarm(self, listener: SqliteListener) -> None:
        with self._lock:
            for topic in listener.topics:
                armed = self._armed.get(topic, [])
                if listener in armed:
                    armed.remove(listener)
                if not armed:
                    self._armed.pop(topic, None)

    def _wake_here(self, topic: str, *, only_one: bool) -> bool:
        with self._lock:
            sleeping = [listener for listener in self._armed.get(topic, ()) if not listener.is_woken]
            for listener in sleeping[:1] if only_one else sleeping:
                listener.wake()
        return bool(sleeping)

    def _wake_other_process(self, topic: str, *, only_one: bool) -> None:
        folder = self._paths.get(topic)
        if folder is None:
            folder = str(self.folder / folder_name(topic))
            if topic.startswith("queue:"):
                self._paths[topic] = folder
        if not os.access(folder, os.F_OK):
            return  # cheaper than the exception below, and every enqueue comes here
        try:
            links = os.listdir(folder)  # noqa: PTH208 - names are all that is needed, at a fifth of the cost
        except OSError:
            return
        for link in links:
            if _send(Path(folder, link)) and only_one:
                return
        if not links:
            with contextlib.suppress(OSError):
                Path(folder).rmdir()  # the process that listened here was killed

    def _folders(self) -> list[str]:
        try:
            return os.listdir(self.folder)  # noqa: PTH208 - see above
        except OSError:
            return []


class SqliteListener:
    """Waits for wake-ups of some topics. `name`: unique and never reused, so that files of a killed process
    do no harm."""

    def __init__(self, wakeups: SqliteWakeups, topics: tuple[str, ...], name: str) -> None:
        self.topics = topics
        self.is_woken = False
        self._wakeups = wakeups
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._name = name
        self._folders = [wakeups.folder / folder_name(topic) for topic in topics]
        self._address = wakeups.folder / f"{self._name}.sock"
        self._socket = self._bind()

    def arm(self) -> None:
        self._wakeups.disarm(self)
        self.is_woken = False
        self._event.clear()
        self._wakeups.arm(self)
        if self._socket is not None:
            for folder in self._folders:
                self._link(folder)

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109 - the contract's word
        # Not wait_for: on Python 3.11 it swallows a cancellation that arrives together with a wake-up.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._event.wait()
        return self._event.is_set()

    def disarm(self) -> None:
        self._wakeups.disarm(self)
        if self._socket is not None:
            for folder in self._folders:
                _unlink(folder / self._name)

    def close(self) -> None:
        self.disarm()
        if self._socket is None:
            return
        self._loop.remove_reader(self._socket)
        self._socket.close()
        self._socket = None
        _unlink(self._address)
        for folder in (*self._folders, self._wakeups.folder):
            with contextlib.suppress(OSError):
                folder.rmdir()  # fails while others listen there

    def wake(self) -> None:
        """Wakes the listener, from any thread."""
        self.is_woken = True
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._event.set)

    def _bind(self) -> socket.socket | None:
        try:
            bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        except (OSError, AttributeError):
            return None
        try:
            self._bind_to_folder(bound)
            bound.setblocking(False)
            self._loop.add_reader(bound, self._received)
        except (OSError, NotImplementedError):
            bound.close()
            return None
        return bound

    def _bind_to_folder(self, bound: socket.socket) -> None:
        self._wakeups.make_folder(self._wakeups.folder)
        try:
            with _short(self._address) as address:
                bound.bind(address)
        except FileNotFoundError:
            # The last listener of another process has just closed and removed the folder.
            self._wakeups.make_folder(self._wakeups.folder)
            with _short(self._address) as address:
                bound.bind(address)
        self._address.chmod(self._wakeups.mode)

    def _link(self, folder: Path) -> None:
        """Links the socket into the folder of a topic. An existing link stays. Creates the folder if it is
        missing."""
        with contextlib.suppress(OSError):
            for _ in range(_MAX_LINK_TRIES):
                try:
                    os.link(self._address, folder / self._name)
                except FileNotFoundError:
                    self._wakeups.make_folder(folder)
                else:
                    return

    def _received(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.recv(16)
        self.is_woken = True
        self._event.set()


def folder_name(topic: str) -> str:
    """Returns the name of a topic's folder. The name contains a hash of the topic, because a queue name may
    contain any character."""
    kind = topic.split(":", 1)[0]
    return f"{kind}-{blake2b(topic.encode(), digest_size=12).hexdigest()}"


def _send(link: Path) -> bool:
    """Wakes the listener behind `link` and returns True. Returns False if no byte was sent; the caller then
    wakes another listener."""
    try:
        link.unlink()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, _short(_address(link)) as address:
            sender.setblocking(False)
            sender.sendto(b"!", address)
    except OSError:
        return False
    return True


def _address(link: Path) -> Path:
    return link.parent.with_name(f"{link.name}.sock")


def _delete_dead_sockets(folder: Path) -> None:
    """Deletes the socket files in `folder` whose process was killed."""
    for path in folder.glob("*.sock"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe, _short(path) as address:
            try:
                probe.connect(address)
            except ConnectionRefusedError:
                _unlink(path)
            except OSError:
                continue


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """Yields a socket address of at most 100 bytes for `path`, because the system refuses longer
    addresses."""
    if len(os.fsencode(path)) <= _MAX_ADDRESS_BYTES:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
