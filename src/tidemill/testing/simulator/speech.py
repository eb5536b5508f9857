"""The audio of a simulated speech model: real WAV files with a tone that rises and falls like syllables."""

from __future__ import annotations

import math
import re
import struct
from array import array
from functools import cache

SAMPLE_RATE = 22_050
SECONDS_PER_CHINESE_CHARACTER, SECONDS_PER_CHARACTER = 0.24, 0.066
"""As fast as a person reads aloud."""
TONE_HERTZ, SYLLABLES_PER_SECOND, AMPLITUDE = 220, 4, 9000
LABEL = b"tidemill simulator: no real speech\0\0"
_CHINESE_PATTERN = re.compile(r"[\u3400-\u9fff]")


def speak_text(text: str, speed: float = 1.0) -> bytes:
    """Returns a WAV file that lasts as long as the text would. Its INFO chunk says that it is simulated."""
    chinese = len(_CHINESE_PATTERN.findall(text))
    seconds = chinese * SECONDS_PER_CHINESE_CHARACTER + (len(text) - chinese) * SECONDS_PER_CHARACTER
    count = max(1, round(seconds / speed * SAMPLE_RATE))
    second = _one_second()
    samples = (second * (count // SAMPLE_RATE + 1))[: 2 * count]
    layout = struct.pack("<HHIIHH", 1, 1, SAMPLE_RATE, 2 * SAMPLE_RATE, 2, 16)
    info = b"INFO" + _chunk(b"ISFT", LABEL)
    body = b"WAVE" + _chunk(b"fmt ", layout) + _chunk(b"LIST", info) + _chunk(b"data", samples)
    return _chunk(b"RIFF", body)


@cache
def _one_second() -> bytes:
    """Returns the samples of one second. Both frequencies are whole numbers, so seconds can be joined."""
    values = array("h")
    for number in range(SAMPLE_RATE):
        at = math.tau * number / SAMPLE_RATE
        loudness = 0.6 - 0.4 * math.cos(SYLLABLES_PER_SECOND * at)
        values.append(round(AMPLITUDE * loudness * math.sin(TONE_HERTZ * at)))
    return values.tobytes()


def _chunk(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data
