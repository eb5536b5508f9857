"""The cookies of a sign-in."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import cookie_parser

from tidemill.web.hosts import netloc_of


@dataclass(frozen=True)
class Place:
    """Where a browser reaches the dashboard. Cookies are of a host whatever the port, so the name has it: two
    dashboards on one machine do not sign each other out."""

    host: str
    secure: bool
    prefix: str

    def name(self, what: str) -> str:
        netloc = netloc_of(self.host)
        port = (netloc and netloc.port) or (443 if self.secure else 80)
        return f"tidemill-{what}-{port}"

    def read(self, what: str, header: str | None) -> str | None:
        return cookie_parser(header or "").get(self.name(what))

    def write(self, what: str, value: str, lasts: float) -> str:
        parts = [
            f"{self.name(what)}={value}",
            f"Path={self.prefix or '/'}",
            f"Max-Age={int(lasts)}",
            "HttpOnly",
            "SameSite=Strict",
        ]
        return "; ".join([*parts, "Secure"] if self.secure else parts)

    def erase(self, what: str) -> str:
        return self.write(what, "", 0)
