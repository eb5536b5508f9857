"""What a store promises, in small batch-first protocols with numbered obligations.

The conformance suite cites the numbers (J1, Q1, R1 …). A store is one object that keeps
all of them; `stores/memory` is the specification, the others are translations of it.
"""
