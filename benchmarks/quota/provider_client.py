"""The call to the provider, the same for every contender: one HTTP client without retries."""

from __future__ import annotations

import random
from typing import Any

import httpx2

from benchmarks.quota.process_settings import ProcessSettings

STATUS_REFUSED = 429


def build_request(setting: ProcessSettings, job: int) -> dict[str, Any]:
    account = setting.account
    headers = {
        "x-job": str(job),
        "x-input-tokens": str(account.input_tokens),
        "x-output-tokens": str(account.output_tokens),
    }
    return {"url": account.path, "json": account.body, "headers": headers}


def create_client(setting: ProcessSettings) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=setting.url, timeout=60, limits=_connection_limits())


def create_blocking_client(setting: ProcessSettings) -> httpx2.Client:
    return httpx2.Client(base_url=setting.url, timeout=60, limits=_connection_limits())


def compute_backoff(setting: ProcessSettings, refusals: int) -> float:
    """Returns a random delay up to 1 s, doubled by every refusal up to 60 s, as the providers' guides
    advise."""
    return setting.real(random.uniform(0, min(60.0, 2.0**refusals)))


def read_wait_seconds(setting: ProcessSettings, response: httpx2.Response) -> float:
    """Returns the wait from the response's hint in real seconds, or the window if it has no hint."""
    if said := response.headers.get("retry-after-ms"):
        return float(said) / 1000
    if said := response.headers.get("retry-after"):
        return float(said)
    for detail in response.json().get("error", {}).get("details", []):
        if said := detail.get("retryDelay"):
            return float(said.removesuffix("s"))
    return setting.real(setting.account.window)


def _connection_limits() -> httpx2.Limits:
    return httpx2.Limits(max_connections=None, max_keepalive_connections=None)
