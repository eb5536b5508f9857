"""What a provider said with an answer or an error, read from whatever a handler holds.

Everything goes by shape, never by import: a response or an exception of any client library, or a plain
`(status, headers, body)`. `unpack` turns it into `Facts`; one adapter per provider reads those; `classify`
asks them in turn, the surest first; the answer is a `Reading`, a value. `observing` says what a reading
means to a pool's own limits.

Three promises. Nothing raises: a reading of something strange is an empty one. Nothing waits: only what
has already been received is looked at, so attributes that would fetch a body are not touched. Work is
bounded: of a huge body only its two ends are searched, of a long chain only the first links.
"""

from __future__ import annotations

from tidemill.feedback.classify import Classifier, read
from tidemill.feedback.observing import observation
from tidemill.feedback.reading import Reading, Sent, Stated

__all__ = ["Classifier", "Reading", "Sent", "Stated", "observation", "read"]
