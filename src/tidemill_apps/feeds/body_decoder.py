"""Decompresses bodies in small pieces, so that a compression bomb is noticed before it fills the memory."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol

import brotli

PIECE_BYTES = 65_536
_GZIP_WINDOW_BITS = 31
_GZIP_MAGIC = b"\x1f\x8b"


class InvalidEncoding(ValueError):
    """Raised if a body is not compressed as its header says. The message is a sentence for people."""


class BodyDecoder(Protocol):
    """Decompresses one body."""

    def decode(self, chunk: bytes) -> Iterator[bytes]:
        """Yields the decompressed pieces of the next chunk. Raises InvalidEncoding."""

    def close(self) -> None:
        """Ends the body. Raises InvalidEncoding if the compressed data is cut off."""


def body_decoder(content_encoding: str) -> BodyDecoder:
    """Returns the decoder for a Content-Encoding header. Raises InvalidEncoding if there is none."""
    name = content_encoding.strip().lower()
    if name in ("", "identity", "none"):
        return _PlainBody()
    if name in ("gzip", "x-gzip"):
        return _GzipBody()
    if name == "br":
        return _BrotliBody()
    raise InvalidEncoding(f"the body has the Content-Encoding {name[:40]!r}; gzip and br are supported")


class _PlainBody:
    def decode(self, chunk: bytes) -> Iterator[bytes]:
        yield chunk

    def close(self) -> None:
        pass


class _GzipBody:
    """A gzip stream of one or more members. Other bytes after a member are padding and are ignored."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        self._started = False

    def decode(self, chunk: bytes) -> Iterator[bytes]:
        self._started = True
        while True:
            if self._member.eof:
                if not chunk.startswith(_GZIP_MAGIC):
                    return
                self._member = zlib.decompressobj(_GZIP_WINDOW_BITS)
            try:
                piece = self._member.decompress(chunk, PIECE_BYTES)
            except zlib.error:
                raise InvalidEncoding("the body is not compressed with gzip as its header says") from None
            yield piece
            chunk = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            if not chunk and len(piece) < PIECE_BYTES:
                return

    def close(self) -> None:
        if self._started and not self._member.eof:
            raise InvalidEncoding("the compressed body is cut off")


class _BrotliBody:
    def __init__(self) -> None:
        self._stream = brotli.Decompressor()
        self._started = False

    def decode(self, chunk: bytes) -> Iterator[bytes]:
        self._started = True
        try:
            if not self._stream.is_finished():
                yield self._stream.process(chunk, output_buffer_limit=PIECE_BYTES)
            while not self._stream.is_finished() and not self._stream.can_accept_more_data():
                yield self._stream.process(b"", output_buffer_limit=PIECE_BYTES)
        except brotli.error:
            raise InvalidEncoding("the body is not compressed with brotli as its header says") from None

    def close(self) -> None:
        if self._started and not self._stream.is_finished():
            raise InvalidEncoding("the compressed body is cut off")
