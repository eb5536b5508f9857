"""Texts of the tests, half of them Chinese. They are long enough for a loudness meter."""

from __future__ import annotations

# ruff: noqa: RUF001 - Chinese punctuation
import os
from typing import NamedTuple

from tidemill_apps.common.sentences import Language, TextFormat
from tidemill_apps.podcasts.tables import NewPodcast


class SampleText(NamedTuple):
    title: str
    text: str
    format: TextFormat
    language: Language

    def new(self) -> NewPodcast:
        return NewPodcast(**self._asdict())


MILLS = SampleText(
    "Tide mills",
    """# How they work

A tide mill is a water mill that the tide drives. A dam with a gate closes a bay. The rising tide opens the
gate and fills the pond; the falling tide closes it. When the water outside is low, the miller lets the pond
run over the wheel.

```python
print("code is not spoken")
```

# Where they are

Many stood on the coasts of England, Wales and Brittany. *Woodbridge* still grinds flour today, see
https://example.org/woodbridge for its hours. Will you visit it?
""",
    "markdown",
    "en",
)
QUEUES = SampleText(
    "Queues",
    "A queue keeps work until somebody has time for it. It smooths a burst into a steady stream. "
    "A worker takes a job, runs it, and reports how it ended. If the worker dies, another one takes the job "
    "over. Paid calls are recorded, so that nothing is paid for twice!",
    "plain",
    "en",
)
MILLS_ZH = SampleText(
    "潮汐磨坊",
    """# 工作原理

潮汐磨坊是由潮水涨落驱动的水磨。人们在海湾口修建一道带闸门的堤坝。涨潮时海水推开闸门，注满池塘；退潮时闸门关闭。

# 在哪里

英格兰、威尔士和布列塔尼的海岸上曾有许多潮汐磨坊。有些今天仍在磨面粉，你想去看看吗？
""",
    "markdown",
    "zh",
)
QUEUES_ZH = SampleText(
    "任务队列",
    "<h1>队列</h1><p>队列保存任务，直到有人有空处理。它把突发的请求变成平稳的水流。</p>"
    "<script>alert('不朗读')</script><p>工人取出任务，执行任务，然后报告结果。付费的调用都有记录，不会重复付费。</p>",
    "html",
    "zh",
)


def numbered(sample: SampleText, number: int) -> SampleText:
    """Returns another text: the sample repeated `number` times."""
    return sample._replace(title=f"{sample.title} {number}", text="\n\n".join([sample.text] * number))


REPETITIONS = 5 if "TIDEMILL_PODCASTS_FULL" in os.environ else 1
TEXTS = tuple(
    numbered(sample, number + 1)
    for number in range(REPETITIONS)
    for sample in (MILLS, QUEUES, MILLS_ZH, QUEUES_ZH)
)
