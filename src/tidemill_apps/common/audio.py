"""Audio by ffmpeg, in a process of its own: decode and check speech, set the loudness, encode MP3."""

from __future__ import annotations

import asyncio
import math
import re
from array import array
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec
from imageio_ffmpeg import get_ffmpeg_exe

from tidemill import TidemillError

SAMPLE_RATE, BYTES_PER_SAMPLE, FULL_SCALE = 44_100, 2, 32_768
MP3_BITRATE = "96k"
TARGET_LUFS, TOLERANCE_LU, MAX_PEAK_DB = -16.0, 0.4, -1.0
LIMITER_DB = -2.0
"""Peaks are limited 1 dB lower than allowed, because MP3 encoding raises them."""
MAX_LOUDNESS_ROUNDS = 6
LIMITER_SLOPE = 1.4
"""How much gain compensates 1 LU that the limiter took."""
SILENCE_DB = -50.0
MIN_SECONDS = 0.1
PLAUSIBLE_FACTOR, PLAUSIBLE_SECONDS = 4.0, 2.0
"""A part may last from a fourth of its predicted length to four times it, and 2 s more."""
PROGRAM_SECONDS = 900.0


class AudioError(TidemillError):
    """Raised if audio cannot be made or used. The job tries again."""


class Loudness(msgspec.Struct, frozen=True):
    """The integrated loudness in LUFS and the true peak in dBTP."""

    lufs: float
    peak: float


@cache
def ffmpeg() -> str:
    try:
        return str(get_ffmpeg_exe())
    except RuntimeError:
        raise AudioError(
            "ffmpeg was not found; pip install 'tidemill[podcasts]', or set IMAGEIO_FFMPEG_EXE"
        ) from None


async def run_program(
    words: Sequence[str], given: bytes = b"", *, seconds: float = PROGRAM_SECONDS
) -> tuple[bytes, str]:
    """Runs a program with `given` as its input and returns its output and its messages. The program is
    killed if it takes longer than `seconds`, or if the job is cancelled."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(seconds):
            out, messages = await process.communicate(given)
    except TimeoutError:
        raise AudioError(f"{Path(words[0]).name} took longer than {seconds:g} s; shorten the text") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    said = messages.decode(errors="replace")
    if process.returncode:
        raise AudioError(f"{Path(words[0]).name} failed with {process.returncode}: {said.strip()[-300:]}")
    return out, said


async def decode(audio: bytes) -> bytes:
    """Returns the audio as samples: mono, 44.1 kHz, 16 bits."""
    words = ["-hide_banner", "-loglevel", "error", "-i", "pipe:0", "-ac", "1", "-ar", str(SAMPLE_RATE)]
    samples, _ = await run_program([ffmpeg(), *words, "-f", "s16le", "pipe:1"], audio)
    return samples


def count_seconds(samples: bytes) -> float:
    return len(samples) / BYTES_PER_SAMPLE / SAMPLE_RATE


def check_part(samples: bytes, predicted: float) -> float:
    """Returns the length of a part in seconds. Raises AudioError if the part is empty, silent, or far from
    its `predicted` length."""
    seconds = count_seconds(samples)
    if seconds < MIN_SECONDS:
        raise AudioError(
            f"the speech service sent {seconds:.2f} s of audio, which is empty; it is asked again"
        )
    values = array("h", samples)
    peak = max(1, *(abs(value) for value in (min(values), max(values))))
    if (level := 20 * math.log10(peak / FULL_SCALE)) < SILENCE_DB:
        raise AudioError(f"the speech service sent silence ({level:.0f} dB at most); it is asked again")
    least, most = (
        predicted / PLAUSIBLE_FACTOR - PLAUSIBLE_SECONDS,
        predicted * PLAUSIBLE_FACTOR + PLAUSIBLE_SECONDS,
    )
    if not least <= seconds <= most:
        raise AudioError(
            f"the audio lasts {seconds:.1f} s where about {predicted:.0f} s are plausible; it is asked again"
        )
    return seconds


async def measure_loudness(file: Path, filters: str = "") -> Loudness:
    """Measures a file by EBU R128, after the `filters`."""
    chain = f"{filters},ebur128=peak=true" if filters else "ebur128=peak=true"
    words = ["-hide_banner", "-nostats", *_input(file), "-af", chain, "-f", "null", "-"]
    _, said = await run_program([ffmpeg(), *words])
    summary = said.rpartition("Summary:")[2]
    found = [re.search(rf"{name}:\s+(-?[\d.]+|-inf)", summary) for name in ("I", "Peak")]
    if None in found:
        raise AudioError(f"ffmpeg did not measure {file.name}: {said.strip()[-200:]}")
    lufs, peak = (float(match[1]) for match in found if match)
    return Loudness(lufs, peak)


async def encode_mp3(samples: Path, mp3: Path) -> Loudness:
    """Encodes a file of samples as MP3 at -16 LUFS, with peaks of at most -1 dBTP. Returns the measured
    loudness."""
    gain = TARGET_LUFS - (await measure_loudness(samples)).lufs
    for _ in range(MAX_LOUDNESS_ROUNDS):
        missing = TARGET_LUFS - (await measure_loudness(samples, _filters(gain))).lufs
        if abs(missing) <= TOLERANCE_LU:
            break
        gain += LIMITER_SLOPE * missing
    words = ["-hide_banner", "-loglevel", "error", "-y", *_input(samples), "-af", _filters(gain)]
    await run_program(
        [ffmpeg(), *words, "-c:a", "libmp3lame", "-b:a", MP3_BITRATE, "-map_metadata", "-1", str(mp3)]
    )
    reached = await measure_loudness(mp3)
    if reached.peak > MAX_PEAK_DB or abs(reached.lufs - TARGET_LUFS) > 1.0:
        raise AudioError(
            f"the episode has {reached.lufs} LUFS and {reached.peak} dBTP after {MAX_LOUDNESS_ROUNDS} passes"
        )
    return reached


def _input(file: Path) -> list[str]:
    raw = ["-f", "s16le", "-ar", str(SAMPLE_RATE), "-ac", "1"] if file.suffix == ".pcm" else []
    return [*raw, "-i", str(file)]


def _filters(gain: float) -> str:
    """Returns the filters that apply the gain. The limiter works at four times the rate, where it sees the
    peaks between samples."""
    limit = 10 ** (LIMITER_DB / 20)
    limiter = f"alimiter=limit={limit:.4f}:attack=5:release=50:level=false:latency=true"
    return f"aresample={4 * SAMPLE_RATE},volume={gain:.2f}dB,{limiter},aresample={SAMPLE_RATE}"
