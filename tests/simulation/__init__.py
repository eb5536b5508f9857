"""Simulation tests: seeded histories of a whole fleet in virtual time, and the invariants that each must
keep.

`world` builds the fleet. Real workers and real clients run in virtual processes, which may die or freeze
at any await. They share one memory store behind a `network` that delays, loses and repeats messages.
`workload` enqueues jobs, `faults` causes faults, and `operators` makes manual changes. The `outcome_log`
records the actual events outside the store. `store_monitor` compares the store before and after every
verb, and passes the changes to the `invariants`.

    pytest tests/simulation --seed=123 -s      one history, with its trace"""
