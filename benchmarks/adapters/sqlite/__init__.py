"""Queues in a SQLite file."""
