"""A vector in a column: float32, little-endian."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
FLOAT_BYTES = 4


def packed(vector: Sequence[float]) -> bytes:
    return np.asarray(vector, dtype="<f4").tobytes()


def unpacked(stored: bytes) -> Vector:
    return np.frombuffer(stored, dtype="<f4")
