"""Looking after the store itself."""

# ruff: noqa: S101 - a test suite asserts
from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.core.outcomes import Fail, Retrying
from tidemill.core.queues import QueueSettings
from tidemill.errors import ConfigurationError
from tidemill.testing.conformance.driver import OOPS, Driver, ids, new


async def work(drive: Driver) -> None:
    """Jobs in many states, and a lane at its limit."""
    await drive.store.declare({"q": QueueSettings(key_concurrency=1)})
    await drive.add(*"abcd", new("e", key="k"), new("f", key="k"), new("g", delay=9.0))
    jobs = await drive.take()
    for job, outcome in zip(jobs, (None, Fail(OOPS), Retrying(5.0, OOPS)), strict=False):
        await drive.settle(job, outcome)


def listing(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


class TestUpkeep:
    async def test_u1_what_it_is(self, drive: Driver) -> None:
        await work(drive)
        before = await drive.store.counts()
        facts = await drive.store.describe()
        assert facts.kind
        assert facts.engine
        assert facts.location
        assert all(warning.strip() for warning in facts.warnings)
        assert await drive.store.counts() == before

    async def test_u2_a_store_that_works_is_whole(self, drive: Driver) -> None:
        assert await drive.store.check() == ()
        await work(drive)
        assert await drive.store.check() == ()
        drive.clock.advance(60.0)
        await drive.take("x")
        assert await drive.store.check() == ()

    async def test_u3_a_target_that_exists_is_refused(self, drive: Driver, tmp_path: Path) -> None:
        target = tmp_path / "copy"
        target.write_text("mine")
        before = listing(tmp_path)
        with pytest.raises(ConfigurationError):
            await drive.store.backup(target)
        assert target.read_text() == "mine"
        assert listing(tmp_path) == before

    async def test_u4_compacting_changes_no_job(self, drive: Driver) -> None:
        await work(drive)
        before = await drive.store.get([*"abcdefg"])
        await drive.store.compact()
        assert await drive.store.get([*"abcdefg"]) == before
        assert await drive.store.check() == ()
        drive.clock.advance(9.0)
        assert sorted(ids(await drive.take())) == ["b", "f", "g"]
