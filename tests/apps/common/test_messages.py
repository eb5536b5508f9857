"""The messages of an application in several languages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill_apps.common.messages import MessageCatalogue


@pytest.fixture
def messages(tmp_path: Path) -> MessageCatalogue:
    (tmp_path / "en.toml").write_text('saved = "saved {count}"\nonly = "English"\n[page]\ntitle = "Songs"\n')
    (tmp_path / "zh.toml").write_text('saved = "已保存 {count}"\n[page]\ntitle = "歌曲"\n', encoding="utf-8")
    return MessageCatalogue(tmp_path)


def test_a_message_has_its_values(messages: MessageCatalogue) -> None:
    assert messages.translate("en", "saved", count=3) == "saved 3"
    assert messages.translate("zh", "saved", count="{3}") == "已保存 {3}"


def test_a_table_of_the_file_is_the_beginning_of_the_key(messages: MessageCatalogue) -> None:
    assert messages.translator("zh")("page.title") == "歌曲"


@pytest.mark.parametrize("language", ["zh", "fr"])
def test_a_missing_translation_is_english(messages: MessageCatalogue, language: str) -> None:
    assert messages.translate(language, "only") == "English"


def test_an_unknown_key_is_an_error(messages: MessageCatalogue) -> None:
    with pytest.raises(KeyError, match="nothing"):
        messages.translate("zh", "nothing")
