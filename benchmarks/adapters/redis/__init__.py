"""Queues on Redis, each as its documentation says it is fastest in one process."""
