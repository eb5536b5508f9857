"""Speech adapters: an OpenAI-compatible API, a generic HTTP service, and espeak-ng on this machine."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from tidemill import Secret, TidemillError
from tidemill_apps.common.audio import run_program
from tidemill_apps.common.model_clients import (
    AnswerUnusable,
    HttpUrl,
    ProviderAccount,
    ProviderHttpClient,
    TimeoutSeconds,
)
from tidemill_apps.common.sentences import Language, count_chinese
from tidemill_apps.common.settings import EnvironmentSettings, NonNegativeFloat, NonNegativeInt

SpeechProvider = Literal["openai", "http", "espeak"]
LimitUnit = Literal["characters", "bytes"]


class SpeechEndpoint(ProviderAccount, frozen=True, kw_only=True):
    """The account of a speech service as `ProviderHttpClient` needs it."""

    @property
    def label(self) -> str:
        who = "the speech simulator" if self.simulator else "the speech service"
        return f"{who} ({urlsplit(self.address).netloc})"


class SpeechSettings(EnvironmentSettings, frozen=True, kw_only=True):
    """The speech service and its voice.

    - `provider`: `auto` is `openai` if there is a key or an address, otherwise `espeak`.
    - `url`: for `openai` the base address, which mostly ends with /v1; for `http` the whole address.
    - `limit`: the maximum `unit` of one call; 0 for the adapter's own limit.
    - `usd_per_million`: the price of a million `unit`.
    - `simulator`: True if `url` is the address of a simulator.
    """

    provider: Literal["auto", "openai", "http", "espeak"] = "auto"
    key: Annotated[str, Secret] = ""
    url: HttpUrl = ""
    model: str = "tts-1"
    voice: str = ""
    format: Literal["wav", "mp3", "flac"] = "wav"
    speed: Annotated[float, Meta(ge=0.5, le=2)] = 1.0
    limit: NonNegativeInt = 0
    unit: LimitUnit = "characters"
    usd_per_million: NonNegativeFloat = 15.0
    timeout: TimeoutSeconds = 120.0
    simulator: bool = False

    @property
    def chosen(self) -> SpeechProvider:
        if self.provider != "auto":
            return self.provider
        return "openai" if self.key or self.url else "espeak"

    def endpoint(self) -> SpeechEndpoint:
        return SpeechEndpoint(
            provider="openai",
            key=self.key,
            base_url=self.url,
            timeout=self.timeout,
            simulator=self.simulator,
        )


def use_openai_key(settings: SpeechSettings, environment: Mapping[str, str]) -> SpeechSettings:
    """Returns the settings with the key of OPENAI_API_KEY, if neither a key nor an address is set. With an
    address the key would be sent to another server."""
    if settings.provider not in ("auto", "openai") or settings.key or settings.url:
        return settings
    return replace(settings, key=environment.get("OPENAI_API_KEY", "").strip())


ESPEAK = "espeak-ng"
ESPEAK_VOICES: dict[Language, str] = {"en": "en-us", "zh": "cmn"}
ESPEAK_WORDS_PER_MINUTE = 175
OPENAI_VOICE, OPENAI_LIMIT = "alloy", 4096
HTTP_LIMIT, ESPEAK_LIMIT = 5000, 2000


class SpeechUnavailable(TidemillError):
    """Raised if no speech can be made until a person changes something. The message says what."""


class SpeechReply(msgspec.Struct, frozen=True):
    """The audio of one call. `response` is the HTTP response for `ctx.used(…)`; None for a program."""

    audio: bytes
    response: object = None


class SpeechAdapter(Protocol):
    """Speaks one part of a text at a time.

    - `limit`: the maximum length of one call's text, in `unit`.
    - `usd_per_million`: the price of a million `unit`.
    - `seconds_per_character`: two measured values, for Chinese and for other characters.
    - `is_offline`: True if a program on this machine speaks.
    """

    limit: int
    unit: LimitUnit
    usd_per_million: float
    seconds_per_character: tuple[float, float]
    is_offline: bool

    def label(self, language: Language) -> str:
        """Returns who speaks, for people: `espeak-ng cmn`."""

    def identity(self, language: Language) -> tuple[object, ...]:
        """Returns everything besides the text that changes the audio."""

    def check(self) -> None:
        """Raises SpeechUnavailable if this adapter cannot speak on this machine."""

    async def speak(self, text: str, language: Language, *, call_id: str) -> SpeechReply:
        """Makes one paid call. Raises httpx errors, AnswerUnusable, AudioError or SpeechUnavailable."""

    async def close(self) -> None:
        """Closes the connections of this event loop. The object can be used again."""


def measure(unit: LimitUnit, text: str) -> int:
    return len(text.encode()) if unit == "bytes" else len(text)


def predict_seconds(adapter: SpeechAdapter, text: str) -> float:
    chinese, other = adapter.seconds_per_character
    count = count_chinese(text)
    return count * chinese + (len(text) - count) * other


def hash_part(adapter: SpeechAdapter, language: Language, text: str) -> str:
    """Returns the name under which the audio of a part is stored. Equal text, voice, model, speed and format
    give the same name."""
    return hashlib.sha256(msgspec.json.encode((adapter.identity(language), text))).hexdigest()


def open_speech(settings: SpeechSettings) -> SpeechAdapter:
    match settings.chosen:
        case "openai":
            return OpenAISpeech(settings)
        case "http":
            return HttpSpeech(settings)
        case "espeak":
            return EspeakSpeech(settings)


class HttpSpeech:
    """A service that takes JSON with text, voice, language, speed and format, and answers with the audio."""

    limit: int
    is_offline = False
    path, default_limit, default_voice = "", HTTP_LIMIT, ""

    def __init__(self, settings: SpeechSettings) -> None:
        self._settings, endpoint = settings, settings.endpoint()
        headers = {"authorization": f"Bearer {settings.key}"} if settings.key else {}
        self._client = ProviderHttpClient(endpoint, headers)
        self.limit, self.unit = settings.limit or self.default_limit, settings.unit
        self.usd_per_million = settings.usd_per_million
        self.seconds_per_character = (0.24 / settings.speed, 0.066 / settings.speed)
        self.voice = settings.voice or self.default_voice

    def label(self, language: Language) -> str:  # noqa: ARG002 - the voice speaks all languages
        return f"{self._settings.model} {self.voice}".strip()

    def identity(self, language: Language) -> tuple[object, ...]:
        mine = self._settings
        return (self._client.account.address, mine.model, self.voice, mine.speed, mine.format, language)

    def check(self) -> None:
        return

    async def speak(self, text: str, language: Language, *, call_id: str) -> SpeechReply:
        response = await self._client.post(self.path, self._body(text, language), call_id)
        kind = response.headers.get("content-type", "")
        if not response.content or kind.startswith(("text/", "application/json")):
            raise AnswerUnusable(f"the speech service sent no audio but {kind or 'nothing'}", response)
        return SpeechReply(response.content, response)

    async def close(self) -> None:
        await self._client.close()

    def _body(self, text: str, language: Language) -> dict[str, Any]:
        mine = self._settings
        fixed = {"model": mine.model, "voice": self.voice, "speed": mine.speed, "format": mine.format}
        return {"text": text, "language": language, **fixed}


class OpenAISpeech(HttpSpeech):
    path, default_limit, default_voice = "/audio/speech", OPENAI_LIMIT, OPENAI_VOICE

    def _body(self, text: str, language: Language) -> dict[str, Any]:  # noqa: ARG002 - the model finds it out
        mine = self._settings
        fixed = {"model": mine.model, "voice": self.voice, "speed": mine.speed}
        return {"input": text, "response_format": mine.format, **fixed}


class EspeakSpeech:
    """The program espeak-ng, which costs nothing and needs no network."""

    unit: LimitUnit = "characters"
    usd_per_million = 0.0
    is_offline = True

    def __init__(self, settings: SpeechSettings) -> None:
        self.limit, self._timeout = settings.limit or ESPEAK_LIMIT, settings.timeout
        self._voice, self._rate = settings.voice, round(ESPEAK_WORDS_PER_MINUTE * settings.speed)
        self.seconds_per_character = (0.36 / settings.speed, 0.056 / settings.speed)

    def label(self, language: Language) -> str:
        return f"{ESPEAK} {self._voice or ESPEAK_VOICES[language]}"

    def identity(self, language: Language) -> tuple[object, ...]:
        return (self.label(language), self._rate)

    def check(self) -> None:
        if shutil.which(ESPEAK) is None:
            raise SpeechUnavailable(
                f"speech: the program {ESPEAK} is not installed and there is no key of a speech service; run "
                f"`apt install {ESPEAK}`, or set OPENAI_API_KEY"
            )

    async def speak(self, text: str, language: Language, *, call_id: str) -> SpeechReply:  # noqa: ARG002 - no simulator
        self.check()
        voice = self._voice or ESPEAK_VOICES[language]
        with tempfile.TemporaryDirectory(prefix="tidemill-speech-") as folder:
            # Into a file: on standard output espeak-ng writes a header without the length.
            file = Path(folder) / "part.wav"
            words = [ESPEAK, "-v", voice, "-s", str(self._rate), "-w", str(file), "--stdin"]
            await run_program(words, text.encode(), seconds=self._timeout)
            return SpeechReply(file.read_bytes())

    async def close(self) -> None:
        return
