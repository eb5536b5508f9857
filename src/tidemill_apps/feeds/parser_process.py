"""Parses feed documents in child processes, so that a hostile document cannot block or kill the worker.

Parent and child exchange frames over pipes: four bytes with the length, then MessagePack. This module is both
sides; `python -m tidemill_apps.feeds.parser_process` is the child."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from typing import BinaryIO, NamedTuple, Self, cast

import msgspec

from tidemill_apps.feeds.charsets import decode_document
from tidemill_apps.feeds.documents import FeedDocument, UnreadableFeed, parse_document
from tidemill_apps.feeds.html_content import FeedLink, find_feed_links

START_SECONDS = 60.0
DOCUMENTS_PER_PROCESS = 500
"""A child is replaced after this number of documents, before a leak of a library reaches the memory limit."""
_LENGTH_BYTES = 4


class ParserLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of each document, and the number of child processes."""

    seconds: float = 10.0
    max_memory_bytes: int = 768 * 1024 * 1024
    processes: int = 1


class ParserTask(NamedTuple):
    """A document for the child. It looks for links to feeds if `find_links` is True."""

    body: bytes
    content_type: str | None
    url: str
    find_links: bool = False


ParserResult = FeedDocument | list[FeedLink] | str
"""The answer of the child; a string is the message of UnreadableFeed."""


class FeedParser:
    """Parses documents in child processes. Use it as an async context manager, one for each event loop.

    A child starts when it is needed first. It is killed and replaced if a document exceeds a limit."""

    def __init__(self, limits: ParserLimits | None = None) -> None:
        self._limits = limits or ParserLimits()
        self._idle: asyncio.Queue[_ParserChild | None] = asyncio.Queue()
        for _ in range(self._limits.processes):
            self._idle.put_nowait(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        for _ in range(self._limits.processes):
            if child := await self._idle.get():
                await child.stop()

    async def parse(self, body: bytes, content_type: str | None, url: str) -> FeedDocument:
        """Returns the feed in a document. Raises UnreadableFeed if it has none or exceeds a limit."""
        return cast("FeedDocument", await self._run(ParserTask(body, content_type, url)))

    async def find_links(self, body: bytes, content_type: str | None, url: str) -> list[FeedLink]:
        """Returns the feeds that an HTML page names. Raises UnreadableFeed if the page exceeds a limit."""
        return cast("list[FeedLink]", await self._run(ParserTask(body, content_type, url, find_links=True)))

    async def _run(self, task: ParserTask) -> ParserResult:
        child, reusable = await self._idle.get(), None
        try:
            if child is None or not child.is_usable:
                child = await _ParserChild.start(self._limits)
            async with asyncio.timeout(self._limits.seconds):
                result = await child.exchange(task)
            reusable = child
        except TimeoutError:
            limit = f"{self._limits.seconds:g} seconds"
            raise UnreadableFeed(f"the document takes longer than {limit} to parse") from None
        except (EOFError, OSError):
            raise UnreadableFeed("the document made the parser process exceed its limits") from None
        finally:
            self._idle.put_nowait(reusable)
            if reusable is None and child is not None:  # its late answer would belong to another document
                await child.stop()
        if isinstance(result, str):
            raise UnreadableFeed(result)
        return result


class _ParserChild:
    """The parent's side of one child process."""

    def __init__(self, process: Process, sink: StreamWriter, source: StreamReader) -> None:
        self._process, self._sink, self._source = process, sink, source
        self._documents_left = DOCUMENTS_PER_PROCESS

    @classmethod
    async def start(cls, limits: ParserLimits) -> Self:
        """Starts a child and waits until it has loaded its libraries."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", __spec__.name, str(limits.max_memory_bytes), str(limits.seconds)),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            start_new_session=True,  # Ctrl-C ends the worker, which still finishes its documents
            env={"PATH": os.environ.get("PATH", ""), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        child = cls(process, cast("StreamWriter", process.stdin), cast("StreamReader", process.stdout))
        try:
            async with asyncio.timeout(START_SECONDS):
                await child._read_frame()
        except (EOFError, TimeoutError) as error:
            await child.stop()
            raise RuntimeError("the parser process does not start; run it by hand to see why") from error
        except asyncio.CancelledError:
            await child.stop()
            raise
        return child

    @property
    def is_usable(self) -> bool:
        return self._process.returncode is None and self._documents_left > 0

    async def exchange(self, task: ParserTask) -> ParserResult:
        self._documents_left -= 1
        frame = msgspec.msgpack.encode(task)
        self._sink.write(len(frame).to_bytes(_LENGTH_BYTES) + frame)
        await self._sink.drain()
        return cast("ParserResult", msgspec.msgpack.decode(await self._read_frame(), type=ParserResult))

    async def _read_frame(self) -> bytes:
        length = int.from_bytes(await self._source.readexactly(_LENGTH_BYTES))
        return await self._source.readexactly(length)

    async def stop(self) -> None:
        """Kills the child and waits for its end."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


def serve(source: BinaryIO, sink: BinaryIO, *, max_memory_bytes: int, seconds: float) -> None:
    """Runs the child: answers tasks until the parent closes the pipe or a limit is exceeded."""
    import feedparser  # noqa: F401 - loaded before the first document, whose time is limited

    resource.setrlimit(resource.RLIMIT_AS, (max_memory_bytes, max_memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _write_frame(sink, b"")
    while header := source.read(_LENGTH_BYTES):
        task = msgspec.msgpack.decode(source.read(int.from_bytes(header)), type=ParserTask)
        used = resource.getrusage(resource.RUSAGE_SELF)
        cpu_seconds = int(used.ru_utime + used.ru_stime + seconds) + 2
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, resource.RLIM_INFINITY))
        _write_frame(sink, msgspec.msgpack.encode(_result(task)))


def _result(task: ParserTask) -> ParserResult:
    try:
        if task.find_links:
            return find_feed_links(decode_document(task.body, task.content_type), task.url)
        return parse_document(task.body, task.content_type, task.url)
    except UnreadableFeed as error:
        return str(error)
    except MemoryError:
        return "the document needs too much memory to parse"
    except Exception as error:  # noqa: BLE001 - any error of a library is one about this document
        return f"the document cannot be parsed ({type(error).__name__})"


def _write_frame(sink: BinaryIO, frame: bytes) -> None:
    sink.write(len(frame).to_bytes(_LENGTH_BYTES) + frame)
    sink.flush()


if __name__ == "__main__":
    frames = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library that prints must not write into the frames
    serve(sys.stdin.buffer, frames, max_memory_bytes=int(sys.argv[1]), seconds=float(sys.argv[2]))
