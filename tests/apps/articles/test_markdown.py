"""Cleaned Markdown (E9): what a reader reads."""

from __future__ import annotations

from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_apps.articles.markdown import cleaned


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("---\ntitle: 标题\ntags: [a]\n---\n正文", "正文"),
        ("正文\n\n---\n\n不是开头", "正文\n\n不是开头"),
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
def test_what_is_left(markdown: str, text: str) -> None:
    assert cleaned(markdown).text == text


@given(st.text(max_size=300))
def test_any_text_can_be_cleaned(markdown: str) -> None:
    found = cleaned(markdown)
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
    assert cleaned(html).text == text


@pytest.mark.parametrize("part", ["<div ", "<!-- ", "<script ", "    ", "\n    ", "![", "<img alt='", "</"])
def test_no_text_takes_longer_than_its_length_allows(part: str) -> None:
    """By the processor's time: a text that took minutes would be cut again and again, and nothing else."""
    began = thread_time()
    cleaned("<div>\n" + part * (60_000 // len(part)))
    cleaned("```\na" + part * (60_000 // len(part)))
    assert thread_time() - began < 4
