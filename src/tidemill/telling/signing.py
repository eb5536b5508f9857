"""How a receiver knows that a delivery is ours, and new: the scheme of the Standard Webhooks specification.

The signature covers id, time and body. Who records one cannot change it, and cannot use it for long; the
id is the same in every attempt of a delivery, so a receiver that keeps ids takes each once.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Iterator, Mapping

import msgspec

from tidemill.clock import Clock, SystemClock
from tidemill.errors import ConfigurationError, SignatureInvalid

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
SHORTEST_SECRET = 16
REPLAY_WINDOW = 300.0

_VERSION = "v1"
_ENCODED = "whsec_"


class Verified(msgspec.Struct, frozen=True):
    """A delivery that is ours. Keep the `id` for as long as `within`, and drop another with it: a delivery
    whose answer was lost is made again."""

    id: str
    timestamp: int


def signed(secret: str, id_: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of a delivery. Several secrets, with white space between them, sign it several times: so
    that one can be replaced while receivers still have the other."""
    made = [f"{_VERSION},{_sign(key, id_, timestamp, body)}" for key in keys(secret)]
    return {ID: id_, TIMESTAMP: str(timestamp), SIGNATURE: " ".join(made)}


def verify(
    body: bytes,
    headers: Mapping[str, str],
    secret: str,
    *,
    within: float = REPLAY_WINDOW,
    clock: Clock | None = None,
) -> Verified:
    """For whoever receives webhooks: raises SignatureInvalid unless the delivery was signed with `secret`, or
    with one of several, and not longer ago than `within` seconds. `body` is the request's, byte for byte."""
    known = {name.lower(): value for name, value in headers.items()}
    missing = [name for name in (ID, TIMESTAMP, SIGNATURE) if not known.get(name)]
    if missing:
        raise SignatureInvalid(f"the header {missing[0]} is missing; this is no webhook of ours")
    id_, timestamp = known[ID], _whole(known[TIMESTAMP])
    away = abs((clock or SystemClock()).wall() - timestamp)
    if away > within:
        raise SignatureInvalid(
            f"{TIMESTAMP}: is {away:.0f} seconds away, more than {within:g}: it is old and sent again by "
            "somebody, or one of the two clocks is wrong"
        )
    given = [text.partition(",") for text in known[SIGNATURE].split()]
    theirs = [value.encode() for version, _, value in given if version == _VERSION]
    ours = [_sign(key, id_, timestamp, body).encode() for key in keys(secret)]
    if not any(hmac.compare_digest(one, other) for one in ours for other in theirs):
        raise SignatureInvalid(f"{SIGNATURE}: does not fit: another secret made it, or the body was changed")
    return Verified(id_, timestamp)


def keys(secret: str) -> list[bytes]:
    found = list(_keys(secret))
    if not found or min(map(len, found)) < SHORTEST_SECRET:
        raise ConfigurationError(f"secret: must have {SHORTEST_SECRET} bytes or more; make a longer one")
    return found


def _keys(secret: str) -> Iterator[bytes]:
    for text in secret.split():
        if not text.startswith(_ENCODED):
            yield text.encode()
            continue
        try:
            yield base64.b64decode(text.removeprefix(_ENCODED), validate=True)
        except binascii.Error:
            raise ConfigurationError(f"secret: what follows {_ENCODED} must be Base64") from None


def _sign(key: bytes, id_: str, timestamp: int, body: bytes) -> str:
    content = f"{id_}.{timestamp}.".encode() + body
    return base64.b64encode(hmac.digest(key, content, "sha256")).decode()


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise SignatureInvalid(f"{TIMESTAMP}: must be a Unix time in whole seconds, is {text[:30]!r}")
    return int(text)
