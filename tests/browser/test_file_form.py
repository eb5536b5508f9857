"""A form of a page uploads a file, and shows why one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tidemill import Tidemill
from tidemill.http_routes.routes import Role
from tidemill.web import PageResponse, Redirect, RouteRequest, Upload
from tidemill.web.server import listen, serve_dashboard
from tidemill.web.sign_in import create_sign_in_link

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]

FORM = """{% extends "layout.html" %}
{% block title %}Songs{% endblock %}
{% block main %}
<form method="post" action="{{ link("/songs/add") }}" data-upload="{{ link("/songs") }}">
  <label>Song <input type="file" required></label>
  <p role="alert" hidden></p>
  <button>Send</button>
</form>
{% endblock %}
"""


def songs_app(folder: Path, received: list[tuple[str, int]]) -> Tidemill:
    (folder / "songs.html").write_text(FORM)
    app = Tidemill("memory://")
    app.web.templates(folder)
    accepted = Upload(max_bytes=100_000, media_types=("audio/mpeg",))

    @app.web.page("/songs", title="Songs")
    async def songs(_: RouteRequest) -> PageResponse:
        return PageResponse("songs.html")

    @app.web.route("POST", "/songs/add", role=Role.OPERATOR, summary="Add.", body=accepted)
    async def add(request: RouteRequest) -> Redirect:
        size = sum([len(chunk) async for chunk in request.body])
        received.append((request.body.filename, size))
        return Redirect("/songs", notice="It has arrived.")

    return app


async def test_a_form_uploads_a_file_and_shows_a_refusal(browser: Browser, tmp_path: Path) -> None:
    received: list[tuple[str, int]] = []
    app = songs_app(tmp_path, received)
    (tmp_path / "Lied é.mp3").write_bytes(b"x" * 50_000)
    (tmp_path / "long.mp3").write_bytes(b"x" * 100_001)
    with listen("127.0.0.1", 0, port_is_fixed=True) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        async with app, serve_dashboard(app, listening):
            page = await (await browser.new_context()).new_page()
            await page.goto(await create_sign_in_link(app, address, "ann", Role.OPERATOR))
            await page.locator("main button, form button").first.click()
            await page.goto(f"{address}/songs")
            await page.locator("input[type=file]").set_input_files(tmp_path / "long.mp3")
            await page.get_by_role("button", name="Send").click()
            await expect(page.locator("form [role=alert]")).to_contain_text("the file is over")
            assert received == []
            await page.locator("input[type=file]").set_input_files(tmp_path / "Lied é.mp3")
            await page.get_by_role("button", name="Send").click()
            await expect(page.get_by_text("It has arrived.")).to_be_visible()
            assert received == [("Lied é.mp3", 50_000)]
            await page.context.close()
