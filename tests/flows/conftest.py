"""An application with a few tasks for flows."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.flows.support import Studio
from tidemill import Tidemill, testing
from tidemill.testing.kit import AsyncKit


@pytest.fixture
def app() -> Tidemill:
    return Tidemill("memory://")


@pytest.fixture
def studio(app: Tidemill) -> Studio:
    return Studio(app)


@pytest.fixture
async def kit(app: Tidemill) -> AsyncIterator[AsyncKit]:
    async with testing.kit(app) as kit:
        yield kit
