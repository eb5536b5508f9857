"""Queues in PostgreSQL, each as its documentation says it is fastest in one process."""
