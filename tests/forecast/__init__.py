"""Forecasts against what really happens: a worker in virtual time."""
