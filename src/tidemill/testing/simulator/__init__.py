"""Simulated providers: local stand-ins for metered APIs, with quotas, refusals and bills.

    from tidemill.testing import VirtualClock
    from tidemill.testing.simulator import CallableProvider, GeminiDialect, Quota, SimulatorRequest

    provider = CallableProvider(GeminiDialect(), [Quota.rolling("requests", 10)], clock=VirtualClock())
    path = "/v1beta/models/gemini-2.5-flash:generateContent"
    reply = await provider.call(SimulatorRequest(path, {"contents": [{"parts": [{"text": "Hello"}]}]}))
    assert not provider.request_log.refused

- `CallableProvider` is called as a coroutine, in real or virtual time (`tidemill.testing.run_virtual`).
- `SimulatorServer` serves a provider over HTTP. `python -m tidemill.testing.simulator` starts one.
- A dialect (`OpenAIDialect`, `AnthropicDialect`, `GeminiDialect`, `GlmDialect`) determines the format of
  requests, replies and errors.
- `SimulatorOptions` sets latency, lost replies, disruptions and the traffic of other programs.
- `request_log` records every request, refusal and bill. Tests check this log, not the queue.
- `optimal_drain_seconds` computes how fast an optimal scheduler could finish a number of calls.

A provider counts in integers: units and microseconds. It uses neither `tidemill.core.windows` nor
`tidemill.core.calendars`, so an error in that arithmetic cannot hide in the simulator too."""

from __future__ import annotations

from tidemill.clock import Clock
from tidemill.testing.simulator.dialects import (
    DIALECTS,
    AnthropicDialect,
    Dialect,
    GeminiDialect,
    GlmDialect,
    OpenAIDialect,
)
from tidemill.testing.simulator.http_messages import SimulatorCall, SimulatorReply, SimulatorRequest
from tidemill.testing.simulator.optimal_schedule import optimal_drain_seconds, optimal_send_times
from tidemill.testing.simulator.options import (
    PRESETS,
    AccelerationLimit,
    Disruption,
    ExternalTraffic,
    QuotaChange,
    RefusalCause,
    SimulatorOptions,
)
from tidemill.testing.simulator.provider import CallableProvider, LostReply, SimulatedProvider
from tidemill.testing.simulator.quotas import Quota
from tidemill.testing.simulator.replies import ReplyFaults, ReplyFunction, embed_text
from tidemill.testing.simulator.request_log import BillEntry, RefusalEntry, RequestEntry, RequestLog
from tidemill.testing.simulator.server import SimulatorServer, parse_request_log

__all__ = [
    "DIALECTS",
    "PRESETS",
    "AccelerationLimit",
    "AnthropicDialect",
    "BillEntry",
    "CallableProvider",
    "Clock",
    "Dialect",
    "Disruption",
    "ExternalTraffic",
    "GeminiDialect",
    "GlmDialect",
    "LostReply",
    "OpenAIDialect",
    "Quota",
    "QuotaChange",
    "RefusalCause",
    "RefusalEntry",
    "ReplyFaults",
    "ReplyFunction",
    "RequestEntry",
    "RequestLog",
    "SimulatedProvider",
    "SimulatorCall",
    "SimulatorOptions",
    "SimulatorReply",
    "SimulatorRequest",
    "SimulatorServer",
    "embed_text",
    "optimal_drain_seconds",
    "optimal_send_times",
    "parse_request_log",
]
