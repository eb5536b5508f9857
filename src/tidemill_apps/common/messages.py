"""Messages of an application in its languages: one file per language, such as `locales/en.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

from tidemill.web import PageResponse, Redirect, RouteRequest

DEFAULT_LANGUAGE = "en"


class MessageTranslator(Protocol):
    def __call__(self, key: str, /, **values: object) -> str: ...


class MessageCatalogue:
    """The messages of all languages in `folder`. A message is found by its language and its key. The key of a
    message inside a TOML table is `table.key`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def languages(self) -> Mapping[str, Mapping[str, str]]:
        files = self.folder.glob("*.toml")
        return {file.stem: dict(_flatten(tomllib.loads(file.read_text(encoding="utf-8")))) for file in files}

    def translate(self, language: str, key: str, /, **values: object) -> str:
        """Returns the message `key` in `language`, with `values` inserted. If the language has no such
        message, it uses the English one."""
        found = self.languages.get(language, {})
        text = found[key] if key in found else self.languages[DEFAULT_LANGUAGE][key]
        return text.format(**values)

    def translator(self, language: str) -> MessageTranslator:
        """Returns the function `translate` with its language already set, for templates."""
        return partial(self.translate, language)

    def page(
        self, request: RouteRequest, template: str, context: Mapping[str, Any], live: tuple[str, ...] = ()
    ) -> PageResponse:
        """Returns a page made from `template`. In the template, `t_app` returns a message in the user's
        language. `live` names the parts of the page that refresh by themselves."""
        return PageResponse(template, {"t_app": self.translator(request.language), **context}, live=live)

    def redirect(self, request: RouteRequest, path: str, key: str, /, **values: object) -> Redirect:
        """Returns a redirect to the page `path`, which shows the message `key`."""
        return Redirect(path, notice=self.translate(request.language, key, **values))


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
