"""Queues on Redis, each with the fastest settings for one process in its documentation."""
