"""A receiver can verify who sent a delivery, that it is unchanged, and that it is recent."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from tests.notifications.receiver import SECRET
from tidemill.clock import SystemClock
from tidemill.errors import ConfigurationError, SignatureInvalid
from tidemill.notifications import verify
from tidemill.notifications.signatures import signature_headers
from tidemill.testing import ManualClock

BODY = b'{"event": "feed.refreshed"}'


def _headers(clock: ManualClock) -> dict[str, str]:
    return signature_headers(SECRET, "webhook-1", int(clock.wall()), BODY)


def test_the_specifications_own_example_verifies() -> None:
    """The example of the Standard Webhooks specification; receivers may use any library that follows it."""
    headers = {
        "Webhook-Id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "Webhook-Timestamp": "1614265330",
        "Webhook-Signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - published in the specification
    found = verify(b'{"test": 2432232314}', headers, secret, clock=ManualClock(1614265330.0))
    assert found.id == "msg_p5jXN8AQM9LWM0D4loKWxJek"


@pytest.mark.parametrize("secret", ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", SECRET])
def test_the_library_of_standard_webhooks_agrees(secret: str) -> None:
    """The library verifies our signatures, and we verify the library's. It uses the real clock."""
    judge = Webhook(secret if secret.startswith("whsec_") else secret.encode())
    clock = SystemClock()
    ours = signature_headers(secret, "webhook-1", int(clock.wall()), BODY)
    assert judge.verify(BODY, ours) == {"event": "feed.refreshed"}
    with pytest.raises(WebhookVerificationError):
        judge.verify(BODY + b" ", ours)
    at = datetime.fromtimestamp(int(clock.wall()), UTC)
    theirs = {**ours, "webhook-signature": judge.sign("webhook-1", at, BODY.decode())}
    assert verify(BODY, theirs, secret, clock=clock).id == "webhook-1"


def test_a_signed_body_verifies(clock: ManualClock) -> None:
    found = verify(BODY, _headers(clock), SECRET, clock=clock)
    assert (found.id, found.timestamp) == ("webhook-1", int(clock.wall()))


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("webhook-id", "webhook-2"),
        ("webhook-timestamp", "1700000001"),
        ("webhook-signature", "v1,AAAA"),
        ("webhook-signature", "v2,AAAA"),
        ("webhook-signature", "é"),
        ("webhook-timestamp", "soon"),
        ("webhook-timestamp", "-5"),
        ("webhook-id", ""),
    ],
)
def test_a_changed_header_is_refused_s16(clock: ManualClock, header: str, value: str) -> None:
    with pytest.raises(SignatureInvalid, match="webhook-"):
        verify(BODY, {**_headers(clock), header: value}, SECRET, clock=clock)


def test_another_body_or_another_secret_is_refused_s16(clock: ManualClock) -> None:
    with pytest.raises(SignatureInvalid, match="does not fit"):
        verify(BODY + b" ", _headers(clock), SECRET, clock=clock)
    with pytest.raises(SignatureInvalid, match="does not fit"):
        verify(BODY, _headers(clock), SECRET + "x", clock=clock)


@pytest.mark.parametrize("seconds", [301.0, -301.0])
def test_a_replayed_webhook_is_refused_s16(clock: ManualClock, seconds: float) -> None:
    headers = _headers(clock)
    clock.step_wall(seconds)
    with pytest.raises(SignatureInvalid, match="301 seconds away"):
        verify(BODY, headers, SECRET, clock=clock)
    verify(BODY, headers, SECRET, within=302, clock=clock)


def test_a_secret_can_be_replaced_while_receivers_have_the_old_one(clock: ManualClock) -> None:
    new = "another-secret-of-sixteen-and-more"
    headers = signature_headers(f"{new} {SECRET}", "webhook-1", int(clock.wall()), BODY)
    for one in (new, SECRET):
        verify(BODY, headers, one, clock=clock)


@pytest.mark.parametrize("secret", ["", "short", "whsec_c2hvcnQ=", "whsec_not Base64"])
def test_a_secret_that_protects_nothing_is_refused(clock: ManualClock, secret: str) -> None:
    with pytest.raises(ConfigurationError, match="secret: "):
        verify(BODY, _headers(clock), secret, clock=clock)
