from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.notifications.receiver import SECRET, ForbiddenListener, Receiver
from tidemill.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("WEBHOOK_SECRET", SECRET)
    monkeypatch.setenv("TIDEMILL_WEBHOOKS_ALLOW", "127.0.0.1")
    receiver = Receiver()
    receiver.start()
    yield receiver
    receiver.stop()


@pytest.fixture
def canary() -> Iterator[ForbiddenListener]:
    canary = ForbiddenListener()
    yield canary
    canary.close()
