"""The settings of a contender's processes, passed by environment variables."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Self

from benchmarks.quota.accounts import ACCOUNTS, BenchmarkAccount

PREFIX = "QUOTA_"


@dataclass(frozen=True)
class ProcessSettings:
    """Settings of one process.

    `url` is of the simulated provider. `redis` is the port of the server that the peers share. `rule`
    selects the simple limiter. `workers` is the contender's number of processes."""

    dialect: str
    url: str
    jobs: int
    scale: float
    folder: str
    redis: int = 0
    rule: str = ""
    workers: int = 1

    @property
    def account(self) -> BenchmarkAccount:
        return ACCOUNTS[self.dialect]

    def real(self, seconds: float) -> float:
        """Converts the provider's seconds to real seconds."""
        return seconds / self.scale

    def environment(self) -> dict[str, str]:
        return os.environ | {f"{PREFIX}{name.upper()}": str(value) for name, value in asdict(self).items()}

    @classmethod
    def here(cls) -> Self:
        said = {name: os.environ[f"{PREFIX}{name.upper()}"] for name in cls.__dataclass_fields__}
        numbers = {name: int(said.pop(name)) for name in ("jobs", "redis", "workers")}
        return cls(**said | {"scale": float(said["scale"])} | numbers)  # type: ignore[arg-type]
