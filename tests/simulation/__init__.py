"""Seeded histories of a whole fleet in virtual time, and the invariants each of them must keep.

`world` builds the fleet: real workers and real enqueuers, each in a process of its own that
may die or freeze at any await, on one memory store behind a `network` that delays, loses and
doubles. `workload` sends jobs, `faults` break things, `operators` meddle. What really
happened is in the `ledger`, which no store ever sees; `watch` looks at the store after every
verb and hands what changed to the `invariants`.

    pytest tests/simulation --seed=123 -s      one history, with its trace
"""
