"""Quotas kept: how queues and simple rules get the same calls answered by the same metered provider.

`make bench-quota`, or `python -m benchmarks.quota --help` where the peers are installed. The provider is
`tidemill.testing.providers` over HTTP on this machine. Its books, not a queue's own word, say what was
answered, refused and paid for; what the best scheduler could reach is computed from its quotas.

Its minutes pass in seconds (`--scale`), the same for everyone. What does not get faster with it is the
machine: a queue's own milliseconds count as many times as the scale says, so every figure here is worse
than it would be against a provider in real time.
"""
