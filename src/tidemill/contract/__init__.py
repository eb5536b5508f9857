"""What a store promises, in small batch-first protocols with numbered obligations.

The conformance suite cites the numbers (J1, Q1, R1 …). A store is one object that keeps
all of them; `engine` is the specification; a store keeps its rows.
"""
