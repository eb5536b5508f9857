"""An application in virtual time, and clients of its pages."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.web.pages.page_client import PageClient
from tidemill import Tidemill, testing
from tidemill.testing.kit import AsyncKit
from tidemill.web import Role


@pytest.fixture
def app() -> Tidemill:
    return Tidemill("memory://")


@pytest.fixture
async def kit(app: Tidemill) -> AsyncIterator[AsyncKit]:
    async with testing.kit(app) as kit:
        yield kit


@pytest.fixture
def admin(app: Tidemill, kit: AsyncKit) -> PageClient:
    return PageClient(app, Role.ADMIN)
