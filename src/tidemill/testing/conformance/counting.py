"""How often a store asks the core for something."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest


class Counted:
    """`since` is how often it was called since the last look."""

    def __init__(self) -> None:
        self.times = 0

    def since(self) -> int:
        times, self.times = self.times, 0
        return times


def counted(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> Counted:
    """Calls of that function of the module, which go on as before."""
    count, real = Counted(), getattr(module, name)

    def counting(*args: Any) -> Any:
        count.times += 1
        return real(*args)

    monkeypatch.setattr(module, name, counting)
    return count
