"""Simulated providers: metered, paid APIs as they behave, to test against and to witness.

    from tidemill.testing.providers import CalledProvider, Gemini, Quota

    provider = CalledProvider(Gemini(), [Quota.rolling("requests", 10)], clock=VirtualClock())
    answer = await provider.call(Request("/v1beta/models/gemini-2.5-flash:generateContent", body))
    assert not provider.ledger.refused

A provider counts in whole units and whole microseconds, by code of its own: nothing here uses
`tidemill.core.windows` or `tidemill.core.calendars`, because a witness that shares the arithmetic of what
it watches would share its mistakes. Its `ledger` is the truth about what arrived, was refused, was billed.

`CalledProvider` is called as a coroutine, in virtual time (see `tidemill.testing.run_virtual`) or real.
`Server` is the same over HTTP; `python -m tidemill.testing.providers` runs one. `best_drain` says how fast
the best scheduler could be.
"""

from __future__ import annotations

from tidemill.clock import Clock
from tidemill.testing.providers.asked import Answer, Asked, Request
from tidemill.testing.providers.best import best_drain, best_sends
from tidemill.testing.providers.content import Replies, vector
from tidemill.testing.providers.dialects import DIALECTS, GLM, Anthropic, Dialect, Gemini, OpenAI
from tidemill.testing.providers.faults import Faults
from tidemill.testing.providers.ledger import Arrival, Bill, Ledger, Refusal
from tidemill.testing.providers.options import Acceleration, Change, Foreign, Options, Reason, Trouble
from tidemill.testing.providers.presets import PRESETS
from tidemill.testing.providers.provider import Provider
from tidemill.testing.providers.quota import Quota
from tidemill.testing.providers.server import Server, ledger_from
from tidemill.testing.providers.virtual import AnswerLost, CalledProvider

__all__ = [
    "DIALECTS",
    "GLM",
    "PRESETS",
    "Acceleration",
    "Answer",
    "AnswerLost",
    "Anthropic",
    "Arrival",
    "Asked",
    "Bill",
    "CalledProvider",
    "Change",
    "Clock",
    "Dialect",
    "Faults",
    "Foreign",
    "Gemini",
    "Ledger",
    "OpenAI",
    "Options",
    "Provider",
    "Quota",
    "Reason",
    "Refusal",
    "Replies",
    "Request",
    "Server",
    "Trouble",
    "best_drain",
    "best_sends",
    "ledger_from",
    "vector",
]
