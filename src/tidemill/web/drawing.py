"""What every template can use, in every part of it: words, links, and the macros of `macros.html` as `ui`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment

from tidemill.web.wording import LANGUAGES, words

STATIC = Path(__file__).parent / "static"
LETTERS_OF_A_DIGEST = 12


def tools(environment: Environment, prefix: str, language: str) -> dict[str, Any]:
    """The macros are made once for each place and language: a part of a page that is drawn by itself does not
    run the imports at the top of its template."""
    say = words(language)
    held = {
        "t": say,
        "link": links(prefix),
        "static": _statics(prefix),
        "duration": say.duration,
        "language": language,
        "languages": LANGUAGES,
    }
    return held | {"ui": environment.get_template("macros.html").make_module(held)}


def links(prefix: str) -> Callable[..., str]:
    def link(path: str, /, *parts: str, **query: Any) -> str:
        """`link("/jobs/{}", id)`: each {} is a part, whatever it is made of. Of the query, what is None or
        empty is left out, and a list comes several times."""
        place = path.format(*(quote(part, safe="") for part in parts))
        given = {name: value for name, value in query.items() if value not in (None, "", (), [])}
        return f"{prefix}{place}?{urlencode(given, doseq=True)}" if given else f"{prefix}{place}"

    return link


address = links("")
"""For `Go`, which knows where the dashboard is mounted."""


def _statics(prefix: str) -> Callable[[str], str]:
    def static(name: str) -> str:
        """Its address changes with what is in it, so that browsers may keep it for ever."""
        return f"{prefix}/static/{name}?v={_digest(name)}"

    return static


@cache
def _digest(name: str) -> str:
    return sha256((STATIC / name).read_bytes()).hexdigest()[:LETTERS_OF_A_DIGEST]
