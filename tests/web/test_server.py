"""Over real HTTP: the client address is that of the connection, or of a trusted proxy's header."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2
import pytest

from tidemill import Tidemill
from tidemill.errors import ConfigurationError
from tidemill.http_routes.routes import Role
from tidemill.web.server import browser_url, listen, serve_dashboard
from tidemill.web.sign_in import create_sign_in_link

SAID = {"x-forwarded-for": "203.0.113.9", "x-forwarded-proto": "https"}


@pytest.mark.parametrize("believed", [False, True])
async def test_only_a_trusted_proxy_sets_the_client_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, believed: bool
) -> None:
    if believed:
        monkeypatch.setenv("TIDEMILL_WEB_PROXIES", "127.0.0.1")
    app = Tidemill(f"sqlite:///{tmp_path / 'jobs.db'}")
    with listen("127.0.0.1", 0, port_is_fixed=True) as listening:
        address = browser_url(listening, "127.0.0.1")
        async with app, serve_dashboard(app, listening), httpx2.AsyncClient() as client:
            where = await create_sign_in_link(app, address, "ann", Role.ADMIN)
            shown, used = await client.get(where, headers=SAID), await client.post(where, headers=SAID)
            assert (shown.status_code, used.status_code) == (200, 303)
            assert ("; Secure" in used.headers["set-cookie"]) is believed
            [entry] = (await app.auth.audit.page()).entries
            assert entry.address == ("203.0.113.9" if believed else "127.0.0.1")


async def test_a_link_works_once_under_concurrency(tmp_path: Path) -> None:
    app = Tidemill(f"sqlite:///{tmp_path / 'jobs.db'}")
    with listen("127.0.0.1", 0, port_is_fixed=True) as listening:
        address = browser_url(listening, "127.0.0.1")
        async with app, serve_dashboard(app, listening), httpx2.AsyncClient() as client:
            where = await create_sign_in_link(app, address, "ann", Role.ADMIN)
            used = await asyncio.gather(*(client.post(where) for _ in range(5)))
            assert sorted(answer.status_code for answer in used) == [303, 410, 410, 410, 410]
            cookies = [answer for answer in used if "set-cookie" in answer.headers]
            assert len(cookies) == 1


def test_a_used_port_is_an_error_of_the_port() -> None:
    with listen("127.0.0.1", 0, port_is_fixed=True) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            ConfigurationError, match=rf"^port: 127.0.0.1:{port} .*; choose another with --port"
        ):
            listen("127.0.0.1", port, port_is_fixed=True)


def test_a_foreign_address_is_an_error_of_the_host() -> None:
    with pytest.raises(ConfigurationError, match=r"^host: 203.0.113.5:8750 .*; choose another with --host"):
        listen("203.0.113.5", 8750, port_is_fixed=True)
