"""The verbs, applied to records in memory: what every store does, without any input or output.

The memory store keeps its records for good. A store with a server looks up the rows a verb needs, lets the
verb run on them (`workspace`), and writes what became of them. So there is one claim, one settlement and one
ledger, whatever keeps the jobs.
"""
