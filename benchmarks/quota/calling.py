"""The call itself, the same for every contender: one HTTP client, no retries of its own."""

from __future__ import annotations

import random
from typing import Any

import httpx2

from benchmarks.quota.setting import Setting

REFUSED = 429


def request(setting: Setting, job: int) -> dict[str, Any]:
    account = setting.account
    headers = {
        "x-job": str(job),
        "x-input-tokens": str(account.input_tokens),
        "x-output-tokens": str(account.output_tokens),
    }
    return {"url": account.path, "json": account.body, "headers": headers}


def client(setting: Setting) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=setting.url, timeout=60, limits=_many())


def blocking_client(setting: Setting) -> httpx2.Client:
    return httpx2.Client(base_url=setting.url, timeout=60, limits=_many())


def backoff(setting: Setting, refusals: int) -> float:
    """1 s, doubled by every refusal up to 60 s, and anything up to that: what providers' guides advise."""
    return setting.real(random.uniform(0, min(60.0, 2.0**refusals)))


def told_to_wait(setting: Setting, response: httpx2.Response) -> float:
    """Seconds by the answer's hint, already in our time; the window where it gives none."""
    if said := response.headers.get("retry-after-ms"):
        return float(said) / 1000
    if said := response.headers.get("retry-after"):
        return float(said)
    for detail in response.json().get("error", {}).get("details", []):
        if said := detail.get("retryDelay"):
            return float(said.removesuffix("s"))
    return setting.real(setting.account.window)


def _many() -> httpx2.Limits:
    return httpx2.Limits(max_connections=None, max_keepalive_connections=None)
