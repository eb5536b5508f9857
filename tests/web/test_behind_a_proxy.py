"""Over real HTTP: who asks is who connects, unless a proxy says otherwise that is believed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
import pytest

from tidemill import Tidemill
from tidemill.seam.roles import Role
from tidemill.web.server import address_of, listen, served
from tidemill.web.welcome import link

SAID = {"x-forwarded-for": "203.0.113.9", "x-forwarded-proto": "https"}


@pytest.mark.parametrize("believed", [False, True])
async def test_what_a_proxy_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, believed: bool) -> None:
    if believed:
        monkeypatch.setenv("TIDEMILL_WEB_PROXIES", "127.0.0.1")
    app = Tidemill(f"sqlite:///{tmp_path / 'jobs.db'}")
    with listen("127.0.0.1", 0, chosen=True) as listening:
        address = address_of(listening, "127.0.0.1")
        async with app, served(app, listening), httpx2.AsyncClient() as client:
            where = await link(app, address, "ann", Role.ADMIN)
            shown, used = await client.get(where, headers=SAID), await client.post(where, headers=SAID)
            assert (shown.status_code, used.status_code) == (200, 303)
            assert ("; Secure" in used.headers["set-cookie"]) is believed
            [entry] = (await app.access.audit.page()).entries
            assert entry.address == ("203.0.113.9" if believed else "127.0.0.1")


async def test_of_many_at_once_one_uses_a_link(tmp_path: Path) -> None:
    app = Tidemill(f"sqlite:///{tmp_path / 'jobs.db'}")
    with listen("127.0.0.1", 0, chosen=True) as listening:
        address = address_of(listening, "127.0.0.1")
        async with app, served(app, listening), httpx2.AsyncClient() as client:
            where = await link(app, address, "ann", Role.ADMIN)
            used = await asyncio.gather(*(client.post(where) for _ in range(5)))
            assert sorted(answer.status_code for answer in used) == [303, 410, 410, 410, 410]
            cookies = [answer for answer in used if "set-cookie" in answer.headers]
            assert len(cookies) == 1
