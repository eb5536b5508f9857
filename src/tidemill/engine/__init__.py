"""The engine: the rules of every store as functions on records in memory, without any I/O.

Each function implements one method of the contract, such as claim or settle. The memory store keeps its
records between calls. A database store loads rows, runs the function on them (`transaction_records`) and
writes the changes."""
