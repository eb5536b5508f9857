"""Tells other programs and people what happens: signed webhooks, and alerts.

    signing      how a receiver knows that a delivery is ours: `verify` is for receivers
    addresses    whom we call, and whom we must not
    posting      one POST, bounded in time and size
    webhook      what a webhook is, and which ends it wants
    bodies       what is told of a job, a flow or a pool
    deliveries   a delivery as a job of our own
    delivering   its handler
    finding      what has ended and was not told yet
    keeping      webhooks in the store
    webhooks     what programs, the command line and the HTTP API call
    alerts/      rules, what is measured, what follows, and the messages

Nothing here stands in the way of a job. What ended is read from the store, where it stays for a while: by
the worker that ended it at once, and by the leader a little later, who finds what a worker that died did not
tell. A delivery's id comes from what it tells, so it exists once, however many find it.
"""

from __future__ import annotations

from tidemill.telling.signing import verify

__all__ = ["verify"]
