"""At whom an application calls, as which account."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from tidemill import Secret
from tidemill_apps.common.environment import Settings

Provider = Literal["gemini", "openai"]
Address = Annotated[
    str,
    Meta(pattern=r"^(https?://[^\s?#@]+)?$", description="an address that begins with https:// or http://"),
]
Seconds = Annotated[float, Meta(gt=0, le=3600, description="a number of seconds above 0, at most 3600")]

ADDRESSES: dict[Provider, str] = {
    "gemini": "https://generativelanguage.googleapis.com",
    "openai": "https://api.openai.com/v1",
}


class Account(Settings, frozen=True, kw_only=True):
    """provider: whose words are spoken; `openai` is spoken by many.
    base_url: the provider's own when it is empty; for `openai` it ends with /v1 or whatever the server says.
    model: the application's usual one when it is empty.
    structured: `json_object` for servers that take no schema; it is then part of the question.
    simulator: whether a simulator is at the address: it is told which call is for which job."""

    provider: Provider = "gemini"
    key: Annotated[str, Secret] = ""
    base_url: Address = ""
    model: str = ""
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    timeout: Seconds = 120.0
    structured: Literal["json_schema", "json_object"] = "json_schema"
    simulator: bool = False

    @property
    def address(self) -> str:
        return (self.base_url or ADDRESSES[self.provider]).rstrip("/")

    @property
    def told(self) -> str:
        """For sentences: who, and where."""
        who = f"the simulator of {self.provider}" if self.simulator else self.provider
        return f"{who} ({urlsplit(self.address).netloc})"
