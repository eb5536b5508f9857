"""The blocks of a page that are drawn by themselves have what its template says at its top."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill import Tidemill
from tidemill.web import Asked, Page
from tidemill.web.inspecting import Shown
from tidemill.web.live import Looks
from tidemill.web.rendering import Renderer

PARTS = "{% macro loud(text) %}<b>{{ text }}</b>{% endmacro %}"
TOPS = {
    "import": ('{% import "parts.html" as parts %}', "{{ parts.loud(song) }}"),
    "from": ('{% from "parts.html" import loud %}', "{{ loud(song) }}"),
    "set": ("{% set greeting = song %}", "<b>{{ greeting }}</b>"),
}
FRAMES = {
    "in the frame": '{% extends "shell.html" %}\n',
    "by itself": "",
}


@pytest.mark.parametrize("top", TOPS)
@pytest.mark.parametrize("frame", FRAMES)
async def test_what_stands_at_the_top_is_there_in_a_block(tmp_path: Path, top: str, frame: str) -> None:
    says, shows = TOPS[top]
    (tmp_path / "parts.html").write_text(PARTS)
    block = "{% block main %}{% block figures %}" + shows + "{% endblock %}{% endblock %}"
    (tmp_path / "songs.html").write_text(f"{FRAMES[frame]}{says}\n{block}")
    async with Tidemill("memory://") as app:
        app.web.templates(tmp_path)
        asked = Asked(app=app, inspect=Shown(app), looks=Looks(app.clock))
        page = Page("songs.html", {"song": "<风>"}, live=("figures",))
        assert Renderer(app).blocks("", asked, page) == {"figures": "<b>&lt;风&gt;</b>"}
