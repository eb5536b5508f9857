"""A second opinion about an MP3 file: pyloudnorm measures the loudness, ffmpeg's ebur128 the peak."""

from __future__ import annotations

import re
import subprocess
from typing import NamedTuple

import numpy as np
import pyloudnorm
from imageio_ffmpeg import get_ffmpeg_exe

RATE = 44_100


class MeteredAudio(NamedTuple):
    seconds: float
    lufs: float
    peak: float


def meter(mp3: bytes) -> MeteredAudio:
    """Decodes the file with another program run than the application's, and fails on any damage."""
    decode = [get_ffmpeg_exe(), "-v", "error", "-xerror", "-i", "pipe:0", "-f", "f32le", "-ac", "1", "pipe:1"]
    decoded = subprocess.run(decode, input=mp3, capture_output=True, check=True)
    assert decoded.stderr == b""
    samples = np.frombuffer(decoded.stdout, dtype="<f4").astype(np.float64)
    loudness = vars(pyloudnorm)["Meter"](RATE).integrated_loudness(samples)
    chain = ["-af", "ebur128=peak=true", "-f", "null", "-"]
    said = subprocess.run(
        [get_ffmpeg_exe(), "-nostats", "-i", "pipe:0", *chain], input=mp3, capture_output=True, check=True
    ).stderr.decode()
    peak = re.search(r"Peak:\s+(-?[\d.]+)", said.rpartition("Summary:")[2])
    assert peak is not None
    return MeteredAudio(len(samples) / RATE, float(loudness), float(peak[1]))
