from __future__ import annotations

from tests.worker.conftest import virtually

__all__ = ["virtually"]
