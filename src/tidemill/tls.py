"""TLS contexts for client connections.

Connections with the same files share a context. After a certificate file has changed, the next connection
gets a new context; no restart is needed."""

from __future__ import annotations

import os
import ssl

import msgspec

from tidemill.errors import ConfigurationError

FileVersion = tuple[int, int, int]
"""Inode, time of the last change and size; zeros if the file does not exist."""


class TlsFiles(msgspec.Struct, frozen=True):
    """The PEM files of a TLS client.

    - `ca`: the trusted certificates; empty for those of the system
    - `cert`, `key`: the client's own certificate and key
    - `verify`: False trusts every server"""

    ca: str = ""
    cert: str = ""
    key: str = ""
    verify: bool = True


SYSTEM_TRUST = TlsFiles()


def client_context(files: TlsFiles = SYSTEM_TRUST, *, source: str = "tls") -> ssl.SSLContext:
    """Returns the TLS context for these files. Raises `ConfigurationError` if a file is unreadable; after a
    first success it returns the earlier context instead. `source`: the setting's name for the error
    message."""
    paths = (files.ca or ssl.get_default_verify_paths().cafile or "", files.cert, files.key)
    versions = tuple(_file_version(path) for path in paths)
    known = _CONTEXTS.get(files)
    if known is not None and known[0] == versions:
        return known[1]
    try:
        made = _new_context(files, source)
    except ConfigurationError:
        if known is None:
            raise
        return known[1]  # the next connection tries again
    if known is None and len(_CONTEXTS) >= _MAX_CONTEXTS:
        _CONTEXTS.clear()
    _CONTEXTS[files] = versions, made
    return made


_CONTEXTS: dict[TlsFiles, tuple[tuple[FileVersion, ...], ssl.SSLContext]] = {}
_MAX_CONTEXTS = 16


def _new_context(files: TlsFiles, source: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=files.ca or None)
    except OSError as error:
        raise _unreadable(source, "ca", files.ca) from error
    if not files.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if files.cert:
        try:
            context.load_cert_chain(files.cert, files.key or None)
        except OSError as error:
            raise _unreadable(source, "cert or key", files.cert) from error
    return context


def _file_version(path: str) -> FileVersion:
    try:
        found = os.stat(path)  # noqa: PTH116 - asked before every connection; Path costs more than the call
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_mtime_ns, found.st_size)


def _unreadable(source: str, option: str, path: str) -> ConfigurationError:
    return ConfigurationError(
        f"{source}: {option}: {path} cannot be read as a PEM file; give the path of one"
    )
