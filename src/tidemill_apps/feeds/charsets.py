"""Decodes documents whose encoding is declared, declared wrongly, or not declared at all."""

from __future__ import annotations

import codecs
import re

import chardet

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (b"<\0?\0", "utf-16-le"),
    (b"\0<\0?", "utf-16-be"),
)
_SUPERSETS = {
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "cp950": "big5hkscs",
    "shift_jis": "cp932",
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
}
"""Publishers declare the small standard and write the larger one of their system, as browsers assume too."""
_EAST_ASIAN = frozenset({"gb18030", "big5hkscs", "cp932", "euc_jp", "iso2022_jp", "euc_kr", "cp949"})
_DETECTABLE = ["gb18030", "big5", "cp932", "euc-jp", "cp949", "koi8-r", *(f"cp125{n}" for n in range(9))]
_DECLARATION = re.compile(rb"^\s*<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([\w.:-]{1,40})[\"']")
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_CERTAIN_UTF8_CHARACTERS = 4
"""A text in GBK or Big5 with fewer characters than this may be valid UTF-8 by chance."""
_TOLERATED_SHARE = 0.02
"""The share of characters that may be broken in a document that is otherwise in its declared encoding."""


def decode_document(body: bytes, content_type: str | None) -> str:
    """Returns the text of a document.

    A byte order mark decides first, then valid UTF-8, then the header and the XML declaration. A declared
    iso-8859-1 counts only if nothing else fits, because servers declare it by default."""
    for mark, codec in _BOMS:
        if body.startswith(mark):
            return body.decode(codec, "replace").removeprefix("\ufeff")
    declared = _declared_codecs(body, content_type)
    specific = [codec for codec in declared if codec not in ("utf-8", "cp1252")]
    utf8 = _decode(body, "utf-8")
    certain = utf8 is not None and len(utf8.encode("ascii", "ignore")) <= len(utf8) - _CERTAIN_UTF8_CHARACTERS
    if utf8 is not None and (certain or not _EAST_ASIAN.intersection(specific)):
        return utf8
    candidates = [*(_decode(body, codec) for codec in specific), utf8]
    candidates += [_decode(body, codec, "replace") for codec in (*specific, "utf-8")]
    for text in candidates:
        if text is not None:
            return text
    detected = _detected_codec(body)
    is_western = "cp1252" in declared and detected not in _EAST_ASIAN
    return body.decode("cp1252" if is_western else detected, "replace")


def _declared_codecs(body: bytes, content_type: str | None) -> list[str]:
    header, declaration = _CHARSET.search(content_type or ""), _DECLARATION.search(body[:1000])
    labels = [header[1] if header else "", declaration[1].decode("ascii", "ignore") if declaration else ""]
    codecs_found = [_python_codec(label) for label in labels if label]
    return [codec for codec in codecs_found if codec is not None]


def _python_codec(label: str) -> str | None:
    """Returns the Python codec for a label, or None if there is none. A label of UTF-16 is wrong, because its
    first bytes would have been recognised before."""
    try:
        name = codecs.lookup(label).name
    except (LookupError, ValueError):
        return None
    return None if name.startswith(("utf-16", "utf-32")) else _SUPERSETS.get(name, name)


def _decode(body: bytes, codec: str, errors: str = "strict") -> str | None:
    """Returns the text, or None if the codec does not fit; `errors="replace"` tolerates few errors."""
    try:
        text = body.decode(codec, errors)
    except (UnicodeError, LookupError):
        return None
    foreign = len(text) - len(text.encode("ascii", "ignore"))
    fits = errors == "strict" or text.count("\ufffd") <= foreign * _TOLERATED_SHARE
    return text if fits else None


def _detected_codec(body: bytes) -> str:
    found = chardet.detect(body, include_encodings=_DETECTABLE, prefer_superset=True)["encoding"]
    return _python_codec(found or "") or "cp1252"
