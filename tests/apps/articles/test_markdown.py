"""Cleaned Markdown (E9): the text that a reader sees."""

from __future__ import annotations

from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_apps.articles.chunks import Chunker, estimate_tokens
from tidemill_apps.articles.markdown import clean_markdown


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("---\ntitle: 标题\ntags: [a]\n---\n正文", "正文"),
        ("正文\n\n---\n\n不是开头", "正文\n\n不是开头"),
        ("---\n\n两线之间\n\n---\n其后", "两线之间\n\n其后"),
        ('见[文档](https://a.example/b?c=d "t")。', "见文档。"),
        ("![潮汐磨坊的照片](https://a.example/p.png)", "潮汐磨坊的照片"),
        ("**粗** *斜* ~~删~~ `code`", "粗 斜 删 code"),
        ("第一行\n第二行", "第一行第二行"),
        ("first line\nsecond line", "first line second line"),
        ("| 名 | 值 |\n|---|---|\n| 潮 | 1 |", "名 | 值\n\n潮 | 1"),
        ("<div class='x'><p>内容</p><script>alert(1)</script></div>", "内容"),
        ("a <b>bold</b> <script>alert(1)</script> word", "a bold word"),
        ("<!-- a note -->\n\ntext", "text"),
        ("```python\nasync def f():\n\n    pass\n```", "async def f():\npass"),
        ("- one\n- 二\n  1. three", "one\n\n二\n\nthree"),
        ("> 引用的话", "引用的话"),
        ("A &amp; B &copy;", "A & B ©"),
        ("text[^1] a[^b]c\n\n[^1]: note", "text[^1] a[^b]c\n\nnote"),
        ("", ""),
    ],
)
def test_markdown_becomes_plain_text(markdown: str, text: str) -> None:
    assert clean_markdown(markdown).text == text


@given(st.text(max_size=300))
def test_any_text_can_be_cleaned(markdown: str) -> None:
    found = clean_markdown(markdown)
    assert found.text == found.text.strip()
    assert all(0 <= at < len(found.text) for at in found.headings)


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ('<div>潮<img src="x" ALT="磨坊 &amp; 水轮">汐</div>', "潮 磨坊 & 水轮 汐"),
        ("<div>潮<!-- <b>藏</b> > -->汐</div>", "潮 汐"),
        ("<div>潮<SCRIPT>if (a < b) hide()</Script>汐<style>p {}</style></div>", "潮 汐"),
        ("<div>1 < 2, a<b and <unfinished", "1 < 2, a <b and <unfinished"),
        ("<div>İ<script>藏</script>潮<script>藏", "İ 潮"),
    ],
)
def test_tags_go_and_what_a_reader_reads_stays(html: str, text: str) -> None:
    assert clean_markdown(html).text == text


@pytest.mark.parametrize("part", ["<div ", "<!-- ", "<script ", "    ", "\n    ", "![", "<img alt='", "</"])
def test_no_text_takes_longer_than_its_length_allows(part: str) -> None:
    """Measured in CPU time: a text that takes minutes would block the worker in every attempt."""
    began = thread_time()
    clean_markdown("<div>\n" + part * (60_000 // len(part)))
    clean_markdown("```\na" + part * (60_000 // len(part)))
    assert thread_time() - began < 4


CONTAINERS = {"- ": "  ", "1. ": "   ", "> ": "> "}
BLOCKS = ("{}", "## {}", "*{}*", "`{}`", "[{}](https://a.example)", "```\n{}\n```", "| {} |\n|---|")
NESTED_BLOCK = st.tuples(st.lists(st.sampled_from(list(CONTAINERS)), max_size=30), st.sampled_from(BLOCKS))


def nested(containers: list[str], block: str) -> str:
    """Returns the block inside of these lists and quotes."""
    for marker in reversed(containers):
        first, *others = block.split("\n")
        block = "\n".join([marker + first, *(CONTAINERS[marker] + line for line in others)])
    return block


@given(st.lists(NESTED_BLOCK, max_size=6), st.sampled_from(["\n\n", "\n\n<!-- -->\n\n"]))
def test_no_visible_word_is_missing_from_the_chunks(
    blocks: list[tuple[list[str], str]], between: str
) -> None:
    document = between.join(
        nested(containers, block.format(f"head{number} tail{number}"))
        for number, (containers, block) in enumerate(blocks)
    )
    chunks = Chunker(estimate_tokens, 10, 1).split_markdown(document)
    words = [f"{place}{number}" for number in range(len(blocks)) for place in ("head", "tail")]
    assert [word for word in words if not any(word in chunk.text for chunk in chunks)] == []


@given(st.lists(st.sampled_from(["- ", "> ", "1. ", "    ", "\n", "\n\n", "# ", "**", "潮"]), max_size=200))
def test_no_marker_removes_a_visible_character(parts: list[str]) -> None:
    document = "".join(parts)
    assert clean_markdown(document).text.count("潮") == document.count("潮")


@pytest.mark.parametrize(("marker", "step"), [("- ", "  "), ("1. ", "   "), ("> ", "> ")])
def test_text_after_deeply_nested_lists_is_kept(marker: str, step: str) -> None:
    levels = [step * level + marker + f"level{level}" for level in range(40)]
    text = clean_markdown("\n".join([*levels, "", "after"])).text
    assert all(f"level{level}" in text for level in range(40))
    assert text.endswith("\n\nafter")
