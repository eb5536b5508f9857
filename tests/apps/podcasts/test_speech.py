"""Speech adapters: real espeak-ng, the simulator of `/audio/speech`, and a service over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from tests.apps.podcasts.podcast_texts import MILLS, MILLS_ZH
from tests.apps.podcasts.service_kit import simulated_speech, speech_simulator
from tidemill.testing.simulator import Quota
from tidemill.testing.simulator.speech import speak_text
from tidemill_apps.common.audio import AudioError, check_part, count_seconds, decode, run_program
from tidemill_apps.common.model_clients import AnswerUnusable
from tidemill_apps.common.speech import (
    SpeechSettings,
    SpeechUnavailable,
    hash_part,
    open_speech,
    predict_seconds,
    use_openai_key,
)


@pytest.mark.parametrize(("text", "language"), [(MILLS.text, "en"), (MILLS_ZH.text, "zh")])
async def test_espeak_speaks_both_languages(text: str, language: Any) -> None:
    adapter = open_speech(SpeechSettings())
    assert adapter.is_offline
    reply = await adapter.speak(text, language, call_id="")
    samples = await decode(reply.audio)
    assert check_part(samples, predict_seconds(adapter, text)) > 10


async def test_a_missing_program_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    adapter = open_speech(SpeechSettings())
    with pytest.raises(SpeechUnavailable, match=r"^speech: the program espeak-ng is not .*apt install"):
        await adapter.speak("text", "en", call_id="")


async def test_openai_is_called_with_voice_model_speed_and_format() -> None:
    async with speech_simulator() as server:
        adapter = open_speech(simulated_speech(server.url, speed=2.0))
        reply = await adapter.speak("潮" * 100, "zh", call_id="job")
        assert count_seconds(await decode(reply.audio)) == pytest.approx(12.0, abs=0.1)
        [bill] = server.provider.request_log.bills
        assert (bill.kind, bill.model, bill.mark) == ("speech", "tts-1", "job")
        await adapter.close()


async def test_a_refusal_is_an_error_that_the_pool_understands() -> None:
    async with speech_simulator(Quota.rolling("requests", 1)) as server:
        adapter = open_speech(simulated_speech(server.url))
        await adapter.speak("one", "en", call_id="")
        with pytest.raises(httpx2.HTTPStatusError, match=r"the speech simulator .* answered 429"):
            await adapter.speak("two", "en", call_id="")
        await adapter.close()


@asynccontextmanager
async def serve_once(kind: str, content: bytes) -> AsyncIterator[tuple[str, list[bytes]]]:
    seen: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        seen.append(head + await reader.readexactly(length))
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(content)}\r\n\r\n".encode()
        writer.write(head + content)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/synthesize", seen


async def test_a_generic_service_gets_the_text_and_its_language() -> None:
    async with serve_once("audio/wav", speak_text("hello there")) as (url, seen):
        settings = SpeechSettings(provider="http", url=url, key="k3y", voice="xiaoyu", unit="bytes")
        adapter = open_speech(settings)
        assert (adapter.limit, adapter.unit) == (5000, "bytes")
        await adapter.speak("潮水", "zh", call_id="")
        await adapter.close()
    assert b"POST /synthesize" in seen[0]
    assert b"authorization: Bearer k3y" in seen[0]
    assert '"text":"潮水","language":"zh"'.encode() in seen[0]


async def test_an_answer_that_is_no_audio_is_unusable() -> None:
    async with serve_once("application/json", b'{"error": "no"}') as (url, _):
        adapter = open_speech(SpeechSettings(provider="http", url=url))
        with pytest.raises(AnswerUnusable, match="no audio but application/json"):
            await adapter.speak("text", "en", call_id="")
        await adapter.close()


@pytest.mark.parametrize(
    "change",
    [{"voice": "nova"}, {"model": "tts-1-hd"}, {"speed": 1.5}, {"format": "mp3"}, {"url": "http://b"}],
)
def test_everything_that_changes_the_audio_is_in_the_digest(change: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"provider": "openai", "url": "http://a"}
    one, other = (
        open_speech(SpeechSettings(**settings)),
        open_speech(SpeechSettings(**{**settings, **change})),
    )
    assert hash_part(one, "en", "text") != hash_part(other, "en", "text")
    assert hash_part(one, "en", "text") == hash_part(open_speech(SpeechSettings(**settings)), "en", "text")
    assert hash_part(one, "en", "text") != hash_part(one, "en", "text.")


def test_the_key_of_openai_goes_to_openai_only() -> None:
    environment = {"OPENAI_API_KEY": "sk"}
    assert use_openai_key(SpeechSettings(), environment).chosen == "openai"
    assert use_openai_key(SpeechSettings(), {}).chosen == "espeak"
    assert use_openai_key(SpeechSettings(url="http://other"), environment).key == ""
    assert use_openai_key(SpeechSettings(provider="espeak"), environment).key == ""


@pytest.mark.parametrize(
    ("samples", "problem"),
    [
        (b"", "is empty"),
        (bytes(44_100 * 2 * 10), "sent silence"),
        (b"\x00\x40" * 44_100 * 60, "10 s are plausible"),
        (b"\x00\x40" * 10_000, "10 s are plausible"),
    ],
)
def test_unsound_parts_are_refused(samples: bytes, problem: str) -> None:
    with pytest.raises(AudioError, match=problem):
        check_part(samples, 10.0)


async def test_audio_that_cannot_be_decoded_is_an_error() -> None:
    with pytest.raises(AudioError, match="failed with"):
        await decode(b"this is no audio")


async def test_a_program_that_hangs_is_killed() -> None:
    with pytest.raises(AudioError, match=r"sleep took longer than 0\.1 s"):
        await run_program(["sleep", "60"], seconds=0.1)
