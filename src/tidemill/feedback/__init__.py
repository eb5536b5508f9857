"""Reads a provider's response or error and extracts what a pool needs: usage, limits and refusals.

The source is a response or exception of any client library, or a tuple `(status, headers, body)`. No client
library is imported.

`unpack_reply` turns the source into a ProviderReply. One adapter per provider reads the reply.
`read_feedback` combines the results into a ProviderFeedback. `build_observation` matches the feedback with
the limits of a pool.

There are three guarantees:

- Reading never raises. An unknown object gives empty feedback.
- Reading never waits. It uses only data that has arrived.
- Its work is bounded, even for a huge body or a long chain of exceptions.
"""

from __future__ import annotations

from tidemill.feedback.classification import Classifier, read_feedback
from tidemill.feedback.limit_observation import build_observation
from tidemill.feedback.provider_reply import ProviderFeedback, SendStatus, StatedLimit

__all__ = [
    "Classifier",
    "ProviderFeedback",
    "SendStatus",
    "StatedLimit",
    "build_observation",
    "read_feedback",
]
