"""Parses the Prometheus text format, as strictly as its specification."""

from __future__ import annotations

import re

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')
_ESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
_KINDS = {"counter", "gauge", "histogram"}

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class ParsedMetrics:
    """Parsed metrics: `kinds` by family, `samples` by name and labels. `of` finds one sample."""

    def __init__(self, text: str) -> None:
        self.kinds: dict[str, str] = {}
        self.samples: Samples = {}
        self._helped = ""
        assert text.endswith("\n")
        for line in text[:-1].split("\n"):
            self._read(line)

    def of(self, name: str, **labels: str) -> float:
        return self.samples[name, tuple(sorted(labels.items()))]

    def sum(self, name: str, **labels: str) -> float:
        return sum(
            value
            for (of, has), value in self.samples.items()
            if of == name and labels.items() <= dict(has).items()
        )

    @property
    def labels(self) -> set[str]:
        return {label for _, has in self.samples for label, _ in has}

    @property
    def values(self) -> set[str]:
        return {value for _, has in self.samples for _, value in has}

    def _read(self, line: str) -> None:
        if line.startswith("# HELP "):
            self._helped = line.split(" ", 3)[2]
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert (name, kind in _KINDS) == (self._helped, True), line
            assert name not in self.kinds, f"{name} comes twice"
            self.kinds[name] = kind
        else:
            self._sample(line)

    def _sample(self, line: str) -> None:
        found = _SAMPLE.fullmatch(line)
        assert found, line
        name, label_text, value = found.groups()
        family = re.sub(r"_(bucket|sum|count)$", "", name) if name not in self.kinds else name
        assert family == self._helped, f"{name} is not under its own heading"
        labels = _LABEL.findall(label_text or "")
        assert ",".join(f'{label}="{text}"' for label, text in labels) == (label_text or ""), line
        has = tuple(sorted((label, _plain(text)) for label, text in labels))
        assert (name, has) not in self.samples, f"{line} comes twice"
        self.samples[name, has] = float(value)


def _plain(text: str) -> str:
    return re.sub(r"\\.", lambda found: _ESCAPED[found[0]], text)
