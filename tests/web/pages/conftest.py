"""An application in virtual time, and who looks at it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.web.pages.visitor import Visitor
from tidemill import Tidemill, testing
from tidemill.testing.kits import AsyncKit
from tidemill.web import Role


@pytest.fixture
def app() -> Tidemill:
    return Tidemill("memory://")


@pytest.fixture
async def kit(app: Tidemill) -> AsyncIterator[AsyncKit]:
    async with testing.kit(app) as kit:
        yield kit


@pytest.fixture
def admin(app: Tidemill, kit: AsyncKit) -> Visitor:
    return Visitor(app, Role.ADMIN)
