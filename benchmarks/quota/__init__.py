"""The quota benchmark: queues and simple limiters make the same calls to the same metered provider.

Run `make bench-quota`, or `python -m benchmarks.quota --help` if the peers are installed. The provider
is `tidemill.testing.simulator` over HTTP on this machine. Its request log, not the queue, determines
which calls were answered, refused and paid for. The optimum is computed from its quotas.

The provider's minutes pass in seconds (`--scale`), the same for all contenders. The machine does not get
faster by it: a queue's milliseconds count multiplied by the scale. So every figure is worse than against
a provider in real time."""
