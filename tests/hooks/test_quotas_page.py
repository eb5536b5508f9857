"""The lines of the quotas page, one for each SDK, run unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.docs.page_runner import code_blocks
from tests.docs.pages import page
from tidemill.hooks.aiohttp_hooks import AiohttpTrace
from tidemill.hooks.httpx_hooks import HttpxHooks
from tidemill.hooks.requests_hooks import RequestsHook


def _is_watched(client: Any) -> bool:
    hooks = client.event_hooks
    return all(isinstance(hooks[kind][0].__self__, HttpxHooks) for kind in ("request", "response"))


async def test_the_page_s_line_watches_each_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [program] = [body for _, body in code_blocks(page("how-to/quotas.md")) if body.startswith("# watched.py")]
    made: dict[str, Any] = {}
    exec(compile(program, "watched.py", "exec"), made)  # noqa: S102 - runs the page's programs
    for name in ("openai_client", "anthropic_client"):
        assert _is_watched(made[name]._client), name
        await made[name].close()
    api = made["genai_client"]._api_client
    assert _is_watched(api._httpx_client)
    assert _is_watched(api._async_httpx_client)
    await made["genai_client"].aio.aclose()
    made["genai_client"].close()
    assert _is_watched(made["httpx_client"])
    await made["httpx_client"].aclose()
    assert isinstance(made["requests_session"].hooks["response"][0], RequestsHook)
    async with await made["aiohttp_session"]() as session:
        assert isinstance(session.trace_configs[0], AiohttpTrace)
