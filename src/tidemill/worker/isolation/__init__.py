"""Runs handlers in child processes, which the worker can kill."""
