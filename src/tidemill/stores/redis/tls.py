"""Speaking in secret: what a `rediss` URL asks for, as Python's `ssl` wants it."""

from __future__ import annotations

import ssl

from tidemill.errors import ConfigurationError
from tidemill.stores.redis.address import Tls


def context_of(tls: Tls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.ca or None)
    except OSError as error:
        raise _unreadable("ca", tls.ca) from error
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert:
        try:
            context.load_cert_chain(tls.cert, tls.key or None)
        except OSError as error:
            raise _unreadable("cert or key", tls.cert) from error
    return context


def _unreadable(option: str, path: str) -> ConfigurationError:
    return ConfigurationError(
        f"url (rediss://…): {option}: {path} cannot be read as a PEM file; give the path of one"
    )
