"""What every process of a contender is told, by its environment."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Self

from benchmarks.quota.accounts import ACCOUNTS, Account

PREFIX = "QUOTA_"


@dataclass(frozen=True)
class Setting:
    """url: of the simulated provider. redis: the port of the server the peers share. rule: of the plain
    runner. workers: how many processes the contender has."""

    dialect: str
    url: str
    jobs: int
    scale: float
    folder: str
    redis: int = 0
    rule: str = ""
    workers: int = 1

    @property
    def account(self) -> Account:
        return ACCOUNTS[self.dialect]

    def real(self, seconds: float) -> float:
        """The provider's seconds in ours."""
        return seconds / self.scale

    def environment(self) -> dict[str, str]:
        return os.environ | {f"{PREFIX}{name.upper()}": str(value) for name, value in asdict(self).items()}

    @classmethod
    def here(cls) -> Self:
        said = {name: os.environ[f"{PREFIX}{name.upper()}"] for name in cls.__dataclass_fields__}
        numbers = {name: int(said.pop(name)) for name in ("jobs", "redis", "workers")}
        return cls(**said | {"scale": float(said["scale"])} | numbers)  # type: ignore[arg-type]
