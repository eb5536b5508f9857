"""Whole numbers as options, refused in a sentence that says what is accepted."""

from __future__ import annotations

from typing import Any

import click


class Whole(click.IntRange):
    name = "number"

    def __init__(self, least: int, most: int | None = None) -> None:
        super().__init__(min=least, max=most)
        self._accepted = f"of {least} or more" if most is None else f"from {least} to {most}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"must be a whole number {self._accepted}, is {value!r}", param, ctx)
