"""Filters and global functions of every template: numbers, times, links, static files, translations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from jinja2 import Environment

from tidemill.core.validation import format_bytes
from tidemill.web.i18n import LANGUAGES, translator

_MAX_ID_CHARS = 24
_MAX_GROUPED_NUMBER = 1e15
_HOUR_SECONDS = 3600
_ROUNDING_STEPS = ((2 * _HOUR_SECONDS, 60), (48 * _HOUR_SECONDS, 600))


def format_number(value: float) -> str:
    """Formats a number with thousands separators and at most two decimals."""
    if abs(value) >= _MAX_GROUPED_NUMBER:
        return f"{value:g}"
    return f"{int(value):,}" if value == int(value) else f"{value:,.2f}"


def format_iso(wall: float) -> str:
    """Returns a Unix time as ISO 8601 text in UTC; empty if it is out of range."""
    try:
        return datetime.fromtimestamp(wall, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return ""


def format_utc(wall: float) -> str:
    """Formats a time in UTC, for browsers without scripts."""
    return format_iso(wall).replace("T", " ").replace("Z", " UTC") or f"Unix time {wall:g}"


def format_json(value: Any) -> str:
    """Formats data as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def format_percent(share: float) -> str:
    return f"{share * 100:.0f}%"


def round_forecast(wall: float, now: float) -> float:
    """Returns the time of a forecast, rounded up to a minute. A time 2 hours or more after `now` is rounded
    up to ten minutes, 48 hours or more to an hour."""
    ahead = wall - now
    step = next((step for near, step in _ROUNDING_STEPS if ahead < near), _HOUR_SECONDS)
    return -(-wall // step) * step


def sparkline_points(values: Sequence[float], width: float = 100, height: float = 20) -> str:
    """Returns the points of an SVG polyline through the values, the largest at the top."""
    largest = max(values, default=0) or 1
    step = width / max(len(values) - 1, 1)
    return " ".join(
        f"{index * step:.1f},{height - value / largest * (height - 2) - 1:.1f}"
        for index, value in enumerate(values)
    )


def shorten_id(name: str) -> str:
    """Shortens a long id to its beginning and its end."""
    return name if len(name) <= _MAX_ID_CHARS else f"{name[:10]}…{name[-8:]}"


def format_input_number(value: float | None) -> str:
    """Formats a number for an input field: no separators, no trailing ".0", empty for None."""
    return "" if value is None else f"{value:.12g}"


def format_input_duration(seconds: float | None) -> str:
    """Formats a duration for an input field, such as `1h30m`; empty for None."""
    if seconds is None:
        return ""
    if seconds != int(seconds):
        return f"{format_input_number(seconds)}s"
    parts, left = [], int(seconds)
    for unit, length in (("d", 86_400), ("h", _HOUR_SECONDS), ("m", 60), ("s", 1)):
        count, left = divmod(left, length)
        parts.append(f"{count}{unit}" if count else "")
    return "".join(parts) or "0s"


def merge_dicts(values: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {**values, **more}


def option_pairs(values: Sequence[str]) -> list[tuple[str, str]]:
    """Returns (value, label) pairs for a select field. The label is the value itself."""
    return [(value, value) for value in values]


TEMPLATE_FILTERS: Mapping[str, Callable[..., Any]] = {
    "number": format_number,
    "iso": format_iso,
    "utc": format_utc,
    "bytes": format_bytes,
    "json": format_json,
    "percent": format_percent,
    "round_forecast": round_forecast,
    "sparkline": sparkline_points,
    "input_number": format_input_number,
    "input_duration": format_input_duration,
    "short_id": shorten_id,
    "merge": merge_dicts,
    "options": option_pairs,
}


STATIC_FOLDER = Path(__file__).parent / "static"
DIGEST_CHARS = 12


def template_globals(environment: Environment, prefix: str, language: str) -> dict[str, Any]:
    """Returns the functions and values that every template can use, such as `t` (translate), `link` and `ui`
    (the macros). `prefix` is the path at which the dashboard is mounted."""
    translate = translator(language)
    values = {
        "t": translate,
        "link": link_builder(prefix),
        "static": _static_url_builder(prefix),
        "duration": translate.duration,
        "language": language,
        "languages": LANGUAGES,
    }
    return values | {"ui": environment.get_template("macros.html").make_module(values)}


def link_builder(prefix: str) -> Callable[..., str]:
    def link(path: str, /, *parts: str, **query: Any) -> str:
        """Returns a link: `link("/jobs/{}", id)`. Each {} is replaced by one of `parts`, percent-encoded.
        Empty values of `query` are left out; a list becomes one parameter per element."""
        filled_path = path.format(*(quote(part, safe="") for part in parts))
        parameters = {name: value for name, value in query.items() if value not in (None, "", (), [])}
        return (
            f"{prefix}{filled_path}?{urlencode(parameters, doseq=True)}"
            if parameters
            else f"{prefix}{filled_path}"
        )

    return link


build_path = link_builder("")
"""Builds paths for `Redirect`, which adds the prefix itself."""


def _static_url_builder(prefix: str) -> Callable[[str], str]:
    def static(name: str) -> str:
        """Returns the address of a static file. The address contains the file's digest, so that browsers may
        cache the file forever."""
        return f"{prefix}/static/{name}?v={_file_digest(name)}"

    return static


@cache
def _file_digest(name: str) -> str:
    return sha256((STATIC_FOLDER / name).read_bytes()).hexdigest()[:DIGEST_CHARS]
