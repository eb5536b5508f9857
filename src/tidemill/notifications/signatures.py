"""Signs webhook deliveries and verifies them, by the Standard Webhooks specification.

The signature covers id, time and body, so a recorded delivery cannot be changed. The receiver refuses old
deliveries. The id is the same in every attempt, so a receiver can ignore a repeated delivery.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Iterator, Mapping

import msgspec

from tidemill.clock import Clock, SystemClock
from tidemill.errors import ConfigurationError, SignatureInvalid

ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER = "webhook-id", "webhook-timestamp", "webhook-signature"
MIN_SECRET_BYTES = 16
REPLAY_WINDOW_SECONDS = 300.0

_SIGNATURE_VERSION = "v1"
_BASE64_SECRET_PREFIX = "whsec_"  # noqa: S105 - a public prefix, not a secret


class VerifiedDelivery(msgspec.Struct, frozen=True):
    """A delivery with a valid signature. Store its `id` for the time `within` that you gave to `verify`, and
    ignore a second delivery with the same id."""

    id: str
    timestamp: int


def signature_headers(secret: str, id_: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Returns the headers of a signed delivery. For key rotation `secret` may hold several secrets, separated
    by white space; each secret adds a signature. `timestamp` is a Unix time in seconds."""
    made = [f"{_SIGNATURE_VERSION},{_sign(key, id_, timestamp, body)}" for key in signing_keys(secret)]
    return {ID_HEADER: id_, TIMESTAMP_HEADER: str(timestamp), SIGNATURE_HEADER: " ".join(made)}


def verify(
    body: bytes,
    headers: Mapping[str, str],
    secret: str,
    *,
    within: float = REPLAY_WINDOW_SECONDS,
    clock: Clock | None = None,
) -> VerifiedDelivery:
    """Verifies a webhook delivery in the receiver; call it before you use the body. Returns the delivery's id
    and time. Raises SignatureInvalid if the signature is wrong or older than `within` seconds.

    - `body`: the request's raw bytes
    - `secret`: one or several secrets, separated by white space; one must match
    """
    known = {name.lower(): value for name, value in headers.items()}
    missing = [name for name in (ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER) if not known.get(name)]
    if missing:
        raise SignatureInvalid(f"the header {missing[0]} is missing; this is no webhook of ours")
    id_, timestamp = known[ID_HEADER], _parse_timestamp(known[TIMESTAMP_HEADER])
    away = abs((clock or SystemClock()).wall() - timestamp)
    if away > within:
        raise SignatureInvalid(
            f"{TIMESTAMP_HEADER}: is {away:.0f} seconds away, more than {within:g}: it is old and sent again "
            "by somebody, or one of the two clocks is wrong"
        )
    signatures = [text.partition(",") for text in known[SIGNATURE_HEADER].split()]
    theirs = [value.encode() for version, _, value in signatures if version == _SIGNATURE_VERSION]
    ours = [_sign(key, id_, timestamp, body).encode() for key in signing_keys(secret)]
    if not any(hmac.compare_digest(own, other) for own in ours for other in theirs):
        raise SignatureInvalid(
            f"{SIGNATURE_HEADER}: does not fit: another secret made it, or the body was changed"
        )
    return VerifiedDelivery(id_, timestamp)


def signing_keys(secret: str) -> list[bytes]:
    found = list(_decode_secrets(secret))
    if not found or min(map(len, found)) < MIN_SECRET_BYTES:
        raise ConfigurationError(f"secret: must have {MIN_SECRET_BYTES} bytes or more; make a longer one")
    return found


def _decode_secrets(secret: str) -> Iterator[bytes]:
    for text in secret.split():
        if not text.startswith(_BASE64_SECRET_PREFIX):
            yield text.encode()
            continue
        try:
            yield base64.b64decode(text.removeprefix(_BASE64_SECRET_PREFIX), validate=True)
        except binascii.Error:
            raise ConfigurationError(f"secret: what follows {_BASE64_SECRET_PREFIX} must be Base64") from None


def _sign(key: bytes, id_: str, timestamp: int, body: bytes) -> str:
    content = f"{id_}.{timestamp}.".encode() + body
    return base64.b64encode(hmac.digest(key, content, "sha256")).decode()


def _parse_timestamp(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise SignatureInvalid(f"{TIMESTAMP_HEADER}: must be a Unix time in whole seconds, is {text[:30]!r}")
    return int(text)
