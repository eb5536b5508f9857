"""In which language a page is."""

from __future__ import annotations

from starlette.requests import Request

from tidemill.web.wording import LANGUAGES

CHOSEN = "tidemill-language"


def language_of(request: Request) -> str:
    """The one that was chosen by hand, else the first the browser asks for that there is."""
    chosen = request.cookies.get(CHOSEN, "")
    if chosen in LANGUAGES:
        return chosen
    wanted = sorted(_wanted(request.headers.get("accept-language", "")), key=lambda each: -each[1])
    return next((name for name, _ in wanted if name in LANGUAGES), next(iter(LANGUAGES)))


def _wanted(header: str) -> list[tuple[str, float]]:
    """`zh-CN,zh;q=0.9,en;q=0.8` as names with how much each is wanted."""
    found = []
    for part in header.split(",")[:20]:
        name, _, quality = part.partition(";q=")
        try:
            found.append((name.strip().partition("-")[0].lower(), float(quality or 1)))
        except ValueError:
            continue
    return found
