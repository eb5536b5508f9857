"""Wake-ups within and across processes.

Every listener has a Unix datagram socket in a folder beside the database. Arming links the
socket into a folder per topic. Ringing removes one link there and then sends one byte to its
socket, so that the next ring finds the next idle worker. The order matters: a worker may arm
again as soon as it is rung, and a link that is removed afterwards would be the new one. A busy
worker has no links and is not disturbed.
Without Unix sockets, or when the folder cannot be written, listeners simply wait out their
time: wake-ups are hints.
"""

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
from tidemill.contract.wakeups import job_topic
from tidemill.stores.sqlite.forking import survive_forks

_LONGEST_ADDRESS = 100
_LINK_TRIES = 10


class Wakeups:
    """`mode` are the permissions of the sockets; folders can also be entered."""

    def __init__(self, path: Path, entropy: Entropy, mode: int) -> None:
        self.folder = path.with_name(path.name + "-wake")
        self.mode = mode
        self._entropy = entropy
        self._paths: dict[str, str] = {}
        self._swept = False
        self._start_afresh()
        survive_forks(self, reader=False)

    def _start_afresh(self) -> None:
        self._lock = threading.Lock()
        self._armed: dict[str, list[SqliteListener]] = {}

    def listen(self, topics: Iterable[str]) -> SqliteListener:
        if not self._swept:
            self._swept = True
            _sweep(self.folder)
        return SqliteListener(self, tuple(topics), self._entropy.new_id())

    def announce(self, topics: Iterable[str], ended: Sequence[str]) -> None:
        """Ring what a committed step asks for. Jobs that ended ring only if anyone waits for one."""
        self.ring(topics)
        waited_for = {name for name in self._folders() if name.startswith("job-")} if ended else set()
        with self._lock:
            local = {topic for topic in self._armed if topic.startswith("job:")}
        if waited_for or local:
            over = [job_topic(job) for job in ended]
            self.ring(topic for topic in over if topic in local or folder_of(topic) in waited_for)

    def ring(self, topics: Iterable[str]) -> None:
        for topic in topics:
            one = topic.startswith("queue:")
            if not (self._ring_here(topic, one=one) and one):
                self._ring_elsewhere(topic, one=one)

    def before_fork(self) -> None:
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """The listeners remembered here live in the parent, behind their sockets."""
        self._start_afresh()

    def make_folder(self, folder: Path) -> None:
        """A folder that is there keeps its permissions; a new one keeps the bit that hands on its group."""
        try:
            folder.mkdir(0o700)
        except FileExistsError:
            return
        may_enter = (self.mode & 0o444) >> 2
        with contextlib.suppress(OSError):  # another process removed it, or gave it its permissions
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

    def _ring_here(self, topic: str, *, one: bool) -> bool:
        with self._lock:
            sleeping = [listener for listener in self._armed.get(topic, ()) if not listener.rung]
            for listener in sleeping[:1] if one else sleeping:
                listener.wake()
        return bool(sleeping)

    def _ring_elsewhere(self, topic: str, *, one: bool) -> None:
        folder = self._paths.get(topic)
        if folder is None:
            folder = str(self.folder / folder_of(topic))
            if topic.startswith("queue:"):
                self._paths[topic] = folder
        if not os.access(folder, os.F_OK):
            return  # cheaper than the exception below, and this is asked at every enqueue
        try:
            links = os.listdir(folder)  # noqa: PTH208 - names are all that is needed, at a fifth of the cost
        except OSError:
            return
        for link in links:
            if _send(Path(folder, link)) and one:
                return
        if not links:
            with contextlib.suppress(OSError):
                Path(folder).rmdir()  # whoever listened here was killed

    def _folders(self) -> list[str]:
        try:
            return os.listdir(self.folder)  # noqa: PTH208 - see above
        except OSError:
            return []


class SqliteListener:
    """`name` is never used twice: what a killed process left behind stands in nobody's way."""

    def __init__(self, wakeups: Wakeups, topics: tuple[str, ...], name: str) -> None:
        self.topics = topics
        self.rung = False
        self._wakeups = wakeups
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._name = name
        self._folders = [wakeups.folder / folder_of(topic) for topic in topics]
        self._address = wakeups.folder / f"{self._name}.sock"
        self._socket = self._bind()

    def arm(self) -> None:
        self._wakeups.disarm(self)
        self.rung = False
        self._event.clear()
        self._wakeups.arm(self)
        if self._socket is not None:
            for folder in self._folders:
                self._link(folder)

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109 - the contract's word
        # Not wait_for: on Python 3.11 it swallows a cancellation that meets a ring.
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
                folder.rmdir()  # fails, rightly, while others listen there

    def wake(self) -> None:
        """From any thread."""
        self.rung = True
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
            # The last listener of another process closed just now and took the folder along.
            self._wakeups.make_folder(self._wakeups.folder)
            with _short(self._address) as address:
                bound.bind(address)
        self._address.chmod(self._wakeups.mode)

    def _link(self, folder: Path) -> None:
        """A link that is there already stays. Another process may remove an empty folder at any time."""
        with contextlib.suppress(OSError):
            for _ in range(_LINK_TRIES):
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
        self.rung = True
        self._event.set()


def folder_of(topic: str) -> str:
    """A topic as a folder's name: any queue name fits, whatever its characters."""
    kind = topic.split(":", 1)[0]
    return f"{kind}-{blake2b(topic.encode(), digest_size=12).hexdigest()}"


def _send(link: Path) -> bool:
    """Ring one listener. False if another process removed the link first and rings it, if the listener's
    process died, or if that is stopped with its buffer full of rings: then another one is rung."""
    try:
        link.unlink()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ringing, _short(_address(link)) as address:
            ringing.setblocking(False)
            ringing.sendto(b"!", address)
    except OSError:
        return False
    return True


def _address(link: Path) -> Path:
    return link.parent.with_name(f"{link.name}.sock")


def _sweep(folder: Path) -> None:
    """Take away the sockets of processes that were killed."""
    for left in folder.glob("*.sock"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking, _short(left) as address:
            try:
                asking.connect(address)
            except ConnectionRefusedError:
                _unlink(left)
            except OSError:
                continue


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """A socket address holds about 100 bytes; a longer path is reached through its open folder."""
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS:
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
